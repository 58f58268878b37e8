"""What a machine is, by what its firmware says in DHCP: option 93 has the architecture (RFC 4578
section 2.1, and IANA's list of "Processor Architecture Types"), options 60, 77 and 175 whether it
is firmware, iPXE, or a system that runs.
"""

from __future__ import annotations

import enum

from pxe.packets import dhcp
from pxe.packets.dhcp import DhcpPacket

PXE = b"PXEClient"
HTTP = b"HTTPClient"
X86_64 = "x86_64"
AARCH64 = "aarch64"
ARCHITECTURES = (X86_64, AARCH64)
"""Of the machines that there is a boot path for."""


class Client(enum.Enum):
    """What asks. The value is what people read."""

    SYSTEM = "operating system"
    BIOS = "BIOS PXE"
    UEFI = "UEFI PXE"
    UEFI_HTTP = "UEFI HTTP Boot"
    ARM64 = "arm64 UEFI PXE"
    ARM64_HTTP = "arm64 UEFI HTTP Boot"
    IPXE = "iPXE"
    OTHER = "firmware of an architecture without a boot program"


FIRMWARE = {
    0: Client.BIOS,
    7: Client.UEFI,
    9: Client.UEFI,
    11: Client.ARM64,
    16: Client.UEFI_HTTP,
    19: Client.ARM64_HTTP,
}
"""By the number in option 93, which is 61 in DHCPv6. EDK II says 7 for x86-64, others say 9."""

HTTP_CLIENTS = (Client.UEFI_HTTP, Client.ARM64_HTTP)
ARM_CLIENTS = (Client.ARM64, Client.ARM64_HTTP)


def user_classes(value: bytes) -> list[bytes]:
    """The classes in option 77: RFC 3004 has a length byte before each, iPXE sends its name
    bare."""
    classes = [value]
    at = 0
    while at < len(value):
        length = value[at]
        classes.append(value[at + 1 : at + 1 + length])
        at += 1 + length
    return classes


def architecture(packet: DhcpPacket) -> int | None:
    """The first architecture of option 93, or the one in the vendor class, or None."""
    value = packet.options.get(dhcp.CLIENT_ARCH, b"")
    if len(value) >= 2:
        return int.from_bytes(value[:2], "big")
    parts = packet.options.get(dhcp.VENDOR_CLASS, b"").split(b":")
    if (
        parts[0] in (PXE, HTTP)
        and parts[1:2] == [b"Arch"]
        and len(parts) > 2
        and len(parts[2]) == 5
        and parts[2].isdigit()
    ):
        return int(parts[2])
    return None


def firmware_of(packet: DhcpPacket) -> Client:
    """What kind of firmware a packet is from, whether or not it is iPXE that asks. Who says nothing
    of it is a BIOS."""
    arch = architecture(packet)
    return Client.BIOS if arch is None else FIRMWARE.get(arch, Client.OTHER)


def client_of(packet: DhcpPacket) -> Client:
    """Whether firmware asks or a running system, and which kind of firmware."""
    options = packet.options
    firmware = firmware_of(packet)
    if dhcp.IPXE in options or b"iPXE" in user_classes(options.get(dhcp.USER_CLASS, b"")):
        return Client.OTHER if firmware in (Client.OTHER, *ARM_CLIENTS) else Client.IPXE
    if (
        not options.get(dhcp.VENDOR_CLASS, b"").startswith((PXE, HTTP))
        and dhcp.CLIENT_ARCH not in options
    ):
        return Client.SYSTEM
    return firmware


def wrong(said: str, arch: int | None) -> str:
    """Why firmware that says this number gets nothing, of a node that is of another architecture by
    its inventory; "" if they agree, or if the number is of neither. Firmware that says none is a
    BIOS."""
    expected = Client.BIOS if arch is None else FIRMWARE.get(arch)
    if expected is None:
        return ""
    real = AARCH64 if expected in ARM_CLIENTS else X86_64
    return (
        ""
        if real == said
        else f"its firmware is of {real} (architecture {arch}), the inventory says {said}"
    )
