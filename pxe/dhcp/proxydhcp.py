"""What firmware is told beside a DHCP server of the site, which gives the addresses (proxyDHCP; PXE
2.1, section 2.2). Pure.

Firmware broadcasts one DHCPDISCOVER. The site's server offers an address; the head, to its own
nodes alone, an answer without one that says what to boot. With the address, firmware may ask for
that once more, at port 4011 of who offered it. Who is told what is decided as where the head gives
the addresses too (pxe.dhcp.decision): an offer without the address is made of that offer.
"""

from __future__ import annotations

from dataclasses import replace

from pxe import events
from pxe.dhcp.decision import Common, Decision, Outcome, Way, decide
from pxe.dhcp.relay import dotted
from pxe.machine import HTTP, PXE, Client, client_of
from pxe.nodes import Node, Nodes, mac_text
from pxe.notes import Note
from pxe.packets import dhcp
from pxe.packets.dhcp import DhcpPacket, MessageType
from pxe.windows import PROXY, Step, Windows

PORT = 4011
"""Where firmware asks that has its address (PXE 2.1, section 2.2.3)."""
# Option 43: sub-option 6 (PXE_DISCOVERY_CONTROL) is 8: boot the file that is named, look for no
# boot servers (PXE 2.1, table 2-4).
_BOOT_THIS = b"\x06\x01\x08\xff"
_FIRST = (dhcp.MESSAGE_TYPE, dhcp.SERVER_ID)
_KEPT = (dhcp.TFTP_SERVER, dhcp.BOOT_FILE, dhcp.CLIENT_ID, dhcp.CLIENT_UUID, dhcp.RELAY_AGENT)
_UNANSWERED_S = 5.0
_NO_ADDRESS_EVERY_S = 30.0
_OTHER_EVERY_S = 30.0


def answer(packet: DhcpPacket, nodes: Nodes, windows: Windows, net: Common, now: float) -> Decision:
    """What to do about a packet at port 67: firmware of a node of ours that is to boot is offered
    something to boot."""
    if packet.message_type != MessageType.DISCOVER or client_of(packet) is Client.SYSTEM:
        return Decision(Outcome.NOT_FOR_US)
    waited = _waited(packet, nodes, windows, now)
    decision = decide(packet, nodes, windows, net, now)
    if decision.reply is None or decision.outcome is not Outcome.OFFERED:
        return decision
    reply = _without_address(decision.reply, packet, MessageType.OFFER)
    notes = tuple(
        _as_proxy(note, reply) if note.step is Step.OFFER else note for note in decision.notes
    )
    if decision.way is Way.RELAY:
        return replace(decision, reply=reply, notes=notes + waited)
    # Broadcast: it has no address that a frame could go to.
    return Decision(Outcome.OFFERED, reply, notes=notes + waited, source=decision.source)


def answer_again(
    packet: DhcpPacket, nodes: Nodes, windows: Windows, net: Common, now: float
) -> Decision:
    """What to do about a packet at port 4011: firmware that has its address asks what to boot. The
    answer goes to where the packet came from."""
    if (
        packet.message_type not in (MessageType.REQUEST, MessageType.INFORM)
        or client_of(packet) is Client.SYSTEM
    ):
        return Decision(Outcome.NOT_FOR_US)
    options = {
        code: value
        for code, value in packet.options.items()
        if code not in (dhcp.SERVER_ID, dhcp.REQUESTED_IP)
    }
    asked = replace(
        packet,
        options=options | {dhcp.MESSAGE_TYPE: bytes((MessageType.DISCOVER,))},
        giaddr=dhcp.NO_ADDRESS,
    )
    decision = decide(asked, nodes, windows, net, now)
    if decision.reply is None or decision.outcome is not Outcome.OFFERED:
        return decision
    notes = tuple(
        note for note in decision.notes if note.step is None
    )  # the steps of this were at port 67
    return Decision(
        Outcome.ACKED,
        _without_address(decision.reply, packet, MessageType.ACK),
        Way.UNICAST,
        packet.ciaddr,
        notes,
        decision.source,
    )


