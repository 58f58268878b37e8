"""What a DHCPv6 message gets. Pure, as pxe.dhcp.decision, whose rules hold here too: only a node
whose boot window is open is told what to boot. Running systems get no answer at all: they make
their addresses of the router advertisements.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from layercake.kraken.events import Severity
from layercake.moduleapi.network import AnyNetwork
from pxe import events
from pxe.dhcp.outcome import Outcome, note_on_stranger
from pxe.machine import FIRMWARE, Client, wrong
from pxe.nodes import Node, Nodes, mac_text
from pxe.notes import Note
from pxe.packets import dhcp6 as dhcp
from pxe.packets.dhcp6 import Dhcp6Packet, Kind
from pxe.paths.ipxe import UEFI_PROGRAM
from pxe.settings import packed
from pxe.subnet import Subnet
from pxe.windows import Step, Windows

_STEP_EVERY_S = 1.0
_IGNORED_EVERY_S = 10.0
_OTHER_EVERY_S = 60.0
_LATER = (Kind.RENEW, Kind.RELEASE, Kind.DECLINE)


@dataclass(frozen=True, slots=True)
class Network:
    """What all answers on an interface have in common. `server` is our DUID. `prefix` is the /64
    that firmware of nodes with IPv4 has addresses in, "" for none, `address` the head's in it or
    "", `lease` in seconds. `here` are the networks of nodes without IPv4."""

    server: bytes
    address: str
    prefix: str
    lease: int
    here: tuple[AnyNetwork, ...] = ()


@dataclass(frozen=True, slots=True)
class Home:
    """Where a node is at home: its address, the head's there ("" for none), and for how many
    seconds it is leased. `subnet` is the network of a node without IPv4."""

    address: ipaddress.IPv6Address
    head: str
    lease: int
    subnet: Subnet | None = None


def home_of(node: Node, net: Network) -> Home | None:
    """Where a node is at home on this interface, None for one that is not."""
    if ":" not in node.ip:
        return (
            Home(dhcp.address_for(net.prefix, node.ip), net.address, net.lease)
            if net.prefix
            else None
        )
    if node.subnet is None or node.subnet.network not in net.here:
        return None
    return Home(
        ipaddress.IPv6Address(node.ip), node.subnet.place.address, node.subnet.lease_s, node.subnet
    )


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome, the message that goes back to where it came from, and what is to be told."""

    outcome: Outcome
    reply: bytes = b""
    notes: tuple[Note, ...] = ()


def architecture(packet: Dhcp6Packet) -> int | None:
    """The first one that the client names (RFC 5970 section 3.3)."""
    value = packet.options.get(dhcp.CLIENT_ARCH, b"")
    return int.from_bytes(value[:2], "big") if len(value) >= 2 else None


def client_of(packet: Dhcp6Packet) -> Client:
    """What asks. Raises Dhcp6Error."""
    if b"iPXE" in dhcp.classes(packet.options.get(dhcp.USER_CLASS, b"")):
        return Client.IPXE
    arch = architecture(packet)
    vendors = dhcp.classes(packet.options.get(dhcp.VENDOR_CLASS, bytes(4))[4:])
    if arch is None and not any(v.startswith((b"PXEClient", b"HTTPClient")) for v in vendors):
        return Client.SYSTEM
    return Client.OTHER if arch is None else FIRMWARE.get(arch, Client.OTHER)


def owner(packet: Dhcp6Packet, source: str, nodes: Nodes) -> tuple[Node, bytes] | None:
    """The node that a message comes from, and its card's MAC address: that of the link-local
    address, or of the identifier."""
    return next(
        (
            (node, mac)
            for mac in _macs_of(packet, source)
            if (node := nodes.by_mac(mac)) is not None
        ),
        None,
    )


def _macs_of(packet: Dhcp6Packet, source: str) -> list[bytes]:
    """The MAC addresses that a message may come from."""
    macs = (mac_of_source(source), dhcp.mac_of_duid(packet.options.get(dhcp.CLIENT_ID, b"")))
    return [mac for mac in macs if mac is not None]


def mac_of_source(source: str) -> bytes | None:
    """The MAC address that a link-local address is made of, None if it is of none."""
    return dhcp.mac_of_address(ipaddress.IPv6Address(source.partition("%")[0]).packed)


