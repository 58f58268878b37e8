"""Golden captures: what firmware asked in a real boot, and the parts of the answers that it went on
by. Read by scapy, not by us.

NAME.pcap has the frames that a machine sent: DHCP, DHCPv6, read requests of TFTP, heads of HTTP
requests. NAME.json says of what firmware they are, and what each was answered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from scapy.layers import dhcp6
from scapy.layers.dhcp import BOOTP, DHCP
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet

HTTP_PORT = 8080
_SIXES = {
    1: "Solicit",
    2: "Advertise",
    3: "Request",
    4: "Confirm",
    5: "Renew",
    6: "Rebind",
    7: "Reply",
    8: "Release",
    9: "Decline",
    11: "Information-request",
}
_FOURS = {
    1: "DISCOVER",
    2: "OFFER",
    3: "REQUEST",
    4: "DECLINE",
    5: "ACK",
    6: "NAK",
    7: "RELEASE",
    8: "INFORM",
}
_ADDRESSES, _WORDS, _KEPT = {1, 54}, {60, 66, 67}, {43, 61, 97, 175}
"""Options of DHCP answers that firmware goes on by: mask and server; class, TFTP server and boot
file; what is read by machines."""


def payload(frame: Packet) -> bytes:
    """What a frame carries behind UDP or TCP."""
    return bytes((frame[TCP] if TCP in frame else frame[UDP]).payload)


def ports(frame: Packet) -> tuple[str, int, int]:
    """("UDP" or "TCP", from, to); ("", 0, 0) for anything else. Frames without Ethernet padding
    only in `payload`."""
    for name, layer in (("UDP", UDP), ("TCP", TCP)):
        if layer in frame and (IP in frame or IPv6 in frame):
            return name, frame[layer].sport, frame[layer].dport
    return "", 0, 0


def asks(frame: Packet) -> tuple[str, bytes | int] | None:
    """("dhcp", "dhcpv6", "tftp" or "http", what its answer is known by) of a frame from a machine,
    None for any other frame."""
    kind, source, target = ports(frame)
    if kind == "UDP" and target == 67 and BOOTP in frame:
        return "dhcp", frame[BOOTP].xid
    if kind == "UDP" and target == 547:
        return "dhcpv6", payload(frame)[1:4]
    if kind == "UDP" and target == 69:
        return "tftp", source
    if kind == "TCP" and target == HTTP_PORT and payload(frame).startswith((b"GET ", b"HEAD ")):
        return "http", source
    return None


def answers(frame: Packet) -> tuple[str, bytes | int] | None:
    """The same of a frame to a machine."""
    kind, source, target = ports(frame)
    if kind == "UDP" and source == 67 and BOOTP in frame:
        return "dhcp", frame[BOOTP].xid
    if kind == "UDP" and source == 547:
        return "dhcpv6", payload(frame)[1:4]
    if kind == "UDP":
        return "tftp", target
    if kind == "TCP" and source == HTTP_PORT and payload(frame).startswith(b"HTTP/"):
        return "http", target
    return None


def described(frame: Packet) -> str:
    """What a machine asks, for people."""
    protocol, data = (asks(frame) or ("",))[0], payload(frame)
    if protocol == "dhcp":
        said = dict(_options(frame))
        words = [
            said[code].decode("ascii", "backslashreplace") for code in (60, 77) if code in said
        ]
        return f"DHCP{_FOURS[said[53][0]]} {' '.join(words)}".strip()
    if protocol == "dhcpv6":
        return f"DHCPv6 {_SIXES[data[0]]}"
    if protocol == "tftp":
        return "RRQ " + " ".join(data[2:-1].decode("ascii").split("\0"))
    return data.partition(b"\r\n")[0].decode("ascii")


def _options(frame: Packet) -> Iterable[tuple[int, bytes]]:
    """(code, value) of each DHCP option, by the bytes: scapy has a word for some values and none
    for others."""
    data, at = bytes(frame[DHCP])[:], 0
    while at < len(data) and data[at] != 255:
        if data[at]:
            yield data[at], data[at + 2 : at + 2 + data[at + 1]]
            at += 1 + data[at + 1]
        at += 1


def essence(protocol: str, frame: Packet) -> dict[str, Any]:
    """What matters of an answer, JSON-ready: what it is, addresses, files, and what else firmware
    goes on by."""
    return {"dhcp": _dhcp, "dhcpv6": _dhcpv6, "tftp": _tftp, "http": _http}[protocol](frame)


def _dhcp(frame: Packet) -> dict[str, Any]:
    bootp = frame[BOOTP]
    found: dict[str, Any] = {
        "kind": "",
        "to": frame[Ether].dst,
        "at": frame[IP].dst,
        "yiaddr": bootp.yiaddr,
        "siaddr": bootp.siaddr,
        "file": bytes(bootp.file).rstrip(b"\0").decode("ascii"),
        "options": {},
    }
    for code, value in _options(frame):
        if code == 53:
            found["kind"] = _FOURS[value[0]]
        elif code in _ADDRESSES:
            found["options"][str(code)] = ".".join(map(str, value))
        elif code in _WORDS:
            found["options"][str(code)] = value.decode("ascii")
        elif code in _KEPT:
            found["options"][str(code)] = value.hex()
    return found


def _dhcpv6(frame: Packet) -> dict[str, Any]:
    data = payload(frame)
    message = {2: dhcp6.DHCP6_Advertise, 7: dhcp6.DHCP6_Reply}[data[0]](data)
    found: dict[str, Any] = {
        "kind": _SIXES[data[0]],
        "server": bytes(message[dhcp6.DHCP6OptServerId].duid).hex(),
        "client": bytes(message[dhcp6.DHCP6OptClientId].duid).hex(),
    }
    if dhcp6.DHCP6OptIA_NA in message:
        given = message[dhcp6.DHCP6OptIA_NA]
        found |= {"iaid": given.iaid, "addresses": [each.addr for each in given.ianaopts]}
    if dhcp6.DHCP6OptBootFileUrl in message:
        found["url"] = message[dhcp6.DHCP6OptBootFileUrl].optdata.decode("ascii")
    if dhcp6.DHCP6OptStatusCode in message:
        found["status"] = message[dhcp6.DHCP6OptStatusCode].statuscode
    return found


def _tftp(frame: Packet) -> dict[str, Any]:
    return tftp(payload(frame))


def tftp(data: bytes) -> dict[str, Any]:
    """The first packet of a transfer, or its refusal. Files differ in length: `tsize` has no
    value."""
    kind = int.from_bytes(data[:2], "big")
    if kind == 6:
        words = data[2:-1].decode("ascii").split("\0")
        options = dict(zip(words[::2], words[1::2], strict=True))
        return {"kind": "OACK", "options": options | ({"tsize": ""} if "tsize" in options else {})}
    number = int.from_bytes(data[2:4], "big")
    return {"kind": "DATA", "block": number} if kind == 3 else {"kind": "ERROR", "code": number}


def _http(frame: Packet) -> dict[str, Any]:
    first, _, rest = payload(frame).partition(b"\r\n\r\n")[0].decode("ascii").partition("\r\n")
    lines = (line.partition(":") for line in rest.split("\r\n"))
    return http(
        int(first.split()[1]), {name.strip().lower(): value.strip() for name, _, value in lines}
    )


def http(status: int, headers: Mapping[str, str]) -> dict[str, Any]:
    """The head of an answer; `headers` by their names in lower case."""
    return {
        "kind": status,
        "type": headers.get("content-type", "").partition(";")[0],
        "length": "content-length" in headers,
        "ranges": headers.get("accept-ranges", ""),
    }


def distilled(frames: Iterable[Packet], mac: str) -> list[tuple[Packet, dict[str, Any]]]:
    """What a machine asked and was answered, each with the essence of the first answer to it. A
    segment that was sent again is there once."""
    found: list[tuple[Packet, dict[str, Any]]] = []
    last: dict[tuple[str, bytes | int], int] = {}
    for frame in frames:
        if Ether not in frame:
            continue
        if frame[Ether].src == mac and (key := asks(frame)) is not None:
            again = (
                key[0] == "http" and key in last and found[last[key]][0][TCP].seq == frame[TCP].seq
            )
            if not again:
                last[key] = len(found)
                found.append((frame, {}))
        elif frame[Ether].src != mac and (key := answers(frame)) in last:
            asked, answer = found[last[key]]
            found[last[key]] = asked, answer or essence(key[0], frame)
    return [(asked, answer) for asked, answer in found if answer]
