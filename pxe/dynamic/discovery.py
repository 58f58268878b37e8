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
from layercake.kraken.events import EventKind
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


def _note(kind: EventKind, text: str, about: str, data: dict[str, str]) -> tuple[Note, ...]:
    return (Note("", kind, text, None, data, about, _EVERY_S),)


def _node_of(
    packet: DhcpPacket, network: DynamicNetwork, arch: str, address: bytes, *, signed: bool
) -> Node:
    """An unknown machine as a node of its network, with this address."""
    uefi = firmware_of(packet) is not Client.BIOS
    return Node(
        str(uuid.uuid5(_NAMESPACE, packet.mac.hex())),
        f"machine-{packet.mac.hex()}",
        (packet.mac,),
        dotted(address),
        address,
        arch,
        Firmware.UEFI if uefi else Firmware.BIOS,
        "",
        CONSOLES[arch],
        network.boot_sets[arch],
        secure_boot=uefi and signed,
        subnet=network.subnet,
        stranger=True,
        other_heads=network.other_heads,
    )


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
        self._nodes = nodes
        self._windows = windows
        self._clock = clock
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
        name = network.subnet.name
        mac = mac_text(packet.mac)
        arch = AARCH64 if firmware_of(packet) in ARM_CLIENTS else X86_64
        if arch not in network.boot_sets:
            text = (
                f"{mac} cannot be discovered: it is of {arch}, and there is no boot set for that "
                f"(hint: `layercake boot build`, of a profile for {arch})"
            )
            return _note(events.DISCOVERY_FAILED, text, mac, {"mac": mac})
        if sum(one.network == name for one in self._now.values()) >= network.discovery:
            text = (
                f"{network.discovery} unknown machines of network {name} are booting: others "
                "wait (hint: its `discovery`)"
            )
            return _note(events.DISCOVERY_FULL, text, name, {"network": name})
        address = self._lease(packet, network)
        if address is None:
            text = f"{mac} cannot be discovered: network {name} has no address for guests left"
            return _note(events.POOL_FULL, text, name, {"network": name, "mac": mac})
        node = _node_of(packet, network, arch, address, signed=signed)
        now = self._clock()
        try:
            ticket = self._tickets.issue(mac, node.ip)
            self._windows.arm(node.id, ticket, BOOT_S, now, confirmed=True)
        except LayercakeError as error:
            return _note(events.DISCOVERY_FAILED, f"cannot discover {mac}: {error}", name, {})
        self._nodes.update(node)
        self._now[packet.mac] = _Stranger(node, name, now + BOOT_S)
        text = f"{mac} is not in the inventory, and boots at {node.ip} to be discovered"
        data = {"mac": mac, "ip": node.ip, "network": name}
        return _note(events.DISCOVERING, text, mac, data)

    def _lease(self, packet: DhcpPacket, network: DynamicNetwork) -> bytes | None:
        """Four bytes of an address for a machine that boots, None if there is none left."""
        guest = DynamicClient(packet.mac, packet.options.get(dhcp.CLIENT_ID, b""))
        now = self._clock()
        lease = network.pool.offer(guest, None, now)
        if lease is None:
            return None
        granted = network.pool.grant(guest, lease.address, LIFE_S + BOOT_S, "", now)
        return None if granted is None else lease.address.to_bytes(4, "big")

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
            data = {"mac": mac_text(mac), "ip": one.node.ip}
            (note,) = _note(events.DISCOVERY_LOST, f"{text} (hint: {hint})", mac_text(mac), data)
            self._tell(note)

    def forget(self, network: str) -> None:
        """A network has other guests now, or none."""
        for mac in [mac for mac, one in self._now.items() if one.network == network]:
            self._end(mac)

    def _end(self, mac: bytes) -> bool:
        session = self._now.pop(mac, None)
        if session is None:
            return False
        self._nodes.remove(session.node.id)
        self._windows.forget(session.node.id)
        return True

    def __len__(self) -> int:
        return len(self._now)
