"""Other DHCP servers than the head that answer nodes: noticed by what nodes choose, which they
broadcast, and by answers that are broadcast. What is heard is anybody's word: of so many servers,
each is told once in a while for a node."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from pxe import events
from pxe.dhcp.relay import dotted
from pxe.nodes import Nodes, mac_text
from pxe.notes import Note, Recorder
from pxe.packets import dhcp
from pxe.packets.dhcp import DhcpPacket, MessageType
from pxe.settings import Settings, packed

MOST = 16
"""Servers that are told of; a flood of made-up ones is only counted."""
_EVERY_S = 3600.0
_ETHERNET = struct.Struct("!6s6sH")
_IPV4 = 0x0800
_UDP_PROTOCOL = 17
_DOES = {
    MessageType.OFFER: "is offered by",
    MessageType.ACK: "is given by",
    MessageType.NAK: "is refused by",
}


@dataclass(frozen=True, slots=True)
class ForeignAnswer:
    """A DHCP answer of another machine: the MAC address and the IPv4 address that it came from, and
    what it says."""

    mac: bytes
    source: bytes
    packet: DhcpPacket


def parse_answer_frame(frame: bytes) -> ForeignAnswer | None:
    """The DHCP answer in an Ethernet frame, None for any other frame. Raises DhcpError for a DHCP
    packet that is not sound."""
    if len(frame) < _ETHERNET.size + 20:
        return None
    _, mac, kind = _ETHERNET.unpack_from(frame)
    at = _ETHERNET.size
    length = (frame[at] & 0x0F) * 4
    if kind != _IPV4 or frame[at] >> 4 != 4 or length < 20 or frame[at + 9] != _UDP_PROTOCOL:
        return None
    packet = dhcp.parse(frame[at + length + 8 :])
    return ForeignAnswer(mac, frame[at + 12 : at + 16], packet) if packet.op == dhcp.REPLY else None


class ForeignServers:
    """Which other servers there are. The head's own, and those that the settings name, are none."""

    def __init__(self, settings: Settings, nodes: Nodes, recorder: Recorder) -> None:
        self._expected = settings.dhcp_servers | {packed(own.address) for own in settings.heads}
        self._anyone = (
            settings.dhcp == "proxy" and not settings.dhcp_servers
        )  # then it is not known which are the site's
        self._nodes = nodes
        self._counters = recorder.counters
        self._macs: dict[bytes, str] = {}

    def notes_of_request(self, packet: DhcpPacket) -> tuple[Note, ...]:
        """What a DHCPREQUEST says of the server that it is for (RFC 2131 section 4.3.2)."""
        server = packet.options.get(dhcp.SERVER_ID)
        if (
            server is None
            or packet.message_type != MessageType.REQUEST
            or packet.giaddr != dhcp.NO_ADDRESS
        ):
            return ()
        return self._note(
            packet.mac,
            server,
            "",
            f"{dotted(packet.options.get(dhcp.REQUESTED_IP, packet.ciaddr))} is taken from",
        )

    def notes_of_answer(self, answer: ForeignAnswer) -> tuple[Note, ...]:
        """What an answer that everybody hears says of who sent it."""
        packet = answer.packet
        if packet.message_type not in _DOES or packet.giaddr != dhcp.NO_ADDRESS:
            return ()
        kind = MessageType(packet.message_type)
        what = "an address" if kind is MessageType.NAK else "something to boot"
        what = what if packet.yiaddr == dhcp.NO_ADDRESS else dotted(packet.yiaddr)
        server = packet.options.get(dhcp.SERVER_ID, answer.source)
        return self._note(packet.mac, server, mac_text(answer.mac), f"{what} {_DOES[kind]}")

    def _note(self, client: bytes, server: bytes, mac: str, what: str) -> tuple[Note, ...]:
        node = self._nodes.by_mac(client)
        if node is None or self._anyone or server in self._expected:
            return ()
        self._counters["dhcp.other-servers"] += 1
        if server not in self._macs and len(self._macs) >= MOST:
            return ()
        mac = self._macs[server] = mac or self._macs.get(server, "")
        known = f" (MAC address {mac})" if mac else ""
        text = (
            f"{what} DHCP server {dotted(server)}{known}, which is not expected here (hint: switch "
            "it off, keep it from this "
            "network, or name it in boot.dhcp_servers)"
        )
        data = {"server": dotted(server), "server_mac": mac, "mac": mac_text(client)}
        return (Note(node.id, events.OTHER_SERVER, text, None, data, server, _EVERY_S),)
