"""What a DHCPv6 message gets. Pure, as pxe.dhcp.decision, whose rules hold here too: only a node whose boot window is open is told
what to boot. Running systems get no answer at all: they make their addresses of the router advertisements.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from layercake.kraken.events import Severity
from pxe import events
from pxe.dhcp.decision import Outcome
from pxe.machine import FIRMWARE, Client, wrong
from pxe.nodes import Node, Nodes, mac_text
from pxe.notes import Note
from pxe.paths.ipxe import UEFI_PROGRAM
from pxe.six import packet as dhcp
from pxe.six.packet import Dhcp6Packet, Kind
from pxe.windows import Step, Windows

_STEP_EVERY_S = 1.0
_IGNORED_EVERY_S = 10.0
_LATER = (Kind.RENEW, Kind.RELEASE, Kind.DECLINE)


@dataclass(frozen=True, slots=True)
class Network:
    """What all answers have in common. `server` is our DUID, `prefix` the /64 of the nodes, `address` the head's in it or "",
    `lease` in seconds."""

    server: bytes
    address: str
    prefix: str
    lease: int


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
    """The node that a message comes from, and its card's MAC address: that of the link-local address, or of the identifier."""
    macs = (dhcp.mac_of_address(ipaddress.IPv6Address(source.partition("%")[0]).packed),
            dhcp.mac_of_duid(packet.options.get(dhcp.CLIENT_ID, b"")))
    return next(((node, mac) for mac in macs if mac is not None and (node := nodes.by_mac(mac)) is not None), None)


def decide(packet: Dhcp6Packet, source: str, nodes: Nodes, windows: Windows, net: Network, now: float) -> Decision:
    """What to do about one message from an address at `now`. Raises Dhcp6Error."""
    if packet.kind in (Kind.ADVERTISE, Kind.REPLY) or dhcp.CLIENT_ID not in packet.options:
        return Decision(Outcome.NOT_FOR_US)
    if packet.options.get(dhcp.SERVER_ID, net.server) != net.server:
        return Decision(Outcome.OTHER_SERVER)
    found, client = owner(packet, source, nodes), client_of(packet)
    if found is None:
        return Decision(Outcome.UNKNOWN_MAC)  # it is told when it asks by IPv4
    node, mac = found
    if dhcp.SERVER_ID in packet.options and packet.kind in _LATER:  # firmware does not say again what it is
        return _later(packet, net, node)
    if client is Client.SYSTEM:
        return Decision(Outcome.NOT_FOR_US)
    why = refusal(node, client, net)
    if windows.armed(node.id, now) is None:
        return Decision(Outcome.NOT_ARMED, notes=_ignored(node, mac, client, packet, "no boot is wanted now; not answered"))
    if differs := wrong(node.arch, architecture(packet)) if architecture(packet) is not None else "":
        data = {"client": client.value, "arch": architecture(packet), "mac": mac_text(mac)}
        return Decision(Outcome.WRONG_ARCHITECTURE, notes=(
            Note(node.id, events.WRONG_ARCHITECTURE, differs, None, data, "6", _IGNORED_EVERY_S),))
    if why:
        return Decision(Outcome.NO_PROGRAM, notes=_ignored(node, mac, client, packet, why))
    address = dhcp.address_for(net.prefix, node.ip)
    url = f"tftp://[{net.address}]/{UEFI_PROGRAM}" if client is Client.UEFI else ""
    reply = _reply(packet, net, _options(packet, net, address, url))
    if packet.kind is not Kind.SOLICIT:
        return Decision(Outcome.ACKED, reply)
    seen = f"{client.value} client {mac_text(mac)} (architecture {architecture(packet)}) asks for a boot program by IPv6"
    data = {"client": client.value, "arch": architecture(packet), "mac": mac_text(mac), "ip": str(address)}
    steps = ((Step.DISCOVER, seen), (Step.OFFER, f"offered {address}{' and ' + url if url else ''}"))
    about = (client, mac, "6")
    return Decision(Outcome.OFFERED, reply, tuple(
        Note(node.id, step.kind, text, data=data, about=about, every=_STEP_EVERY_S, step=step) for step, text in steps))


def _later(packet: Dhcp6Packet, net: Network, node: Node) -> Decision:
    """Of who has an address from us. OVMF waits for an answer to its RELEASE before it starts what it has loaded."""
    if packet.kind is Kind.RENEW:
        return Decision(Outcome.ACKED, _reply(packet, net, _options(packet, net, dhcp.address_for(net.prefix, node.ip), "")))
    return Decision(Outcome.RELEASED, _reply(packet, net, [(dhcp.STATUS, bytes(2))]))


def refusal(node: Node, client: Client, net: Network) -> str:
    """Why there is nothing to boot by IPv6, "" if there is."""
    if client is Client.IPXE:
        return ""
    if client is not Client.UEFI:
        return "by IPv6 there is a boot program for UEFI PXE on x86-64 only"
    if not net.address:
        return f"the head has no address in {net.prefix} (hint: give its interface one, or switch PXE by IPv6 off in the firmware)"
    return "with Secure Boot it must boot by IPv4" if node.secure_boot else ""


def _ignored(node: Node, mac: bytes, client: Client, packet: Dhcp6Packet, why: str) -> tuple[Note, ...]:
    data = {"client": client.value, "arch": architecture(packet), "mac": mac_text(mac)}
    return (Note(node.id, events.IGNORED, f"{client.value} asks for a boot program by IPv6: {why}", Severity.INFO, data, "6",
                 _IGNORED_EVERY_S),)


def _reply(packet: Dhcp6Packet, net: Network, options: list[tuple[int, bytes]]) -> bytes:
    kind = Kind.ADVERTISE if packet.kind is Kind.SOLICIT else Kind.REPLY
    who = [(dhcp.CLIENT_ID, packet.options[dhcp.CLIENT_ID]), (dhcp.SERVER_ID, net.server)]
    return dhcp.build(kind, packet.xid, who + options)


def _options(packet: Dhcp6Packet, net: Network, address: ipaddress.IPv6Address, url: str) -> list[tuple[int, bytes]]:
    found = [(dhcp.BOOTFILE_URL, url.encode())] if url else []
    asked = packet.options.get(dhcp.IA_NA, b"")
    if len(asked) >= 12:
        times = [net.lease // 2, net.lease * 7 // 8, net.lease, net.lease]
        renew, rebind, preferred, valid = (seconds.to_bytes(4, "big") for seconds in times)
        given = dhcp.option(dhcp.IA_ADDRESS, address.packed + preferred + valid)
        found.insert(0, (dhcp.IA_NA, asked[:4] + renew + rebind + given))
    elif packet.kind is Kind.CONFIRM:
        found.append((dhcp.STATUS, bytes(2)))
    return found
