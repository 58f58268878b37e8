"""What a machine that is not in the inventory gets where its network has addresses for guests: one
of them for a while (RFC 2131), and never anything to boot. All that it may change is the pool of
its network; packet, networks and the time are arguments."""

from __future__ import annotations

from dataclasses import replace

from pxe import events
from pxe.dhcp.decision import Common, Decision, Outcome, send
from pxe.dhcp.relay import dotted, relay_of
from pxe.dhcp.reply import reply_to
from pxe.dynamic.networks import DynamicNetwork, DynamicNetworks, called
from pxe.dynamic.pool import DynamicClient
from pxe.nodes import mac_text
from pxe.notes import Note
from pxe.packets import dhcp
from pxe.packets.dhcp import DhcpPacket, MessageType

MOST_ID = 255
"""Bytes of a client identifier: what is longer came in pieces, and no machine needs that."""
_EVERY_S = 60.0


def answer(
    packet: DhcpPacket, unknown: Decision, guests: DynamicNetworks, net: Common, now: float
) -> Decision:
    """What to do about a packet of a machine that is not in the inventory; `unknown` is what is
    done where there are no guests."""
    mac = packet.mac
    guest = DynamicClient(mac, packet.options.get(dhcp.CLIENT_ID, b""))
    if (
        mac[0] & 1
        or not any(mac)
        or len(guest.id) > MOST_ID
        or packet.message_type == MessageType.INFORM
    ):
        return unknown
    network = guests.at(packet, guest, net, now)
    if network is None:
        return unknown
    if packet.message_type == MessageType.DISCOVER:
        return _offered(packet, guest, network, unknown, now)
    if packet.message_type == MessageType.REQUEST:
        return _requested(packet, guest, network, unknown, net, now)
    return _given_back(packet, guest, network, now)


def _offered(
    packet: DhcpPacket, guest: DynamicClient, network: DynamicNetwork, unknown: Decision, now: float
) -> Decision:
    wanted = packet.options.get(dhcp.REQUESTED_IP)
    lease = network.pool.offer(
        guest, None if wanted is None else int.from_bytes(wanted, "big"), now
    )
    name = network.subnet.name
    if lease is None:
        text = (
            f"{mac_text(guest.mac)} gets no address: the {network.pool.size} addresses for guests "
            f"of network {name} are in use "
            "(hint: more ranges under its `guests`, or a shorter `guest_lease_s`)"
        )
        full = Note(
            "",
            events.POOL_FULL,
            text,
            None,
            {"network": name, "mac": mac_text(guest.mac)},
            name,
            _EVERY_S,
        )
        return Decision(Outcome.POOL_FULL, notes=(*unknown.notes, full))
    address = lease.address.to_bytes(4, "big")
    notes = tuple(
        replace(
            note,
            text=f"{note.text}; as a guest of network {name} it is offered {dotted(address)}",
            data={**note.data, "ip": dotted(address), "network": name},
        )
        for note in unknown.notes
    )
    return send(
        Outcome.OFFERED,
        packet,
        _reply(packet, MessageType.OFFER, address, network),
        network.subnet.place.packed,
        notes,
    )


def _requested(
    packet: DhcpPacket,
    guest: DynamicClient,
    network: DynamicNetwork,
    unknown: Decision,
    net: Common,
    now: float,
) -> Decision:
    """RFC 2131 section 4.3.2. Who selects an offer of ours gets it unless somebody has it; who says
    that he has an address keeps it if that is so. One that is not of this network is refused; of
    what nothing is known, nothing is said."""
    selects = dhcp.SERVER_ID in packet.options
    wanted = packet.options.get(dhcp.REQUESTED_IP, packet.ciaddr)
    if wanted == dhcp.NO_ADDRESS:
        return Decision(Outcome.NOT_FOR_US)
    lease = network.pool.of(guest, now)
    number = int.from_bytes(wanted, "big")
    if lease is None and not selects:
        return unknown if _belongs(packet, wanted, network, net) else _naked(packet, network)
    name = called(packet.options.get(dhcp.HOST_NAME, b""))
    if network.pool.grant(guest, number, network.lease_s, name, now) is None:
        return _naked(packet, network)
    return send(
        Outcome.ACKED,
        packet,
        _reply(packet, MessageType.ACK, wanted, network),
        network.subnet.place.packed,
    )


def _belongs(packet: DhcpPacket, address: bytes, network: DynamicNetwork, net: Common) -> bool:
    """Whether an address is one of the link that a packet comes from."""
    own_networks = () if packet.giaddr != dhcp.NO_ADDRESS else net.here
    return network.holds(address) or any(
        one.version == 4 and one.network_address.packed <= address <= one.broadcast_address.packed
        for one in own_networks
    )


def _naked(packet: DhcpPacket, network: DynamicNetwork) -> Decision:
    return send(
        Outcome.NAKED,
        packet,
        _reply(packet, MessageType.NAK, dhcp.NO_ADDRESS, network),
        network.subnet.place.packed,
    )


def _given_back(
    packet: DhcpPacket, guest: DynamicClient, network: DynamicNetwork, now: float
) -> Decision:
    """DECLINE and RELEASE get no reply."""
    if packet.message_type == MessageType.RELEASE:
        network.pool.release(guest, int.from_bytes(packet.ciaddr, "big"), now)
        return Decision(Outcome.RELEASED)
    address = packet.options.get(dhcp.REQUESTED_IP, dhcp.NO_ADDRESS)
    if not network.pool.decline(guest, int.from_bytes(address, "big"), now):
        return Decision(Outcome.DECLINED)
    text = (
        f"{mac_text(guest.mac)} says that {dotted(address)}, which it got as a guest of network "
        f"{network.subnet.name}, is used "
        "by something else; nobody gets it for an hour"
    )
    data = {"ip": dotted(address), "mac": mac_text(guest.mac), "network": network.subnet.name}
    return Decision(
        Outcome.DECLINED,
        notes=(Note("", events.DHCP_DECLINED, text, None, data, address, _EVERY_S),),
    )


def _reply(
    packet: DhcpPacket, kind: MessageType, address: bytes, network: DynamicNetwork
) -> DhcpPacket:
    relay = relay_of(packet)
    server = network.subnet.place.packed if relay is None or relay.server is None else relay.server
    options: dict[int, bytes] = {dhcp.MESSAGE_TYPE: bytes((kind,)), dhcp.SERVER_ID: server}
    nak = kind is MessageType.NAK
    if nak:
        options[dhcp.MESSAGE] = b"not an address for this guest"
    else:
        options |= {**network.times, **network.subnet.options}
    ciaddr = packet.ciaddr if kind is MessageType.ACK else dhcp.NO_ADDRESS
    return reply_to(packet, options, nak=nak, ciaddr=ciaddr, yiaddr=address)
