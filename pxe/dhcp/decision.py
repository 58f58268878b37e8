"""What a DHCP packet gets: a reply, or a reason why not. Pure: packet, node table, windows and the
time are arguments.

A node gets its address in its own network only: on the head's link if that is where it belongs, or
by a relay that speaks for it.

Every address is a reservation, so it is settled when it is offered; two clients that ask at the
same instant cannot be offered one address (iPXE that is NAKed for that gives up for good). A known
node gets its address at any time, but a boot program only while its boot window is open: firmware
without an answer goes on to the next boot device or tries again, which is what a node should do
that nobody wants booted.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from layercake.kraken.events import Severity
from pxe import events
from pxe.dhcp.outcome import CLIENTS_SEND, notes_on
from pxe.dhcp.outcome import Outcome as Outcome
from pxe.dhcp.relay import MOST, MULTICAST, dotted, relay_of
from pxe.dhcp.reply import reply_for
from pxe.machine import Client, architecture, client_of, firmware_of, wrong
from pxe.nodes import Firmware, Node, Nodes, mac_text
from pxe.notes import Note
from pxe.packets import dhcp
from pxe.packets.dhcp import DhcpPacket, MessageType
from pxe.settings import Settings, packed
from pxe.subnet import Subnet, own
from pxe.windows import Step, Windows

NO_SHIM = "it boots with Secure Boot, but shim and GRUB are not there"
INSTALL_SHIM = "install shim-signed and grub-efi-amd64-signed, and restart the head"
_STEP_EVERY_S = 1.0
_IGNORED_EVERY_S = 10.0
_STRANGER_EVERY_S = 60.0


class Way(enum.Enum):
    """How a reply reaches its client (RFC 2131 section 4.1)."""

    RELAY = "to the relay agent"
    BROADCAST = "to everyone on the link"
    UNICAST = "to an address that the client already answers for"
    FRAME = "in a frame to the client's MAC: it has no address yet and does not answer ARP"


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome; with a reply also the way and the four bytes of the address it goes to, and of
    the head's that it comes from."""

    outcome: Outcome
    reply: DhcpPacket | None = None
    way: Way = Way.BROADCAST
    address: bytes = b"\xff\xff\xff\xff"
    notes: tuple[Note, ...] = ()
    source: bytes = dhcp.NO_ADDRESS


class Common:
    """What all packets of one of the head's interfaces have in common. `own` is the head's first
    network, that of nodes without one of their own; `here` are those on this interface (the first
    one if none is said), `apart`: they are networks, as that of a head on loopback is not.
    `servers` are all of the head's addresses. `signed`: boot programs for Secure Boot are there."""

    def __init__(self, settings: Settings, interface: str = "", *, signed: bool = False) -> None:
        self.signed = signed
        self.own = own(settings)
        self.apart = not settings.loopback
        self.here = tuple(
            head.network
            for head in settings.heads
            if head.interface == (interface or settings.interface)
        )
        self.servers = frozenset(
            packed(head.address) for head in settings.heads if head.network.version == 4
        )


def send(
    outcome: Outcome,
    packet: DhcpPacket,
    reply: DhcpPacket,
    source: bytes,
    notes: tuple[Note, ...] = (),
) -> Decision:
    """Chooses the way (RFC 2131 section 4.1)."""
    if packet.giaddr != dhcp.NO_ADDRESS:
        return Decision(outcome, reply, Way.RELAY, packet.giaddr, notes, source)
    if outcome is Outcome.NAKED:
        return Decision(outcome, reply, notes=notes, source=source)
    if packet.ciaddr != dhcp.NO_ADDRESS:
        return Decision(outcome, reply, Way.UNICAST, packet.ciaddr, notes, source)
    if packet.flags & dhcp.BROADCAST_FLAG:
        return Decision(outcome, reply, notes=notes, source=source)
    return Decision(outcome, reply, Way.FRAME, reply.yiaddr, notes, source)