def _stranger(packet: Dhcp6Packet, source: str, client: Client, nodes: Nodes) -> Decision:
    """Firmware that no inventory knows is told of: it may never ask by IPv4."""
    if not nodes.told.is_set():
        return Decision(Outcome.NOT_TOLD)
    macs = _macs_of(packet, source)
    if client is Client.SYSTEM or not macs:
        return Decision(Outcome.UNKNOWN_MAC)
    note = note_on_stranger(macs[0], f"{client.value} asks by IPv6, and no node has this address")
    return Decision(Outcome.UNKNOWN_MAC, notes=(note,))


def decide(
    packet: Dhcp6Packet, source: str, nodes: Nodes, windows: Windows, net: Network, now: float
) -> Decision:
    """What to do about one message from an address at `now`. Raises Dhcp6Error."""
    if packet.kind in (Kind.ADVERTISE, Kind.REPLY) or dhcp.CLIENT_ID not in packet.options:
        return Decision(Outcome.NOT_FOR_US)
    if packet.options.get(dhcp.SERVER_ID, net.server) != net.server:
        return Decision(Outcome.OTHER_SERVER)
    node_and_mac = owner(packet, source, nodes)
    client = client_of(packet)
    if node_and_mac is None:
        return _stranger(packet, source, client, nodes)
    node, mac = node_and_mac
    home = home_of(node, net)
    if home is None:
        return _not_at_home(node, mac)
    if dhcp.SERVER_ID in packet.options and packet.kind in _LATER:
        return _later(packet, net, home)  # firmware does not say again what it is
    if client is Client.SYSTEM:
        return _address_alone(packet, net, home)
    if windows.armed(node.id, now) is None:
        why = "no boot is wanted now; not answered"
        return Decision(Outcome.NOT_ARMED, notes=_ignored(node, mac, client, packet, why))
    refused = _refused_boot(packet, node, mac, client, net, home)
    return refused or _boot(packet, node, mac, client, net, home)


def _address_alone(packet: Dhcp6Packet, net: Network, home: Home) -> Decision:
    """What a running system gets: the address of a node without IPv4, others have theirs."""
    if home.subnet is None:
        return Decision(Outcome.NOT_FOR_US)
    outcome = Outcome.OFFERED if packet.kind is Kind.SOLICIT else Outcome.ACKED
    return Decision(outcome, _reply(packet, net, _options(packet, home, "")))


def _refused_boot(
    packet: Dhcp6Packet, node: Node, mac: bytes, client: Client, net: Network, home: Home
) -> Decision | None:
    """The refusal for firmware that has no boot program; None if it boots."""
    arch = architecture(packet)
    differs = wrong(node.arch, arch) if arch is not None else ""
    if differs:
        data = {"client": client.value, "arch": arch, "mac": mac_text(mac)}
        note = Note(node.id, events.WRONG_ARCHITECTURE, differs, None, data, "6", _IGNORED_EVERY_S)
        return Decision(Outcome.WRONG_ARCHITECTURE, notes=(note,))
    why = refusal(node, client, net, home)
    if why:
        return Decision(Outcome.NO_PROGRAM, notes=_ignored(node, mac, client, packet, why))
    return None


def _boot(
    packet: Dhcp6Packet, node: Node, mac: bytes, client: Client, net: Network, home: Home
) -> Decision:
    """What tells firmware, or iPXE, what to boot."""
    url = f"tftp://[{home.head}]/{UEFI_PROGRAM}" if client is Client.UEFI else ""
    if client is Client.IPXE and home.subnet is not None:
        url = f"{home.subnet.place.http_base}/{mac.hex('-')}"
    reply = _reply(packet, net, _options(packet, home, url))
    if packet.kind is not Kind.SOLICIT:
        return Decision(Outcome.ACKED, reply)
    seen = (
        f"{client.value} client {mac_text(mac)} (architecture {architecture(packet)}) asks for "
        "a boot program by IPv6"
    )
    offered = f"offered {home.address}{' and ' + url if url else ''}"
    data = {
        "client": client.value,
        "arch": architecture(packet),
        "mac": mac_text(mac),
        "ip": str(home.address),
    }
    notes = tuple(
        Note(
            node.id,
            step.kind,
            text,
            data=data,
            about=(client, mac, "6"),
            every=_STEP_EVERY_S,
            step=step,
        )
        for step, text in ((Step.DISCOVER, seen), (Step.OFFER, offered))
    )
    return Decision(Outcome.OFFERED, reply, notes)


