"""Guests as the boot service has them: their networks, what they get, and the file that their leases are in."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from layercake.kraken.errors import InputError
from pxe import events
from pxe.dhcp.decision import Common, Decision, Outcome
from pxe.dhcp.packet import DhcpPacket
from pxe.guests.decision import answer
from pxe.guests.keeper import Keeper
from pxe.guests.table import GuestCount, GuestLeases, Guests
from pxe.notes import Note, Recorder
from pxe.settings import Settings

CHANGE = frozenset({Outcome.ACKED, Outcome.RELEASED, Outcome.DECLINED})
"""What becomes of packets by which leases are not as they were."""


class Hosting:
    """Has guests where the head gives addresses; there are none where it does not."""

    def __init__(self, settings: Settings, directory: Path, recorder: Recorder, clock: Callable[[], float]) -> None:
        self._serves, self._recorder, self._clock = settings.dhcp == "serve", recorder, clock
        self._guests = Guests(settings)
        self._keeper = Keeper(directory, self._guests, recorder, clock, time.time)

    def start(self) -> None:
        """Reads the leases that were written down."""
        if self._serves:
            self._keeper.start()

    async def stop(self) -> None:
        """Writes the leases down."""
        await self._keeper.stop()

    def put(self, name: str, network: Mapping[str, Any]) -> None:
        """A network is new or has changed."""
        if not self._serves:
            return
        try:
            self._guests.put(name, network, self._clock())
        except InputError as error:
            self._guests.remove(name)
            self._recorder.note(Note("", events.BAD_RECORD, str(error)))
        self._keeper.changed()

    def remove(self, name: str) -> None:
        """A network is gone."""
        self._guests.remove(name)
        self._keeper.changed()

    def admits(self, mac: bytes) -> bool:
        """Whether a packet of a machine that is not in the inventory is read."""
        return self._guests.admits(mac, self._clock())

    def near(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
        """Whether an address is in a network that has guests."""
        return self._guests.near(address)

    def answer(self, packet: DhcpPacket, unknown: Decision, net: Common) -> Decision:
        """What such a machine gets; `unknown` is what it gets where there are no guests."""
        decision = answer(packet, unknown, self._guests, net, self._clock())
        if decision.outcome in CHANGE:
            self._keeper.changed()
        return decision

    def counts(self) -> dict[str, GuestCount]:
        """How many addresses guests have, by network."""
        return self._guests.counts(self._clock())

    def leases(self, start: int) -> GuestLeases:
        """A page of the leases."""
        return self._guests.leases(start, self._clock())