def _step(node: Node, step: Step, client: Client, packet: DhcpPacket, text: str) -> Note:
    data = {
        "client": client.value,
        "arch": architecture(packet),
        "mac": mac_text(packet.mac),
        "ip": node.ip,
        **_by(packet),
    }
    return Note(
        node.id,
        step.kind,
        text,
        data=data,
        about=(client, packet.mac),
        every=_STEP_EVERY_S,
        step=step,
    )


def _by(packet: DhcpPacket) -> dict[str, str]:
    """The relay that a packet came by, for people."""
    relay = relay_of(packet)
    if relay is None:
        return {}
    values = {
        "circuit": relay.circuit,
        "remote": relay.remote,
        "link": "" if relay.link == relay.giaddr else dotted(relay.link),
    }
    return {"relay": dotted(relay.giaddr), **{name: text for name, text in values.items() if text}}


def _elsewhere(packet: DhcpPacket, node: Node, nodes: Nodes, net: Common) -> Decision | None:
    """The decision on a packet from another network than the node's own, None for one that is where
    it belongs. What comes straight from an address of the node itself has been routed here: it
    renews its lease."""
    relay = relay_of(packet)
    subnet = node.subnet or net.own
    if relay is None:
        if not net.apart or subnet.network in net.here or packet.ciaddr == node.packed_ip:
            return None
        where = f"on the head's own link, {' and '.join(map(str, net.here))}"
    else:
        if node.subnet is not None and subnet.serves_relay(relay.link):
            return None
        heard_on = nodes.subnet_of(relay.link)
        if node.subnet is None and (heard_on is None or heard_on.network == net.own.network):
            return None
        where = (
            f"by the relay {dotted(relay.giaddr)}, which speaks for {_named(heard_on, relay.link)}"
        )
    text = (
        f"{mac_text(packet.mac)} asks for {node.ip} {where}; that address is of "
        f"{subnet.name or 'the network of the head'}, "
        f"{subnet.network}, and it gets none here (hint: look which cards are cabled where, and "
        "for each relay's `relays`)"
    )
    data = {"mac": mac_text(packet.mac), "ip": node.ip, "network": subnet.name, **_by(packet)}
    return Decision(
        Outcome.OTHER_NETWORK,
        notes=(Note(node.id, events.OTHER_NETWORK, text, None, data, every=_STRANGER_EVERY_S),),
    )


def _named(found: Subnet | None, link: bytes) -> str:
    return (
        f"network {found.name}"
        if found is not None
        else f"{dotted(link)}, a network that no node here is in"
    )


def _firmware_note(node: Node, client: Client, packet: DhcpPacket) -> tuple[Note, ...]:
    bios = client is Client.BIOS or (client is Client.IPXE and architecture(packet) in (None, 0))
    if bios is (node.firmware is Firmware.BIOS):
        return ()
    arch = architecture(packet)
    text = (
        f"the inventory says {node.firmware.value}, {client.value} with architecture {arch} "
        "asks; answered as what it is"
    )
    return (Note(node.id, events.FIRMWARE_DIFFERS, text, None, {"arch": arch}, every=60.0),)


def unservable(node: Node, client: Client, net: Common) -> str:
    """Why there is no boot program for a client, "" if there is one."""
    if client is Client.OTHER:
        return "there is no boot program for it"
    if not node.secure_boot or client not in (Client.UEFI, Client.UEFI_HTTP):
        return ""  # iPXE that runs has not been kept from it
    return "" if net.signed else f"{NO_SHIM} ({INSTALL_SHIM})"


