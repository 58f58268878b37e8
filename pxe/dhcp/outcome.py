"""What becomes of a packet, and why one gets no answer, for people: firmware that is nearly right
would else be met with silence, and nobody would know. Pure.

Each reason of a machine is told once a minute. Nothing is told of packets that are due no answer:
those of servers, and those by which an address is given back.
"""

from __future__ import annotations

import enum

from layercake.kraken.events import Severity
from pxe import events
from pxe.dhcp.relay import MOST, MULTICAST, dotted
from pxe.nodes import Nodes, mac_text
from pxe.notes import Note
from pxe.packets import dhcp
from pxe.packets.dhcp import DhcpPacket, MessageType


class Outcome(enum.Enum):
    """What became of a packet; the value is the name of its counter."""

    OFFERED = "offered"
    ACKED = "acked"
    NAKED = "naked"
    RELEASED = "released"
    DECLINED = "declined"
    UNKNOWN_MAC = "unknown-mac"
    NOT_ARMED = "not-armed"
    NO_PROGRAM = "no-program"
    WRONG_ARCHITECTURE = "wrong-architecture"
    NO_IPV4 = "no-ipv4"
    OTHER_SERVER = "other-server"
    NOT_FOR_US = "not-for-us"
    OTHER_NETWORK = "other-network"
    POOL_FULL = "pool-full"
    NOT_TOLD = "not-told"


CLIENTS_SEND = frozenset(
    {
        MessageType.DISCOVER,
        MessageType.REQUEST,
        MessageType.DECLINE,
        MessageType.RELEASE,
        MessageType.INFORM,
    }
)
"""The kinds of messages that clients send."""

EVERY_S = 60.0
_ADDRESS = slice(28, 34)
_NEVER_ANSWERED = frozenset({Outcome.RELEASED, Outcome.DECLINED, Outcome.POOL_FULL})


def notes_on(packet: DhcpPacket, outcome: Outcome, nodes: Nodes) -> tuple[Note, ...]:
    """What is to be told of a packet that got no answer and of which nothing else is told."""
    why = _why(packet, outcome)
    if not why:
        return ()
    address = mac_of(packet)
    node = nodes.by_mac(address)
    if node is None:
        return (note_on_stranger(address, why),) if outcome is Outcome.NOT_FOR_US else ()
    severity = None if outcome is Outcome.NOT_FOR_US else Severity.INFO
    text = f"{mac_text(address)} gets no answer: {why}"
    data = {"mac": mac_text(address), "why": outcome.value}
    return (Note(node.id, events.UNANSWERED, text, severity, data, outcome, EVERY_S),)


def notes_on_malformed(data: bytes, why: str, nodes: Nodes) -> tuple[Note, ...]:
    """What is to be told of bytes that are no DHCP packet; nothing where they do not even say whose
    they are."""
    return notes_on_unreadable(data[_ADDRESS], why, nodes)


def notes_on_unreadable(address: bytes, why: str, nodes: Nodes) -> tuple[Note, ...]:
    """What is to be told of a packet that cannot be read, from a machine with a MAC address."""
    if len(address) < 6 or not any(address):
        return ()
    node = nodes.by_mac(address)
    if nodes.may_come(node):
        return ()
    reason = f"its packet cannot be read: {why}"
    if node is None:
        return (note_on_stranger(address, reason),)
    text = f"{mac_text(address)} gets no answer: {reason}"
    about = {"mac": mac_text(address), "why": "malformed"}
    return (Note(node.id, events.UNANSWERED, text, None, about, "malformed", EVERY_S),)


def mac_of(packet: DhcpPacket) -> bytes:
    """The Ethernet address that a machine is known by. That of an InfiniBand port is in its GUID:
    the first and the last three bytes, as the card itself makes it."""
    guid = packet.port_guid
    if guid and packet.hlen != 6:
        return guid[:3] + guid[5:]
    return packet.mac


def note_on_stranger(address: bytes, why: str) -> Note:
    """That a machine which no inventory knows gets no answer, and why."""
    mac = mac_text(address)
    text = f"{mac}, which is not in the inventory, gets no answer: {why}"
    return Note("", events.UNKNOWN_MAC, text, None, {"mac": mac}, mac, EVERY_S)


def _why(packet: DhcpPacket, outcome: Outcome) -> str:
    """Why a packet got no answer, "" if none is due."""
    if packet.op != dhcp.REQUEST or outcome in _NEVER_ANSWERED:
        return ""
    if outcome is Outcome.NO_IPV4:
        return "it asks by IPv4, and its address is of IPv6; firmware goes on by IPv6"
    if outcome is Outcome.OTHER_SERVER:
        server = packet.options.get(dhcp.SERVER_ID, b"")
        return f"it asks the DHCP server {dotted(server)}, which is not this head"
    return _why_not_for_us(packet) if outcome is Outcome.NOT_FOR_US else ""


def _why_not_for_us(packet: DhcpPacket) -> str:
    if packet.htype == dhcp.INFINIBAND:
        return (
            "it asks by InfiniBand (hardware type 32"
            + (f", port GUID {packet.port_guid.hex(':')}" if packet.port_guid else "")
            + "), and there is no boot path for that (hint: boot it by an Ethernet port, of this "
            "card or of another)"
        )
    if packet.htype != dhcp.ETHERNET or packet.hlen != 6:
        return (
            f"its hardware address is of type {packet.htype} and {packet.hlen} bytes long, and "
            "only Ethernet is served"
        )
    if packet.message_type not in CLIENTS_SEND:
        kind = packet.message_type
        return "it asks by BOOTP, without DHCP" if not kind else f"its message is of type {kind}"
    if len(packet.options.get(dhcp.RELAY_AGENT, b"")) > MOST:
        return f"what its relay says (option 82) is longer than {MOST} bytes"
    if packet.giaddr[0] >= MULTICAST:
        return f"its relay has the address {dotted(packet.giaddr)}, which is no machine's"
    asks_for = dhcp.REQUESTED_IP in packet.options or packet.ciaddr != dhcp.NO_ADDRESS
    if packet.message_type == MessageType.REQUEST and not asks_for:
        return "it requests an address and does not say which"
    return ""
