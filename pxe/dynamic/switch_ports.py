"""Where machines are by what switches and relays add to their DHCP packets (option 82, RFC 3046):
what was heard last of whom, and who asks for something to boot from where another machine is to be.

Only firmware claims a place: a BMC may share its machine's port, and asks for an address as a
system does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from layercake.moduleapi.strangers import option82
from pxe import events
from pxe.dhcp.relay import MOST, MULTICAST, Relay, dotted, parts_of
from pxe.machine import Client, client_of
from pxe.nodes import Node, Nodes, mac_text
from pxe.notes import Note
from pxe.packets import dhcp
from pxe.packets.dhcp import DhcpPacket, MessageType

MOST_STRANGERS = 4096
"""Machines of which is kept where they were heard, though no node has their card."""
_EVERY_S = 30.0
_LONGEST = 64
"""Bytes of a circuit or a remote identifier that can be a place: longer ones are shown cut off."""
_A_SECOND = 100.0
_AT_ONCE = 500.0
"""Packets of unknown machines that are read in a second in the long run, and at once."""
_NOWHERE = ("", "", "")
_WORTH = (MessageType.DISCOVER, MessageType.REQUEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class PortSighting:
    """A machine that was heard: the relay, the port and the switch that its packet named, "" for
    what was not named, and how many seconds ago that was."""

    relay: str = ""
    circuit: str = ""
    remote: str = ""
    seconds_ago: float = 0.0


def switch_port_of(packet: DhcpPacket) -> tuple[str, str, str] | None:
    """The relay, the circuit and the remote identifier of a packet; None for one that names no
    circuit. A switch that adds them to what goes through it (DHCP snooping) is no relay: then that
    is ""."""
    option = packet.options.get(dhcp.RELAY_AGENT, b"")
    if not option or len(option) > MOST or packet.giaddr[0] >= MULTICAST:
        return None
    relay = Relay(packet.giaddr, packet.giaddr, None, parts_of(option))
    if not relay.circuit or any(len(part) > _LONGEST for part in relay.parts.values()):
        return None
    return (
        "" if packet.giaddr == dhcp.NO_ADDRESS else dotted(packet.giaddr),
        relay.circuit,
        relay.remote,
    )


class SwitchPorts:
    """The places of the inventory's nodes, and where machines were heard. `clock` is in seconds."""

    def __init__(self, nodes: Nodes, clock: Callable[[], float]) -> None:
        self._nodes = nodes
        self._clock = clock
        self._began = clock()
        self._room = _AT_ONCE
        self._filled = self._began
        self._of: dict[str, str] = {}
        self._at: dict[str, str] = {}
        self._own: dict[str, tuple[tuple[str, str, str], float]] = {}
        self._strangers: dict[bytes, tuple[tuple[str, str, str], float]] = {}

    def update_node(self, node: Node, place: object) -> None:
        """A node is new or has changed: the place that it has by the inventory
        (moduleapi.strangers.option82), "" for none."""
        self._drop(node.id)
        if isinstance(place, str) and place:
            self._of[node.id] = place
            self._at[place] = node.id
        for mac in node.macs:  # who was a stranger is the node now, and was heard as that
            if (sighting := self._strangers.pop(mac, None)) is not None:
                self._own[node.id] = sighting

    def remove_node(self, node: str) -> None:
        """A node is gone."""
        self._drop(node)
        self._own.pop(node, None)

    def _drop(self, node: str) -> None:
        place = self._of.pop(node, "")
        if self._at.get(place) == node:
            del self._at[place]

    def admits(self) -> bool:
        """Whether a packet of an unknown machine is worth reading: where a node has such a place, a
        few in a second."""
        if not self._at:
            return False
        now = self._clock()
        self._room = min(_AT_ONCE, self._room + (now - self._filled) * _A_SECOND)
        self._filled = now
        if self._room < 1.0:
            return False
        self._room -= 1.0
        return True

    def watch(self, packet: DhcpPacket) -> tuple[Note, ...]:
        """A packet has come. What is to be told of it: that it claims the place of a node."""
        if packet.message_type not in _WORTH:
            return ()
        mac = packet.mac
        now = self._clock()
        where = switch_port_of(packet)
        node = self._nodes.by_mac(mac)
        if node is not None and not node.stranger:
            # renewals go past the relay
            before = self._own.get(node.id, (_NOWHERE,))[0]
            self._own[node.id] = (where or before, now)
            return ()
        if where is None:
            return ()
        self._strangers.pop(mac, None)
        while len(self._strangers) >= MOST_STRANGERS:
            del self._strangers[next(iter(self._strangers))]
        self._strangers[mac] = where, now
        if client_of(packet) in (Client.SYSTEM, Client.OTHER) or mac[0] & 1 or not any(mac):
            return ()
        owner = self._node_at(where)
        return () if owner is None else (self._claim(owner.id, mac_text(mac), where, now),)

    def _node_at(self, where: tuple[str, str, str]) -> Node | None:
        """The node whose place by the inventory a switch port is, with or without the relay."""
        owner = self._at.get(option82(*where)) or self._at.get(option82("", *where[1:]))
        return None if owner is None else self._nodes.by_id(owner)

    def _claim(self, node: str, mac: str, where: tuple[str, str, str], now: float) -> Note:
        text = (
            f"{mac}, which no node has, asks for something to boot where this node is to be: "
            f"{option82(*where)}"
        )
        data = {
            "mac": mac,
            "relay": where[0],
            "circuit": where[1],
            "remote": where[2],
            "own_s": round(self._quiet(node, now), 1),
        }
        return Note(node, events.PLACE_CLAIMED, text, None, data, mac, _EVERY_S)

    def _quiet(self, node: str, now: float) -> float:
        """For how many seconds nothing came of a node's own cards, as far as this service can
        know."""
        return now - (self._own[node][1] if node in self._own else self._began)

    def sightings(self, macs: Iterable[bytes]) -> dict[str, PortSighting]:
        """What was heard of cards, by their MAC addresses. Of a node's that was not heard yet,
        since when nothing came."""
        now = self._clock()
        sightings = dict[str, PortSighting]()
        for mac in macs:
            node = self._nodes.by_mac(mac)
            one = self._strangers.get(mac)
            if node is not None and not node.stranger:
                one = self._own.get(node.id, (_NOWHERE, self._began))
            if one is not None:
                (relay, circuit, remote), at = one
                sightings[mac_text(mac)] = PortSighting(
                    relay=relay, circuit=circuit, remote=remote, seconds_ago=round(now - at, 1)
                )
        return sightings