def _refuse_boot(
    node: Node, client: Client, packet: DhcpPacket, nodes: Nodes, why: str
) -> Decision:
    """Silence for firmware, and a line in the history that says why: `why` it cannot boot, "" if no
    boot is wanted."""
    data = {"client": client.value, "arch": architecture(packet), "mac": mac_text(packet.mac)}
    run = nodes.run(node.id)
    if why and wrong(node.arch, architecture(packet)):
        return Decision(
            Outcome.WRONG_ARCHITECTURE,
            notes=(
                Note(node.id, events.WRONG_ARCHITECTURE, why, None, data, "", _IGNORED_EVERY_S),
            ),
        )
    if why:
        text = f"{client.value} (architecture {data['arch']}): {why}"
        return Decision(
            Outcome.NO_PROGRAM,
            notes=(
                Note(
                    node.id, events.IGNORED, text, Severity.WARNING, data, "arch", _IGNORED_EVERY_S
                ),
            ),
        )
    if run in ("SYNC", "ERROR"):
        text = (
            f"{client.value} asks for a boot program, but the node should be running "
            f"(run={run}); not answered"
        )
        return Decision(
            Outcome.NOT_ARMED,
            notes=(Note(node.id, events.UNWANTED, text, None, data, "", _IGNORED_EVERY_S),),
        )
    text = f"{client.value} asks for a boot program, but no boot is wanted now; not answered"
    return Decision(
        Outcome.NOT_ARMED,
        notes=(Note(node.id, events.IGNORED, text, None, data, "", _IGNORED_EVERY_S),),
    )


def _requested(packet: DhcpPacket) -> bytes | None:
    """The address that a DHCPREQUEST is about, in whichever of its four forms (RFC 2131 section
    4.3.2); None: in none."""
    if dhcp.REQUESTED_IP in packet.options:  # selecting, and init-reboot
        return packet.options[dhcp.REQUESTED_IP]
    return packet.ciaddr if packet.ciaddr != dhcp.NO_ADDRESS else None  # renewing, and rebinding


def _stranger(packet: DhcpPacket) -> Decision:
    mac = mac_text(packet.mac)
    note = Note(
        "",
        events.UNKNOWN_MAC,
        f"{mac} asks for an address and is not in the inventory",
        None,
        {"mac": mac, "client": client_of(packet).value, "arch": architecture(packet)},
        mac,
        _STRANGER_EVERY_S,
    )
    return Decision(Outcome.UNKNOWN_MAC, notes=(note,))


def _given_back(kind: int, node: Node) -> Decision:
    """DECLINE and RELEASE get no reply. A reservation stays; that something else uses the address
    is for people to know."""
    if kind == MessageType.RELEASE:
        return Decision(Outcome.RELEASED)
    note = Note(
        node.id,
        events.DHCP_DECLINED,
        f"the node says that {node.ip} is used by something else on the network",
        None,
        {"ip": node.ip},
        every=_STRANGER_EVERY_S,
    )
    return Decision(Outcome.DECLINED, notes=(note,))


def _overridden(packet: DhcpPacket) -> bool:
    """Whether the client takes the relay for its server, as the relay wants it to (RFC 5107)."""
    relay = relay_of(packet)
    return relay is not None and relay.server == packet.options[dhcp.SERVER_ID]


def _passed_over(packet: DhcpPacket, net: Common) -> Outcome | None:
    """What becomes of a packet that is not answered, whoever sent it; None for any other."""
    if packet.op != dhcp.REQUEST or packet.htype != dhcp.ETHERNET or packet.hlen != 6:
        return Outcome.NOT_FOR_US
    if packet.message_type not in CLIENTS_SEND:
        return Outcome.NOT_FOR_US
    if len(packet.options.get(dhcp.RELAY_AGENT, b"")) > MOST or packet.giaddr[0] >= MULTICAST:
        return Outcome.NOT_FOR_US
    if packet.options.get(dhcp.SERVER_ID) not in (None, *net.servers) and not _overridden(packet):
        return Outcome.OTHER_SERVER
    return None


