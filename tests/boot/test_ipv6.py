"""Boot by IPv6: DHCPv6 as RFC 8415 and 5970 have it, with scapy as the client, and TFTP."""

from __future__ import annotations

import dataclasses
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from patience import patience
from scapy.layers import dhcp6
from scapy.packet import Packet

from layercake.moduleapi.service import FakeLink
from pxe.dhcp.decision import Outcome
from pxe.ipv6.decision import Decision, Network, decide, mac_of_source
from pxe.nodes import Nodes, from_record
from pxe.packets import dhcp6 as codec
from pxe.packets.dhcp6 import Dhcp6Error
from pxe.windows import Step, Windows
from tests.boot.conftest import MAC, NODE, RECORD, TOKEN, Running, Wire

LINK = "fe80::5054:ff:fe00:101"
"""What MAC makes of itself."""
NET = Network(b"\0\3\0\1\2\2\2\2\2\2", "fd99::1", "fd99::/64", 3600)
LL = dhcp6.DUID_LL(lladdr=MAC)
UUID = b"\0\4" + bytes(range(16))
"""OVMF says who it is by the machine's SMBIOS UUID."""
PXE = dhcp6.VENDOR_CLASS_DATA(data=b"PXEClient:Arch:00007:UNDI:003001")
FIRMWARE = (
    dhcp6.DHCP6OptClientArchType(archtypes=[7]),
    dhcp6.DHCP6OptVendorClass(enterprisenum=343, vcdata=[PXE]),
)
IPXE = (
    dhcp6.DHCP6OptClientArchType(archtypes=[7]),
    dhcp6.DHCP6OptUserClass(userclassdata=[dhcp6.USER_CLASS_DATA(data=b"iPXE")]),
)


def message(kind: type[Packet], *options: Packet, duid: Any = LL, iaid: int = 7) -> bytes:
    found = kind(trid=0x123456) / dhcp6.DHCP6OptClientId(duid=duid) / dhcp6.DHCP6OptIA_NA(iaid=iaid)
    for option in options:
        found /= option
    return bytes(found)


class Rack:
    """A UEFI node, armed or not, and a DHCPv6 service."""

    def __init__(self, armed: bool = True, **more: Any) -> None:
        self.network = NET
        self.nodes, self.windows = Nodes(), Windows()
        self.nodes.update(from_record(NODE, {**RECORD, "firmware": "uefi", **more}))
        if armed:
            self.windows.arm(NODE, TOKEN, 100.0, 0.0)

    def asks(self, data: bytes, source: str = LINK) -> Decision:
        return decide(codec.parse(data), source, self.nodes, self.windows, self.network, 1.0)


def read(decision: Decision) -> Packet:
    """The answer, as scapy reads it."""
    assert decision.reply
    return {1: None, 2: dhcp6.DHCP6_Advertise, 7: dhcp6.DHCP6_Reply}[decision.reply[0]](
        decision.reply
    )  # type: ignore[misc]


@pytest.mark.parametrize(
    "duid", [LL, UUID, dhcp6.DUID_LLT(lladdr=MAC, timeval=9), b"\0\2\0\0\1\x57abc"]
)
def test_firmware_is_told_its_address_and_the_program(duid: Any) -> None:
    said = Rack().asks(message(dhcp6.DHCP6_Solicit, *FIRMWARE, duid=duid))
    assert said.outcome is Outcome.OFFERED and [n.step for n in said.notes] == [
        Step.DISCOVER,
        Step.OFFER,
    ]
    found = read(said)
    assert found.trid == 0x123456 and bytes(found[dhcp6.DHCP6OptClientId].duid) == bytes(duid)
    assert bytes(found[dhcp6.DHCP6OptServerId].duid) == NET.server
    given = found[dhcp6.DHCP6OptIA_NA]
    assert given.iaid == 7 and given.T1 == 1800 and given.ianaopts[0].addr == "fd99::a63:b"
    assert found[dhcp6.DHCP6OptBootFileUrl].optdata == b"tftp://[fd99::1]/snponly.efi"


@pytest.mark.parametrize(
    "kind",
    [
        dhcp6.DHCP6_Request,
        dhcp6.DHCP6_Renew,
        dhcp6.DHCP6_Rebind,
        dhcp6.DHCP6_Confirm,
        dhcp6.DHCP6_InfoRequest,
    ],
)
def test_every_later_message_has_a_reply(kind: type[Packet]) -> None:
    said = Rack().asks(message(kind, *FIRMWARE))
    assert (
        said.outcome is Outcome.ACKED
        and isinstance(read(said), dhcp6.DHCP6_Reply)
        and not said.notes
    )


