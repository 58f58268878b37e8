"""What each step of a release does, and how it is seen that it is done."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from layercake.base.clock import Clock
from layercake.features.releases.holds import NodeHolds
from layercake.features.releases.record import Ended, KnownDisks, Release, Witness
from layercake.features.releases.steps import password
from layercake.features.releases.steps.said import Erasing, erasing, proven
from layercake.features.releases.table import Releases
from layercake.fleet.guard_state import Order
from layercake.fleet.store import Record
from layercake.kraken.errors import LayercakeError, OperationFailed, Unreachable

log = logging.getLogger("layercake.releases")
LOOK_S = 0.5
ASK_S = 2.0
DARK_S = 10.0
"""Seconds without power: memory holds what was in it for a while."""
STALL_S = 900.0
"""An erasure that does not get on for so long has failed. A drive that erases itself says nothing
until it is done: DRIVE_S."""
DRIVE_S = 24 * 3600.0
LIMITS = {
    "hold": 900.0,
    "restart": 1800.0,
    "tpm": 300.0,
    "forget": 60.0,
    "bmc-password": 120.0,
    "power-cycle": 1800.0,
}
BY_HAND_S = 24 * 3600.0
"""For a node whose power a person has to switch."""


class NodeActions(Protocol):
    """With what the steps are done."""

    async def ask_node(self, record: Record, request: dict[str, Any]) -> Mapping[str, Any]:
        """A node's answer to a request. Raises Unreachable, OperationFailed."""

    def order(self, record: Record, order: Order) -> None:
        """Has the engine do something to a node's power."""

    def end_session(self, record: Record) -> None:
        """Ends a node's session, and its token."""

    async def forget_keys(self, record: Record) -> str:
        """Forgets the keys that were made for a node; what it was, for people. On disk when it
        returns. Raises OperationFailed."""

    async def turn_password(self, record: Record) -> str:
        """Turns the password of a node's BMC; what was done. Raises password.Left,
        LayercakeError."""

    async def known_disks(self, record: Record) -> KnownDisks:
        """The disks that a node is known to have."""

    def witness(self, record: Record) -> Witness:
        """By whose word the boot of a node that speaks now, or its end, is what we have ordered:
        "bmc", "tpm", or only "node"."""

    async def tpm_cleared(self, record: Record) -> None:
        """Has the head expect a TPM that was cleared: its counters begin anew. Raises
        OperationFailed."""

    def push(self, record: Record) -> None:
        """Has a node told what is wanted of it."""


