"""The leases of guests in a file, so that a restart of the head or of its boot service does not
give an address to two machines.

It is written beside the work, and at most once a second: no packet waits for the disk. What is in
it is by the wall clock, and in memory by the service's own: a clock that is set meanwhile makes
leases longer or shorter by that, but none longer than a day.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from layercake.base.files import write_atomic
from pxe import events
from pxe.dynamic.networks import DynamicNetworks, called
from pxe.dynamic.pool import ASIDE_S, DynamicClient, Lease, State
from pxe.nodes import mac_text
from pxe.notes import Note, Recorder

FILE = "guests.json"
PAUSE_S = 1.0
AGAIN_S = 10.0
"""Seconds between two writes, and after one that failed."""
LONGEST_S = 86400.0
MOST_BYTES = 64 << 20
_MAC = 6
_ID = 255


class _Written(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A lease in the file; `until` is in seconds of the wall clock. One that is set aside is
    nobody's."""

    network: str
    address: str
    until: float
    mac: str = ""
    id: str = ""
    name: str = ""
    state: State = State.LEASED


class LeaseFile:
    """Writes the leases of `guests` into a file of a directory, and reads it. `wall` is in seconds
    since 1970."""

    def __init__(
        self,
        directory: Path,
        guests: DynamicNetworks,
        recorder: Recorder,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._path = directory / FILE
        self._guests = guests
        self._recorder = recorder
        self._clock = clock
        self._wall = wall
        self._changed = asyncio.Event()
        self._one_at_a_time = threading.Lock()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Reads what there is, and begins to write what changes."""
        self._load()
        self._task = asyncio.create_task(self._write_changes())

    def changed(self) -> None:
        """Leases are not as they were."""
        self._changed.set()

    async def stop(self) -> None:
        """Writes what is not yet written."""
        if self._task is None:
            return
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._task = None
        if self._changed.is_set():
            await self.write()

    async def _write_changes(self) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(PAUSE_S if await self.write() else AGAIN_S)

    async def write(self) -> bool:
        """Writes all leases, in one step; whether that could be done."""
        self._changed.clear()
        offset = self._wall() - self._clock()
        leases = [
            _Written(
                network=network,
                address=str(ipaddress.IPv4Address(lease.address)),
                until=round(lease.until + offset, 1),
                mac=mac_text(lease.guest.mac),
                id=lease.guest.id.hex(),
                name=lease.name,
                state=lease.state,
            )
            for network, lease in self._guests.durable_leases()
        ]
        try:
            await asyncio.to_thread(self._write, leases)
        except OSError as error:
            self._changed.set()
            self._note_failure(f"cannot write {self._path}: {error.strerror}")
            return False
        except asyncio.CancelledError:
            self._changed.set()
            raise
        return True

    def _write(self, leases: list[_Written]) -> None:
        with self._one_at_a_time:  # a write that was called off is still under way
            write_atomic(self._path, msgspec.json.encode(leases), durable=True)

    def _load(self) -> None:
        try:
            if not self._path.exists():
                return
            if self._path.stat().st_size > MOST_BYTES:
                raise ValueError("it is too long")
            records = msgspec.json.decode(self._path.read_bytes(), type=list[_Written])
            leases = [(one.network, self._lease(one)) for one in records]
        except OSError as error:
            self._note_failure(f"cannot read {self._path}: {error.strerror}")
            return
        except ValueError as error:  # those of msgspec and of ipaddress too
            self._note_failure(
                f"cannot read {self._path}: {error}; guests get addresses as if none had one"
            )
            return
        for network, lease in leases:
            self._guests.unplaced.setdefault(network, []).append(lease)

    def _lease(self, one: _Written) -> Lease:
        """A lease of the file. Raises ValueError."""
        aside = one.state is State.ASIDE
        now = self._clock()
        mac = bytes.fromhex(one.mac.replace(":", ""))
        own = bytes.fromhex(one.id)
        if len(mac) != (0 if aside else _MAC) or len(own) > _ID or one.state is State.OFFERED:
            raise ValueError(f"{one.address} is nobody's")
        until = min(one.until + now - self._wall(), now + (ASIDE_S if aside else LONGEST_S))
        address = int(ipaddress.IPv4Address(one.address))
        return Lease(
            address,
            DynamicClient(mac, own),
            one.state,
            until,
            called(one.name.encode()),
            was=not aside,
        )

    def _note_failure(self, text: str) -> None:
        self._recorder.note(Note("", events.LEASES_NOT_KEPT, text, None, {}, str(self._path), 60.0))