@pytest.mark.parametrize("kind", [dhcp6.DHCP6_Renew, dhcp6.DHCP6_Release, dhcp6.DHCP6_Decline])
@pytest.mark.parametrize("armed", [True, False])
def test_who_has_its_address_from_us_is_answered_whatever_it_says_that_it_is(
    kind: type[Packet], armed: bool
) -> None:
    """OVMF waited for ever for an answer to its RELEASE, before it started iPXE."""
    ours = dhcp6.DHCP6OptServerId(duid=dhcp6.DUID_LL(lladdr="02:02:02:02:02:02"))
    found = read(Rack(armed).asks(message(kind, ours)))
    assert isinstance(found, dhcp6.DHCP6_Reply) and (dhcp6.DHCP6OptIA_NA in found) is (
        kind is dhcp6.DHCP6_Renew
    )


def test_ipxe_has_an_address_and_goes_on_by_ipv4() -> None:
    found = read(Rack().asks(message(dhcp6.DHCP6_Solicit, *IPXE)))
    assert dhcp6.DHCP6OptIA_NA in found and dhcp6.DHCP6OptBootFileUrl not in found


def test_without_a_window_there_is_no_answer_and_its_history_says_why() -> None:
    said = Rack(armed=False).asks(message(dhcp6.DHCP6_Solicit, *FIRMWARE))
    assert (
        said.outcome is Outcome.NOT_ARMED
        and not said.reply
        and "no boot is wanted" in said.notes[0].text
    )


@pytest.mark.parametrize(
    ("arch", "firmware", "real"), [("x86_64", 11, "aarch64"), ("aarch64", 7, "x86_64")]
)
def test_firmware_of_another_architecture_is_told(arch: str, firmware: int, real: str) -> None:
    options = (dhcp6.DHCP6OptClientArchType(archtypes=[firmware]),)
    said = Rack(arch=arch, firmware="uefi").asks(message(dhcp6.DHCP6_Solicit, *options))
    assert said.outcome is Outcome.WRONG_ARCHITECTURE and not said.reply
    assert (
        said.notes[0].text
        == f"its firmware is of {real} (architecture {firmware}), the inventory says {arch}"
    )


@pytest.mark.parametrize(
    ("more", "options", "why"),
    [
        ({"secure_boot": True}, FIRMWARE, "Secure Boot"),
        ({}, (dhcp6.DHCP6OptClientArchType(archtypes=[16]),), "UEFI PXE"),
        (
            {"arch": "aarch64", "firmware": "uefi"},
            (dhcp6.DHCP6OptClientArchType(archtypes=[11]),),
            "x86-64",
        ),
    ],
)
def test_what_cannot_boot_is_told_why(
    more: dict[str, Any], options: tuple[Packet, ...], why: str
) -> None:
    said = Rack(**more).asks(message(dhcp6.DHCP6_Solicit, *options))
    assert said.outcome is Outcome.NO_PROGRAM and not said.reply and why in said.notes[0].text


def test_a_head_without_an_address_there_says_so() -> None:
    rack = Rack()
    rack.network = dataclasses.replace(NET, address="")
    said = rack.asks(message(dhcp6.DHCP6_Solicit, *FIRMWARE))
    assert not said.reply and "the head has no address in fd99::/64" in said.notes[0].text
    assert rack.asks(message(dhcp6.DHCP6_Solicit, *IPXE)).reply


def test_systems_strangers_and_other_servers_clients_are_left_alone() -> None:
    rack = Rack()
    other = dhcp6.DHCP6OptServerId(duid=dhcp6.DUID_LL(lladdr="02:00:00:00:00:09"))
    assert rack.asks(message(dhcp6.DHCP6_Solicit)).outcome is Outcome.NOT_FOR_US
    assert (
        rack.asks(message(dhcp6.DHCP6_Solicit, *FIRMWARE, duid=UUID), "fe80::1:2%eth0").outcome
        is Outcome.UNKNOWN_MAC
    )
    assert rack.asks(message(dhcp6.DHCP6_Request, *FIRMWARE, other)).outcome is Outcome.OTHER_SERVER
    assert rack.asks(bytes(dhcp6.DHCP6_Solicit())).outcome is Outcome.NOT_FOR_US