def _not_at_home(node: Node, mac: bytes) -> Decision:
    """Of a node that has no address here: one with IPv4 says nothing by that, another one is in a
    wrong network."""
    if ":" not in node.ip or node.subnet is None:
        return Decision(Outcome.NOT_FOR_US)
    text = (
        f"{mac_text(mac)} asks for {node.ip} by IPv6 where the head is not in network "
        f"{node.subnet.name}, "
        f"{node.subnet.network}, and it gets none here (hint: look which cards are cabled where)"
    )
    data = {"mac": mac_text(mac), "ip": node.ip, "network": node.subnet.name}
    return Decision(
        Outcome.OTHER_NETWORK,
        notes=(Note(node.id, events.OTHER_NETWORK, text, None, data, every=_OTHER_EVERY_S),),
    )


def _later(packet: Dhcp6Packet, net: Network, home: Home) -> Decision:
    """Of who has an address from us. OVMF waits for an answer to its RELEASE before it starts what
    it has loaded."""
    if packet.kind is Kind.RENEW:
        return Decision(Outcome.ACKED, _reply(packet, net, _options(packet, home, "")))
    return Decision(Outcome.RELEASED, _reply(packet, net, [(dhcp.STATUS, bytes(2))]))


def refusal(node: Node, client: Client, net: Network, home: Home) -> str:
    """Why there is nothing to boot by IPv6, "" if there is."""
    if client is Client.IPXE:
        return ""
    if client is not Client.UEFI:
        return "by IPv6 there is a boot program for UEFI PXE on x86-64 only"
    if not home.head:
        return (
            f"the head has no address in {net.prefix} (hint: give its interface one, or switch "
            "PXE by IPv6 off in the firmware)"
        )
    return "with Secure Boot it must boot by IPv4" if node.secure_boot else ""


def _ignored(
    node: Node, mac: bytes, client: Client, packet: Dhcp6Packet, why: str
) -> tuple[Note, ...]:
    data = {"client": client.value, "arch": architecture(packet), "mac": mac_text(mac)}
    return (
        Note(
            node.id,
            events.IGNORED,
            f"{client.value} asks for a boot program by IPv6: {why}",
            Severity.INFO,
            data,
            "6",
            _IGNORED_EVERY_S,
        ),
    )


def _reply(packet: Dhcp6Packet, net: Network, options: list[tuple[int, bytes]]) -> bytes:
    kind = Kind.ADVERTISE if packet.kind is Kind.SOLICIT else Kind.REPLY
    who = [(dhcp.CLIENT_ID, packet.options[dhcp.CLIENT_ID]), (dhcp.SERVER_ID, net.server)]
    return dhcp.build(kind, packet.xid, who + options)


def _options(packet: Dhcp6Packet, home: Home, url: str) -> list[tuple[int, bytes]]:
    options = [(dhcp.BOOTFILE_URL, url.encode())] if url else []
    asked = packet.options.get(dhcp.IA_NA, b"")
    if len(asked) >= 12:
        times = [home.lease // 2, home.lease * 7 // 8, home.lease, home.lease]
        renew, rebind, preferred, valid = (seconds.to_bytes(4, "big") for seconds in times)
        address = dhcp.option(dhcp.IA_ADDRESS, home.address.packed + preferred + valid)
        options.insert(0, (dhcp.IA_NA, asked[:4] + renew + rebind + address))
    elif packet.kind is Kind.CONFIRM:
        options.append((dhcp.STATUS, bytes(2)))
    if home.subnet is not None:
        options += _names(home.subnet)
    return options


def _names(subnet: Subnet) -> list[tuple[int, bytes]]:
    """Whom to ask for names, and in which domain (RFC 3646)."""
    servers = b"".join(packed(server) for server in subnet.dns if ":" in server)
    labels = [label.encode() for label in subnet.domain.split(".") if label]
    domain = b"".join(bytes((len(label),)) + label for label in labels) + b"\0" if labels else b""
    return [
        (code, value)
        for code, value in ((dhcp.DNS_SERVERS, servers), (dhcp.DOMAIN_LIST, domain))
        if value
    ]