def taken(packet: DhcpPacket, nodes: Nodes) -> tuple[Note, ...]:
    """What a DHCPREQUEST to a server of the site tells: which address the firmware of a node takes,
    and of whom."""
    node = nodes.by_mac(packet.mac)
    wanted = packet.options.get(dhcp.REQUESTED_IP, packet.ciaddr)
    if node is None or packet.message_type != MessageType.REQUEST or wanted == dhcp.NO_ADDRESS:
        return ()
    client = client_of(packet)
    if client is Client.SYSTEM:
        return ()
    server = packet.options.get(dhcp.SERVER_ID)
    by = f"DHCP server {dotted(server)}" if server else "a DHCP server that it does not name"
    data = {
        "ip": node.ip,
        "took": dotted(wanted),
        "mac": mac_text(packet.mac),
        "server": dotted(server) if server else "",
    }
    if wanted == node.packed_ip:
        text = f"{client.value} takes {node.ip} of {by}"
        return (
            Note(
                node.id,
                events.ADDRESS_TAKEN,
                text,
                None,
                data,
                (client, packet.mac),
                1.0,
                Step.ADDRESS,
            ),
        )
    text = (
        f"{client.value} takes {dotted(wanted)} of {by}, and by the inventory its address is "
        f"{node.ip}: nothing can be fetched "
        f"from another (hint: reserve {node.ip} for {mac_text(packet.mac)} there, or correct the "
        "inventory)"
    )
    return (Note(node.id, events.OTHER_ADDRESS, text, None, data, packet.mac, _OTHER_EVERY_S),)


def _without_address(reply: DhcpPacket, packet: DhcpPacket, kind: MessageType) -> DhcpPacket:
    """An answer that says what to boot, made of an offer that gives an address too."""
    http = reply.options.get(dhcp.VENDOR_CLASS) == HTTP
    options = {code: reply.options[code] for code in _FIRST} | {dhcp.MESSAGE_TYPE: bytes((kind,))}
    options |= (
        {dhcp.VENDOR_CLASS: HTTP}
        if http
        else {dhcp.VENDOR_CLASS: PXE, dhcp.VENDOR_OPTIONS: _BOOT_THIS}
    )
    options |= {code: reply.options[code] for code in _KEPT if code in reply.options}
    return replace(
        reply,
        options=options,
        yiaddr=dhcp.NO_ADDRESS,
        flags=packet.flags,
        ciaddr=packet.ciaddr if kind is MessageType.ACK else dhcp.NO_ADDRESS,
    )


def _as_proxy(note: Note, reply: DhcpPacket) -> Note:
    text = (
        f"offered {reply.options[dhcp.BOOT_FILE].decode()}; the address is for the site's DHCP "
        "server to give"
    )
    return replace(note, text=text, data={**note.data, PROXY: True})


def _waited(packet: DhcpPacket, nodes: Nodes, windows: Windows, now: float) -> tuple[Note, ...]:
    """That a node asks, and takes no address, for so long that a server should have answered."""
    node: Node | None = nodes.by_mac(packet.mac)
    if node is None or (seconds := windows.unanswered(node.id, now)) < _UNANSWERED_S:
        return ()
    mac = mac_text(packet.mac)
    text = (
        f"{mac} asks by DHCP for {seconds:.0f} s and takes no address: no offer of the site's DHCP "
        "server has reached it "
        f"(hint: reserve {node.ip} for {mac} there; `layercake check --only dhcp` says who answers)"
    )
    return (
        Note(
            node.id,
            events.NO_ADDRESS,
            text,
            None,
            {"mac": mac, "ip": node.ip},
            every=_NO_ADDRESS_EVERY_S,
        ),
    )
