"""DynamicNetworks as the boot service has them: their networks, what they get, and the file that
their leases are in."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from layercake.kraken.errors import InputError
from pxe import events
from pxe.dhcp.decision import Common, Decision, Outcome, decide
from pxe.dynamic.decision import answer
from pxe.dynamic.discovery import MachineDiscovery
from pxe.dynamic.lease_file import LeaseFile
from pxe.dynamic.networks import DynamicNetworks, GuestCount, GuestLeases
from pxe.dynamic.pool import DynamicClient
from pxe.nodes import Nodes
from pxe.notes import Note, Recorder
from pxe.packets.dhcp import DhcpPacket
from pxe.settings import Settings
from pxe.windows import Windows

CHANGE = frozenset({Outcome.ACKED, Outcome.RELEASED, Outcome.DECLINED})
"""What becomes of packets by which leases are not as they were."""


class DynamicAddressing:
    """Has guests where the head gives addresses; there are none where it does not."""

    def __init__(
        self,
        settings: Settings,
        directory: Path,
        recorder: Recorder,
        clock: Callable[[], float],
        nodes: Nodes,
        windows: Windows,
    ) -> None:
        self._serves = settings.dhcp == "serve"
        self._recorder = recorder
        self._clock = clock
        self._networks = DynamicNetworks(settings)
        self._lease_file = LeaseFile(directory, self._networks, recorder, clock, time.time)
        self._nodes = nodes
        self._windows = windows
        self.discovery = MachineDiscovery(
            nodes, windows, directory, clock, time.time, recorder.note
        )

    def start(self) -> None:
        """Reads the leases that were written down."""
        if self._serves:
            self._lease_file.start()

    async def stop(self) -> None:
        """Writes the leases down."""
        await self._lease_file.stop()

    def update_network(self, name: str, network: Mapping[str, Any]) -> None:
        """A network is new or has changed."""
        if not self._serves:
            return
        self.discovery.lapse()
        try:
            self._networks.update_network(name, network, self._clock())
        except InputError as error:
            self._networks.remove_network(name)
            self._recorder.note(Note("", events.BAD_RECORD, str(error)))
        self._lease_file.changed()

    def remove_network(self, name: str) -> None:
        """A network is gone."""
        self._networks.remove_network(name)
        self.discovery.forget(name)
        self._lease_file.changed()

    def admits(self, mac: bytes) -> bool:
        """Whether a packet of a machine that is not in the inventory is read."""
        return self._networks.admits(mac, self._clock())

    def near(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
        """Whether an address is in a network that has guests."""
        return self._networks.near(address)

    def answer(self, packet: DhcpPacket, unknown: Decision, net: Common) -> Decision:
        """What such a machine gets; `unknown` is what it gets where there are no guests."""
        if self.discovery.takes(packet) and (discovered := self._discover(packet, net)) is not None:
            return discovered
        decision = answer(packet, unknown, self._networks, net, self._clock())
        if decision.outcome in CHANGE:
            self._lease_file.changed()
        return decision

    def _discover(self, packet: DhcpPacket, net: Common) -> Decision | None:
        """What a machine gets that asks for something to boot; None where its network allows no
        discovery. Who may not yet gets no answer: firmware asks again, and what runs on the machine
        asks anew."""
        now = self._clock()
        network = self._networks.at(packet, DynamicClient(packet.mac), net, now)
        if network is None or not network.discovery or packet.mac[0] & 1 or not any(packet.mac):
            return None
        notes = self.discovery.begin(packet, network, signed=net.signed)
        decision = decide(packet, self._nodes, self._windows, net, now)
        if decision.outcome is Outcome.UNKNOWN_MAC:
            return replace(decision, notes=(*decision.notes, *notes))
        self._lease_file.changed()
        return replace(decision, notes=(*notes, *decision.notes))

    def counts(self) -> dict[str, GuestCount]:
        """How many addresses guests have, by network."""
        return self._networks.counts(self._clock())

    def leases(self, start: int) -> GuestLeases:
        """A page of the leases."""
        return self._networks.leases(start, self._clock())