class ReleaseSteps:
    """The steps, by their names. `sleep` waits on the loop."""

    def __init__(
        self,
        means: NodeActions,
        holds: NodeHolds,
        releases: Releases,
        clock: Clock,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._means = means
        self._holds = holds
        self._kept = releases
        self._clock = clock
        self._sleep = sleep
        self._by_name: dict[str, Callable[[Record, Release], Awaitable[Ended]]] = {
            "hold": self._stop_images,
            "restart": self._restart,
            "erase": self._erase,
            "tpm": self._clear_tpm,
            "forget": self._forget,
            "bmc-password": self._turn_password,
            "power-cycle": self._power_cycle,
        }

    async def carry_out(self, record: Record, release: Release, name: str) -> Ended:
        """Does a step; how it has ended."""
        limit = (
            None
            if name == "erase"
            else BY_HAND_S
            if record.planner.attended and name in ("restart", "power-cycle")
            else LIMITS[name]
        )
        since = self._clock()
        work = asyncio.ensure_future(self._by_name[name](record, release))
        try:
            while not work.done():
                if limit is not None and self._clock() - since > limit:
                    return Ended(
                        "failed",
                        f"it was not done in {limit:.0f} s (hint: see `layercake node explain "
                        f"{record.name}`)",
                    )
                await asyncio.wait({work}, timeout=LOOK_S)
            return work.result()
        except password.Left as left:
            return Ended("left", str(left))
        except LayercakeError as error:
            return Ended("failed", str(error))
        except Exception:  # begun again and again it would switch the node off and on for ever
            log.exception("step %s of the release of %s failed", name, record.name)
            return Ended("failed", "an error of the head itself; its log says which")
        finally:
            work.cancel()

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await self._sleep(LOOK_S)

    async def _stop_images(self, record: Record, release: Release) -> Ended:
        if release.force:
            return Ended(detail="no image is started any more; what runs is not waited for")
        await self._until(
            lambda: (
                record.value("power") == "OFF"
                or (record.value("run") == "SYNC" and record.value("image") == "IDLE")
            )
        )
        return Ended(detail="nothing runs on it")

    async def _restart(self, record: Record, release: Release) -> Ended:
        before = record.session.boot_id if record.session is not None else ""
        if record.value("power") != "OFF":
            self._means.order(record, Order("cycle", force=True, by=release.by, at=self._clock()))
        await self._until(lambda: record.care.order is None and self._is_up(record, before))
        return Ended(detail="minOS was started anew")

    def _is_up(self, record: Record, before: str) -> bool:
        """Whether a boot speaks that is another than `before`."""
        session = record.session
        return session is not None and session.boot_id != before and record.value("run") == "SYNC"

    async def _erase(self, record: Record, release: Release) -> Ended:
        order = {"kind": "erase", "release": release.id, "attempt": release.steps[-1].tries}
        since = self._clock()
        mark = ""
        limit = STALL_S
        while True:
            try:
                now = erasing(await self._means.ask_node(record, order))
            except Unreachable as error:
                self._holds.show_progress(record, error.message)
                limit = STALL_S
            else:
                if now.state == "failed":
                    return Ended("failed", now.failures, now.erased, now.left_lines)
                if now.state == "done":
                    return await self._proven(record, now)
                self._holds.show_progress(record, now.progress)
                limit = DRIVE_S if now.silent else STALL_S
                if now.mark != mark:
                    since = self._clock()
                    mark = now.mark
            if self._clock() - since > limit:
                raise OperationFailed(
                    f"it does not get on: {self._holds.progress.get(record.node.id, '')}",
                    hint="look at the node's console; then --retry, or --abandon",
                )
            await self._sleep(ASK_S)

    async def _proven(self, record: Record, said: Erasing) -> Ended:
        """How an erasure has ended that a node says is done. The disks that have to be among those
        that were erased are those that a person has accepted; where nobody has, those of the last
        release that somebody else than the node has proven."""
        known = await self._means.known_disks(record)
        before = [one for one in self._kept.of(record.node.id) if one.proves_disks]
        sure = {disk.serial for one in before[-1:] for disk in one.disks if disk.serial}
        if known.accepted_by:
            sure = set(known.serials)
        return proven(said, sure, known.serials - sure, record.name)

    async def _clear_tpm(self, record: Record, release: Release) -> Ended:
        while True:
            with contextlib.suppress(Unreachable):
                answer = await self._means.ask_node(record, {"kind": "clear-tpm"})
                if answer.get("cleared") is not True:
                    return Ended("left", "the machine has none")
                if self._means.witness(record) != "node":  # who lies would be free of the counter
                    await self._means.tpm_cleared(record)
                return Ended(detail="its owner is cleared")
            await self._sleep(ASK_S)

    async def _forget(self, record: Record, release: Release) -> Ended:
        return Ended(detail=await self._means.forget_keys(record))

    async def _turn_password(self, record: Record, release: Release) -> Ended:
        return Ended(detail=await self._means.turn_password(record))

    async def _power_cycle(self, record: Record, release: Release) -> Ended:
        before = record.session.boot_id if record.session is not None else ""
        self._means.end_session(record)
        await self._holds.apply(record, release, up=False)
        if record.value("power") != "OFF":
            self._means.order(record, Order("off", force=True, by=release.by, at=self._clock()))
        await self._until(lambda: record.value("power") == "OFF" and record.care.order is None)
        since = self._clock()
        await self._until(lambda: self._clock() - since >= DARK_S)
        stays_off = record.node.state == "off"
        if not stays_off:
            await self._holds.apply(record, release, up=True)
            await self._until(lambda: self._is_up(record, before))
        self._holds.wanted_again(record)  # it fails here where one of them is gone
        if stays_off:
            return Ended(detail="it is off, and stays so, as it is wanted")
        return Ended(detail=f"its memory was without power for {DARK_S:.0f} s")
