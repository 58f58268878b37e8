"""Machines that no inventory knows and that ask for something to boot, where their network allows
discovery: each is for a short while a node like others, with an address for guests and a ticket in
the place of a token, and boots minOS to report what it is.

All is bounded: so many machines boot at once, for so long, and each keeps one address for guests.
Others get no answer, and try again as firmware does.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from layercake.kraken.errors import LayercakeError
from layercake.moduleapi.strangers import LIFE_S, Tickets
from pxe import events
from pxe.dhcp.decision import INSTALL_SHIM
from pxe.dhcp.relay import dotted
from pxe.dynamic.networks import DynamicNetwork
from pxe.dynamic.pool import DynamicClient
from pxe.machine import AARCH64, ARM_CLIENTS, X86_64, Client, client_of, firmware_of
from pxe.nodes import Firmware, Node, Nodes, mac_text
from pxe.notes import Note
from pxe.packets import dhcp
from pxe.packets.dhcp import DhcpPacket, MessageType
from pxe.windows import Windows

BOOT_S = 300.0
"""Seconds from the first packet until a machine has reported; then another one has its turn."""
_EVERY_S = 60.0
CONSOLES = {X86_64: "ttyS0", AARCH64: "ttyAMA0"}
_NAMESPACE = uuid.UUID("6c617965-7263-5b6b-a65e-737472616e67")


@dataclass(slots=True)
class _Stranger:
    """A machine that boots: in which network, and until when."""

    node: Node
    network: str
    until: float


class MachineDiscovery:
    """Those that boot now, by MAC address. They stand in `nodes` and `windows` beside the
    inventory's. `clock` is the service's, `tell` tells the head of something."""

    def __init__(
        self,
        nodes: Nodes,
        windows: Windows,
        directory: Path,
        clock: Callable[[], float],
        wall: Callable[[], float],
        tell: Callable[[Note], None],
    ) -> None:
        self._tell = tell
        self._nodes, self._windows, self._clock = nodes, windows, clock
        self._tickets = Tickets(directory, wall)
        self._now: dict[bytes, _Stranger] = {}

    def takes(self, packet: DhcpPacket) -> bool:
        """Whether a packet is one by which a machine begins to boot that there is a way for."""
        return packet.message_type in (MessageType.DISCOVER, MessageType.REQUEST) and client_of(
            packet
        ) not in (Client.SYSTEM, Client.OTHER)

    def begin(
        self, packet: DhcpPacket, network: DynamicNetwork, *, signed: bool
    ) -> tuple[Note, ...]:
        """Takes a machine in, if there is room for it: then it is in `nodes`. What there is to be
        said of it. With `signed` boot programs UEFI gets these: nobody knows yet whether its Secure
        Boot is on, and they boot it either way."""
        self.lapse()
        name, now, mac = network.subnet.name, self._clock(), packet.mac
        arch = AARCH64 if firmware_of(packet) in ARM_CLIENTS else X86_64
        boot_set = network.boot_sets.get(arch)
        if boot_set is None:
            text = (
                f"{mac_text(mac)} cannot be discovered: it is of {arch}, and there is no boot "
                "set for that"
            )
            hint = f" (hint: `layercake boot build`, of a profile for {arch})"
            return (
                Note(
                    "",
                    events.DISCOVERY_FAILED,
                    text + hint,
                    None,
                    {"mac": mac_text(mac)},
                    mac_text(mac),
                    _EVERY_S,
                ),
            )
        if sum(one.network == name for one in self._now.values()) >= network.discovery:
            text = (
                f"{network.discovery} unknown machines of network {name} are booting: others "
                "wait (hint: its `discovery`)"
            )
            return (Note("", events.DISCOVERY_FULL, text, None, {"network": name}, name, _EVERY_S),)
        guest = DynamicClient(mac, packet.options.get(dhcp.CLIENT_ID, b""))
        lease = network.pool.offer(guest, None, now)
        if (
            lease is None
            or network.pool.grant(guest, lease.address, LIFE_S + BOOT_S, "", now) is None
        ):
            text = (
                f"{mac_text(mac)} cannot be discovered: network {name} has no address for "
                "guests left"
            )
            return (
                Note(
                    "",
                    events.POOL_FULL,
                    text,
                    None,
                    {"network": name, "mac": mac_text(mac)},
                    name,
                    _EVERY_S,
                ),
            )
        packed = lease.address.to_bytes(4, "big")
        address, uefi = dotted(packed), firmware_of(packet) is not Client.BIOS
        key = str(uuid.uuid5(_NAMESPACE, mac.hex()))
        node = Node(
            key,
            f"machine-{mac.hex()}",
            (mac,),
            address,
            packed,
            arch,
            Firmware.UEFI if uefi else Firmware.BIOS,
            "",
            CONSOLES[arch],
            boot_set,
            secure_boot=uefi and signed,
            subnet=network.subnet,
            stranger=True,
        )
        try:
            self._windows.arm(
                key, self._tickets.issue(mac_text(mac), address), BOOT_S, now, confirmed=True
            )
        except LayercakeError as error:
            return (
                Note(
                    "",
                    events.DISCOVERY_FAILED,
                    f"cannot discover {mac_text(mac)}: {error}",
                    None,
                    {},
                    name,
                    _EVERY_S,
                ),
            )
        self._nodes.update(node)
        self._now[mac] = _Stranger(node, name, now + BOOT_S)
        text = f"{mac_text(mac)} is not in the inventory, and boots at {address} to be discovered"
        return (
            Note(
                "",
                events.DISCOVERING,
                text,
                None,
                {"mac": mac_text(mac), "ip": address, "network": name},
                mac_text(mac),
                _EVERY_S,
            ),
        )

    def reported(self, mac: bytes) -> bool:
        """A machine has reported what it is: it boots no more. Whether it was one of them."""
        return self._end(mac)

    def lapse(self) -> None:
        """Who has not reported in time boots no more, and is told of."""
        now = self._clock()
        for mac, one in [(mac, one) for mac, one in self._now.items() if one.until <= now]:
            self._end(mac)
            text = (
                f"{mac_text(mac)} was given a boot to be discovered, and has not reported in "
                f"{BOOT_S:.0f} s"
            )
            unsigned = (
                one.node.firmware is Firmware.UEFI
                and one.node.arch == X86_64
                and not one.node.secure_boot
            )
            hint = (
                "its console says "
                f"why{'; if its Secure Boot is on: ' + INSTALL_SHIM if unsigned else ''}"
            )
            self._tell(
                Note(
                    "",
                    events.DISCOVERY_LOST,
                    f"{text} (hint: {hint})",
                    None,
                    {"mac": mac_text(mac), "ip": one.node.ip},
                    mac_text(mac),
                    _EVERY_S,
                )
            )

    def forget(self, network: str) -> None:
        """A network has other guests now, or none."""
        for mac in [mac for mac, one in self._now.items() if one.network == network]:
            self._end(mac)

    def _end(self, mac: bytes) -> bool:
        found = self._now.pop(mac, None)
        if found is None:
            return False
        self._nodes.remove(found.node.id)
        self._windows.forget(found.node.id)
        return True

    def __len__(self) -> int:
        return len(self._now)
