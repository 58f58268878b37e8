"""What the machines of a virtual rack are: facts only."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace

BRIDGE = "br0"
HEAD_ADDRESS = "10.99.0.1"
SIDE_BRIDGE, SIDE_ADDRESS = "br2", "10.121.0.1"
"""A second network that the head is in, without a router; machines are in it whose address is."""
SIDE_SUBNET = "10.121.0.0/24"
SIX_ADDRESS, SIX_SUBNET = "fd00:121::1", "fd00:121::/64"
"""A network of IPv6 alone, on the same bridge."""
USERNAME = "admin"
IPMI_PORT = 623
REDFISH_PORT = 8000
INBAND_PORT = 9623
"""Where an IPMI BMC, at its own address, waits for the machine that it is in."""


class Firmware(enum.Enum):
    """What the machine runs first."""

    BIOS = "bios"  # SeaBIOS
    UEFI = "uefi"  # OVMF; AAVMF on aarch64


class BmcKind(enum.Enum):
    """What its management controller speaks."""

    IPMI = "ipmi"  # ipmi_sim
    REDFISH = "redfish"  # sushy-emulator


class NicRom(enum.Enum):
    """Who does the first DHCP of a network boot.

    IPXE: the ROM of the virtual NIC, which is iPXE; SeaBIOS and OVMF both start it as a network
    boot entry. It asks DHCP as iPXE at once, so no boot program goes over TFTP: the fast way (OVMF:
    8.8 s to the boot script against 13.1 s). FIRMWARE: the NIC has no ROM, so OVMF's own PXE asks
    DHCP and fetches a boot program by TFTP, as most servers do. SeaBIOS has no network stack of its
    own, so this is for UEFI only.
    """

    IPXE = "ipxe"
    FIRMWARE = "firmware"


@dataclass(frozen=True, slots=True)
class VmSpec:
    """One machine. Empty fields are filled in from its place in the rack by `placed`. `nic` is
    QEMU's name of the card that it boots by, `more` are further arguments of QEMU: other cards,
    disks and what else it shall have. `secure_boot`: its UEFI has Microsoft's keys and runs signed
    programs only. `boot` is `bmc.boot` of the inventory, `arch` is "x86_64" or "aarch64". `inband`:
    its BMC, an IPMI one, is there from inside too, by KCS. `sol`: an IPMI one has its serial
    console, over LAN."""

    firmware: Firmware = Firmware.BIOS
    bmc: BmcKind = BmcKind.IPMI
    name: str = ""
    memory_mib: int = 512
    nic_rom: NicRom = NicRom.IPXE
    nic: str = "virtio-net-pci"
    more: tuple[str, ...] = ()
    secure_boot: bool = False
    boot: str = ""
    arch: str = "x86_64"
    inband: bool = False
    sol: bool = False
    profile: str = ""  # the boot profile of the inventory
    card_ipxe: bool = True  # of the inventory: without it, the card's iPXE loads the head's
    mac: str = ""
    ip: str = ""  # what the inventory reserves for it; nothing here configures it
    uuid: str = ""
    bmc_address: str = ""

    def placed(self, index: int) -> VmSpec:
        """This machine with its name, addresses and UUID filled in for slot `index`. Raises
        ValueError for an impossible one."""
        if not 0 <= index < 150:
            raise ValueError(f"cannot place machine {index}: a virtual rack holds at most 150")
        if self.firmware is Firmware.BIOS and self.nic_rom is NicRom.FIRMWARE:
            raise ValueError(
                "cannot network boot SeaBIOS without a ROM on the NIC: it has no network stack of "
                "its own"
            )
        if self.secure_boot and (self.firmware is Firmware.BIOS or self.nic_rom is NicRom.IPXE):
            raise ValueError(
                "cannot have Secure Boot but by OVMF's own PXE: there is none in SeaBIOS, and no "
                "iPXE ROM is signed"
            )
        if self.arch == "aarch64" and (
            self.firmware is Firmware.BIOS or self.nic_rom is NicRom.IPXE
        ):
            raise ValueError(
                "cannot boot aarch64 but by its own UEFI: it has no BIOS, and there is no iPXE ROM "
                "for it"
            )
        return replace(
            self,
            name=self.name or f"n{index}",
            mac=self.mac or f"52:54:00:99:00:{index:02x}",
            ip=self.ip or f"10.99.0.{50 + index}",
            uuid=self.uuid or str(uuid.uuid5(uuid.NAMESPACE_OID, f"vrack machine {index}")),
            bmc_address=self.bmc_address or f"10.98.1.{10 + index}",
        )


def standard_nodes(count: int, *, nic_rom: NicRom = NicRom.IPXE) -> list[VmSpec]:
    """The usual mix: even slots SeaBIOS with IPMI and a serial console over LAN, odd slots OVMF
    with Redfish. `nic_rom` is that of the UEFI machines."""
    even, odd = (
        VmSpec(Firmware.BIOS, BmcKind.IPMI, sol=True),
        VmSpec(Firmware.UEFI, BmcKind.REDFISH, nic_rom=nic_rom),
    )
    return [odd if index % 2 else even for index in range(count)]


def place_all(nodes: Iterable[VmSpec]) -> tuple[VmSpec, ...]:
    """All machines, each in its slot. Raises ValueError if two share a name or an address."""
    placed = tuple(node.placed(index) for index, node in enumerate(nodes))
    for what in ("name", "mac", "ip", "uuid", "bmc_address"):
        seen = [getattr(node, what) for node in placed]
        if len(set(seen)) != len(seen):
            raise ValueError(f"cannot build the rack: two machines have the same {what}")
    return placed