def test_firmware_that_no_inventory_knows_is_told_of() -> None:
    rack = Rack()
    unknown = dhcp6.DUID_LL(lladdr="02:00:00:00:00:09")
    said = rack.asks(message(dhcp6.DHCP6_Solicit, *FIRMWARE, duid=bytes(unknown)), "fe80::1:2")
    [note] = said.notes
    assert (note.node, note.data["mac"]) == ("", "02:00:00:00:00:09")
    assert "by IPv6" in note.text
    assert mac_of_source("fe80::5054:ff:fe00:101%eth0") == bytes.fromhex("525400000101")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\1\2\3",
        b"\x0c" + bytes(40),
        b"\1abc\0\1",
        b"\1abc\0\1\0\x09x",
        b"\1" * 4097,
        b"\1abc" + codec.option(1, UUID) + codec.option(15, b"\0\x09x"),
        b"\1abc" + codec.option(1, UUID) + codec.option(16, bytes(5)),
    ],
)
def test_malformed_messages_are_refused(data: bytes) -> None:
    with pytest.raises(Dhcp6Error):
        Rack().asks(data)


def test_the_owner_of_an_ipv6_address_is_known() -> None:
    nodes = Rack().nodes
    for address in (LINK, f"{LINK}%br0", "fd99::5054:ff:fe00:101", "fd99::a63:b"):
        assert nodes.by_ip(address) is nodes.by_id(NODE)
    for address in ("fe80::1", "fd99::a63:c", "fe80::5054:ff:fe00:102"):
        assert nodes.by_ip(address) is None


def exchanged(wire: Wire, work: Callable[[socket.socket], Any]) -> Any:
    """What a function makes of a UDP socket at the node's link-local address."""

    def there() -> Any:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
            sock.setsockopt(
                socket.SOL_SOCKET, socket.SO_BINDTODEVICE, wire.client_if.encode() + b"\0"
            )
            sock.setsockopt(
                socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, socket.if_nametoindex(wire.client_if)
            )
            sock.settimeout(5.0)
            return work(sock)

    return wire.there(there)


def address(namespace: str, interface: str, text: str) -> None:
    subprocess.run(
        ["ip", "-n", namespace, "addr", "add", f"{text}/64", "dev", interface, "nodad"], check=True
    )


@pytest.mark.root
def test_the_program_is_had_by_ipv6(running: Running, wire: Wire, files: dict[str, Any]) -> None:
    """A fresh interface has no address that can be used for a second or two, at either end."""
    program = Path(files["ipxe_dir"], "snponly.efi").read_bytes()
    running.do(running.service.node_changed(NODE, {**RECORD, "firmware": "uefi"}))
    running.arm()
    address(wire.head, wire.head_if, "fd99::1")

    def fetch(sock: socket.socket) -> tuple[Packet, bytes]:
        answer, end = b"", time.monotonic() + patience(50.0)
        sock.settimeout(1.0)
        while not answer and time.monotonic() < end:
            try:
                sock.sendto(message(dhcp6.DHCP6_Solicit, *FIRMWARE), ("ff02::1:2", 547))
                answer = sock.recv(4096)
            except TimeoutError:
                continue
            except OSError:  # no address yet
                time.sleep(0.2)
        advertised = dhcp6.DHCP6_Advertise(answer)
        url = advertised[dhcp6.DHCP6OptBootFileUrl].optdata.decode()
        server = url.removeprefix("tftp://[").partition("]")[0]
        address(wire.client, wire.client_if, advertised[dhcp6.DHCP6OptIA_NA].ianaopts[0].addr)
        sock.settimeout(5.0)
        sock.sendto(b"\0\1snponly.efi\0octet\0blksize\x001400\0", (server, 69))
        data, source = sock.recvfrom(2000)
        assert data[:2] == b"\0\6"
        found, number = b"", 0
        while True:
            sock.sendto(b"\0\4" + number.to_bytes(2, "big"), source)
            data = sock.recv(2000)
            assert data[:4] == b"\0\3" + (number + 1).to_bytes(2, "big")
            found, number = found + data[4:], number + 1
            if len(data) < 1404:
                sock.sendto(b"\0\4" + number.to_bytes(2, "big"), source)
                return advertised, found

    advertised, found = exchanged(wire, fetch)
    assert advertised[dhcp6.DHCP6OptIA_NA].ianaopts[0].addr == "fd99::a63:b" and found == program
    assert {"boot.discover-seen", "boot.offer-sent"} <= set(running.kinds())


@pytest.mark.root
def test_another_server_for_ipv6_keeps_nothing_else_from_starting(
    wire: Wire, files: dict[str, Any]
) -> None:
    def taken() -> socket.socket:
        sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        sock.bind(("::", 547))
        return sock

    with wire.there(taken, wire.head):
        made = Running(wire, files, {"ra_prefix": "fd99::/64"})
        made.start()
        made.stop()
    link: FakeLink = made.link
    assert next(e[2] for e in link.events if e[1] == "service.no-ipv6").startswith(
        "no machine can boot by IPv6: cannot listen"
    )