def _notes_on_link(packet: DhcpPacket, outcome: Outcome, nodes: Nodes) -> tuple[Note, ...]:
    """What is to be told of a packet that comes by another link than Ethernet."""
    if packet.htype == dhcp.ETHERNET and packet.hlen == 6:
        return ()
    return notes_on(packet, outcome, nodes)


def decide(packet: DhcpPacket, nodes: Nodes, windows: Windows, net: Common, now: float) -> Decision:
    """What to do about one packet that came in at `now`."""
    passed_over = _passed_over(packet, net)
    if passed_over is not None:
        return Decision(passed_over, notes=_notes_on_link(packet, passed_over, nodes))
    node = nodes.by_mac(packet.mac)
    if node is None:
        return _stranger(packet)
    if ":" in node.ip:
        return Decision(Outcome.NO_IPV4)  # iPXE goes on by IPv6 when nobody answers
    if packet.message_type in (MessageType.DECLINE, MessageType.RELEASE):
        return _given_back(packet.message_type, node)
    if (elsewhere := _elsewhere(packet, node, nodes, net)) is not None:
        return elsewhere
    client = client_of(packet)
    if client is Client.IPXE and not node.card_ipxe and not windows.carries(node.id):
        client = firmware_of(packet)  # the card's own
    notes: tuple[Note, ...] = ()
    if client is not Client.SYSTEM:
        refused = _refused_boot(packet, node, client, nodes, windows, net, now)
        if refused is not None:
            return refused
        notes = _firmware_note(node, client, packet)
    return _answer(packet, node, client, net, notes)


def _refused_boot(
    packet: DhcpPacket,
    node: Node,
    client: Client,
    nodes: Nodes,
    windows: Windows,
    net: Common,
    now: float,
) -> Decision | None:
    """The refusal for firmware that is not to boot now or has no boot program; None if it boots."""
    if windows.armed(node.id, now) is None:
        return _refuse_boot(node, client, packet, nodes, "")
    why = wrong(node.arch, architecture(packet)) or unservable(node, client, net)
    return _refuse_boot(node, client, packet, nodes, why) if why else None


def _answer(
    packet: DhcpPacket, node: Node, client: Client, net: Common, notes: tuple[Note, ...]
) -> Decision:
    """The answer to a node that is where it belongs."""
    subnet = node.subnet or net.own
    source = subnet.place.packed
    if packet.message_type == MessageType.DISCOVER:
        return _offer(packet, node, client, subnet, notes)
    if packet.message_type == MessageType.INFORM:
        wanted = node.packed_ip if packet.ciaddr != dhcp.NO_ADDRESS else None
    else:
        wanted = _requested(packet)
    if wanted is None:
        return Decision(Outcome.NOT_FOR_US)
    if wanted == node.packed_ip:
        reply = reply_for(packet, MessageType.ACK, node, client, subnet)
        return send(Outcome.ACKED, packet, reply, source, notes)
    reply = reply_for(packet, MessageType.NAK, node, client, subnet)
    text = f"the node asked for {dotted(wanted)}, its address is {node.ip}"
    note = Note(node.id, events.DHCP_REFUSED, text, None, {"ip": node.ip}, every=_IGNORED_EVERY_S)
    return send(Outcome.NAKED, packet, reply, source, (note,))


def _offer(
    packet: DhcpPacket, node: Node, client: Client, subnet: Subnet, notes: tuple[Note, ...]
) -> Decision:
    reply = reply_for(packet, MessageType.OFFER, node, client, subnet)
    if client is not Client.SYSTEM:
        seen = (
            f"{client.value} client {mac_text(packet.mac)} (architecture "
            f"{architecture(packet)}) asks for a boot program"
        )
        offered = f"offered {node.ip} and {reply.options[dhcp.BOOT_FILE].decode()}"
        notes += (
            _step(node, Step.DISCOVER, client, packet, seen),
            _step(node, Step.OFFER, client, packet, offered),
        )
    return send(Outcome.OFFERED, packet, reply, subnet.place.packed, notes)
