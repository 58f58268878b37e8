"""Other DHCP servers on the nodes' network: who answers a machine that nobody knows."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from layercake.base.packets.bpf import udp_to
from layercake.base.text import show
from layercake.check.finding import Finding, Severity, check, error, ok, warning
from layercake.check.site import Site
from layercake.check.wire.listening import IP, ReceivedFrame, exchange
from pxe.packets import dhcp as codec
from pxe.packets.dhcp import DhcpError
from pxe.settings import BootSettings

_CLIENTS = (
    ("a system", ()),
    ("BIOS PXE", ((93, b"\x00\x00"), (60, b"PXEClient:Arch:00000:UNDI:002001"))),
    ("UEFI PXE", ((93, b"\x00\x07"), (60, b"PXEClient:Arch:00007:UNDI:003016"))),
    ("UEFI HTTP Boot", ((93, b"\x00\x10"), (60, b"HTTPClient:Arch:00016:UNDI:003001"))),
)
"""What is asked as: some servers answer firmware of one kind alone (RFC 4578, option 93 and 60)."""
_WANTED = bytes((1, 3, 6, 43, 54, 60, 66, 67, 97))


@dataclass(slots=True)
class Server:
    """Another server. `gives` is an address that it offered to a stranger, `boots` what it offered
    to boot, `host` from where, `relay` the agent that its answers came by; "" for none."""

    gives: str = ""
    boots: str = ""
    host: str = ""
    relay: str = ""


def stranger() -> bytes:
    """A MAC address that no machine has: random, locally administered, of one machine."""
    first, *rest = secrets.token_bytes(6)
    return bytes((first & 0xFC | 0x02, *rest))


def discovers(port: int) -> dict[int, bytes]:
    """{transaction id: frame} of the DHCPDISCOVERs of one stranger, who asks for a broadcast
    answer."""
    from scapy.layers.dhcp import BOOTP, DHCP  # here: scapy is slow to import
    from scapy.layers.inet import IP as Ip
    from scapy.layers.inet import UDP
    from scapy.layers.l2 import Ether

    mac = stranger()
    frames = {}
    for _, options in _CLIENTS:
        number = secrets.randbits(32)
        uuid = (97, b"\0" + mac + bytes(10))
        firmware = [*options, (94, b"\x01\x03\x10"), uuid] if options else []
        fields = [("message-type", 1), (55, _WANTED), (57, b"\x05\xc0"), *firmware, "end"]
        frames[number] = bytes(
            Ether(src=mac.hex(":"), dst="ff:ff:ff:ff:ff:ff")
            / Ip(src="0.0.0.0", dst="255.255.255.255")
            / UDP(sport=port + 1, dport=port)
            / BOOTP(chaddr=mac + bytes(10), xid=number, flags=0x8000)
            / DHCP(options=fields)
        )
    return frames


def servers(heard: list[ReceivedFrame], ours: set[int]) -> dict[tuple[str, str], Server]:
    """{(server id, MAC address): what it offers} of the offers to us. What is no DHCP is passed
    over."""
    from scapy.layers.inet import IP as Ip
    from scapy.layers.inet import UDP
    from scapy.layers.l2 import Ether

    servers: dict[tuple[str, str], Server] = {}
    for one in heard:
        packet = Ether(one.frame)
        if Ip not in packet or UDP not in packet:
            continue
        try:
            message = codec.parse(bytes(packet[UDP].payload))
        except DhcpError:
            continue
        if message.op != codec.REPLY or message.xid not in ours:
            continue
        server_id = message.options.get(codec.SERVER_ID)
        identity = str(packet[Ip].src) if server_id is None else _ip(server_id)
        _note_offer(servers.setdefault((identity, str(packet.src)), Server()), message)
    return servers


def _note_offer(server: Server, message: codec.DhcpPacket) -> None:
    """Adds to what a server offers what it says in one more message."""
    server.gives = _ip(message.yiaddr) or server.gives
    server.relay = _ip(message.giaddr) or server.relay
    name = message.options.get(codec.BOOT_FILE) or message.file
    if name:
        server.host = (
            _host(_text(name))
            or _text(message.options.get(codec.TFTP_SERVER, b""))
            or _ip(message.siaddr)
        )
        server.boots = f"{show(_text(name))} from {show(server.host)}"
    elif message.options.get(codec.VENDOR_CLASS, b"").startswith((b"PXEClient", b"HTTPClient")):
        server.boots = server.boots or "something to boot (proxyDHCP)"


def _ip(address: bytes) -> str:
    """An IPv4 address, "" for none."""
    return "" if address == codec.NO_ADDRESS else socket.inet_ntoa(address)


def _host(name: str) -> str:
    """The host of a URL, "" for a plain file name, and for a URL that is none."""
    try:
        return urlsplit(name).hostname or ""
    except ValueError:
        return ""


def _text(value: bytes) -> str:
    return value.rstrip(b"\0").decode("ascii", "replace")


def _offer_text(key: tuple[str, str], server: Server, who: str = "another DHCP server") -> str:
    offers = [f"addresses ({server.gives})"] * bool(server.gives) + [server.boots] * bool(
        server.boots
    )
    relay = f", by the relay agent {server.relay}" if server.relay else ""
    return (
        f"{who}, {key[0]} (MAC address {key[1]}{relay}), offers {' and '.join(offers) or 'nothing'}"
    )


def judge(
    found: Mapping[tuple[str, str], Server], boot: BootSettings, head: str, where: str
) -> list[Finding]:
    """What is to be said of who answers a stranger, by what the settings say of DHCP. `head` is its
    address, `where` how long and on which interface was listened."""
    findings = []
    for key, server in sorted(found.items()):
        if key[0] in boot.dhcp_servers:
            findings.append(
                _expected(_offer_text(key, server, "the site's DHCP server"), server, boot, head)
            )
        elif boot.dhcp != "serve" and not boot.dhcp_servers:
            findings.append(
                warning(
                    _offer_text(key, server),
                    "if it is the site's, name it in boot.dhcp_servers; if not, switch it off",
                )
            )
        else:
            findings.append(
                error(
                    _offer_text(key, server),
                    "switch it off, or keep it from this network; nodes take whichever answer "
                    "comes "
                    "first. The site's own are named in boot.dhcp_servers",
                )
            )
    if boot.dhcp == "serve" or any(server.gives for server in found.values()):
        return findings or [ok(f"nobody else answered {where}")]
    none = (
        f"no DHCP server of the site gave a stranger an address {where}; with boot.dhcp: "
        f"{boot.dhcp} nodes have theirs from it"
    )
    return [
        *findings,
        ok(f"{none}: it may answer machines that it knows alone")
        if boot.dhcp_servers
        else warning(none, "see whether it reaches this network, and name it in boot.dhcp_servers"),
    ]


def _expected(text: str, server: Server, boot: BootSettings, head: str) -> Finding:
    """What is to be said of a server that the settings name."""
    if boot.dhcp == "off":
        wrong = bool(server.boots) and server.host != head
        return (
            warning(text, f"with boot.dhcp: off it has to name the head's files, at {head}")
            if wrong
            else ok(text)
        )
    if server.boots:
        return error(
            text,
            "take file and next server out of what it gives: firmware may like that better than "
            "the head's",
        )
    if boot.dhcp == "serve" and server.gives:
        return warning(
            text,
            "nodes take whichever answer comes first: keep it from answering them, or set "
            "boot.dhcp: proxy",
        )
    return ok(text)


@check("dhcp", sides=True)
def dhcp(site: Site) -> list[Finding]:
    """Other DHCP servers on the nodes' network, proxyDHCP servers too: DHCPDISCOVERs of a machine
    that does not exist, as a system, BIOS and UEFI firmware would send them; and whether the
    answers are as boot.dhcp and boot.dhcp_servers have it. A server that answers known machines
    only is not found. The head's own server does not hear them. Also another server on the head
    itself, on the same interface."""
    settings = site.settings
    boot = site.of("boot")
    port = boot.dhcp_port
    frames = discovers(port)
    replies = exchange(
        [settings.interface], IP, site.listen_s, say=frames.values(), program=udp_to(port + 1)
    )
    where = f"in {site.listen_s:g} s on {settings.interface}"
    on_head = [] if boot.dhcp == "off" else _on_the_head(site, port)
    findings = judge(servers(replies, set(frames)), boot, settings.address, where)
    return on_head + [f for f in findings if not on_head or f.severity is not Severity.OK]


def _on_the_head(site: Site, port: int) -> list[Finding]:
    """A server of this machine: what it sends does not come in on the interface. Ours is a module's
    process."""
    own = {str(s["pid"]) for s in (site.status or {}).get("services", [])}
    findings = []
    for address, who in site.machine.listeners(port):
        host, _, interface = address.rpartition(":")[0].partition("%")
        ours = any(f"pid={pid}," in who for pid in own)
        if (
            not ours
            and interface in ("", site.settings.interface)
            and host in ("0.0.0.0", "*", "[::]", site.settings.address)
        ):
            findings.append(
                error(
                    f"another DHCP server on this machine listens on {address} {who}".rstrip(),
                    "stop it, or bind it to other interfaces",
                )
            )
    return findings
