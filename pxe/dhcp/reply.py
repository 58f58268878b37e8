"""The replies of DHCP: which options and addresses are in one, for a node and its network. Pure."""

from __future__ import annotations

from pxe.dhcp.relay import relay_of
from pxe.machine import ARM_CLIENTS, HTTP, HTTP_CLIENTS, Client
from pxe.nodes import Node
from pxe.packets import dhcp
from pxe.packets.dhcp import DhcpPacket, MessageType
from pxe.paths import arm64
from pxe.paths.grub import SHIM
from pxe.paths.image import SUFFIX as IMAGE
from pxe.paths.ipxe import BIOS_PROGRAM, UEFI_PROGRAM
from pxe.settings import Place
from pxe.subnet import Subnet

# iPXE waits 2 s for other DHCP servers' PXE offers after each of ours unless told not to: option
# 175, suboption 176 (no-pxedhcp).
_NO_PXEDHCP = b"\xb0\x01\x01"


def _program(
    client: Client, node: Node, mac: bytes, place: Place
) -> tuple[bytes, str, dict[int, bytes]]:
    """siaddr, file and options that tell a client what to fetch."""
    if client is Client.IPXE:
        return place.packed, f"{place.http_base}/{mac.hex('-')}", {dhcp.IPXE: _NO_PXEDHCP}
    if (
        client in HTTP_CLIENTS
    ):  # UEFI 2.10, 24.7.3.1: the vendor class of the answer must say HTTPClient
        file = (
            f"{mac.hex('-')}{IMAGE}" if node.secure_boot or client in ARM_CLIENTS else UEFI_PROGRAM
        )
        return dhcp.NO_ADDRESS, f"{place.http_base}/{file}", {dhcp.VENDOR_CLASS: HTTP}
    uefi = arm64.SHIM if client in ARM_CLIENTS else SHIM if node.secure_boot else UEFI_PROGRAM
    return (
        place.packed,
        BIOS_PROGRAM if client is Client.BIOS else uefi,
        {dhcp.TFTP_SERVER: place.address.encode()},
    )


def echoed(packet: DhcpPacket) -> dict[int, bytes]:
    """What goes back as it came: client id (RFC 6842), machine id (RFC 4578), and last the relay's
    own (RFC 3046 2.2)."""
    return {
        c: packet.options[c]
        for c in (dhcp.CLIENT_ID, dhcp.CLIENT_UUID, dhcp.RELAY_AGENT)
        if c in packet.options
    }


def reply_to(
    packet: DhcpPacket,
    options: dict[int, bytes],
    *,
    nak: bool = False,
    ciaddr: bytes = dhcp.NO_ADDRESS,
    yiaddr: bytes = dhcp.NO_ADDRESS,
    siaddr: bytes = dhcp.NO_ADDRESS,
    file: bytes = b"",
) -> DhcpPacket:
    """A reply to the sender of a packet, with what goes back as it came behind these options."""
    flags = packet.flags
    if nak and packet.giaddr != dhcp.NO_ADDRESS:
        # RFC 2131 section 4.3.2: the client may have no usable address
        flags |= dhcp.BROADCAST_FLAG
    return DhcpPacket(
        dhcp.REPLY,
        packet.xid,
        packet.chaddr,
        options | echoed(packet),
        packet.htype,
        packet.hlen,
        0,
        0,
        flags,
        ciaddr,
        yiaddr,
        siaddr,
        packet.giaddr,
        b"",
        file,
    )


def reply_for(
    packet: DhcpPacket, kind: MessageType, node: Node, client: Client, subnet: Subnet
) -> DhcpPacket:
    """The reply of this kind to a node whose network is `subnet`."""
    relay = relay_of(packet)
    server = subnet.place.packed if relay is None or relay.server is None else relay.server
    options: dict[int, bytes] = {dhcp.MESSAGE_TYPE: bytes((kind,)), dhcp.SERVER_ID: server}
    if kind is MessageType.NAK:
        options[dhcp.MESSAGE] = b"not the address of this node"
        return reply_to(packet, options, nak=True)
    informed = packet.message_type == MessageType.INFORM
    if not informed:
        # RFC 2131 section 4.3.5: no lease for an address that the client has by other means
        options |= subnet.times
    options |= subnet.options
    options[dhcp.HOST_NAME] = node.name.encode()
    siaddr = dhcp.NO_ADDRESS
    file = b""
    if client is not Client.SYSTEM:
        siaddr, name, more = _program(client, node, packet.mac, subnet.place)
        file = name.encode()
        options[dhcp.BOOT_FILE] = file
        options |= more
    return reply_to(
        packet,
        options,
        ciaddr=packet.ciaddr if kind is MessageType.ACK else dhcp.NO_ADDRESS,
        yiaddr=dhcp.NO_ADDRESS if informed else node.packed_ip,
        siaddr=siaddr,
        file=file if len(file) <= 127 else b"",  # of a longer one, option 67 alone has it
    )
