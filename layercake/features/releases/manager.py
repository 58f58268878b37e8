"""Releases of nodes between users, carried out: each step is begun on disk, done, seen, and its end
on disk before the next begins.

While a release holds a node, nothing is started on it but minOS: Record.held makes its goal, and no
other wish counts. A head that was stopped in the middle goes on with the step that it was at.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Protocol

from layercake.base.clock import Clock
from layercake.features.releases import events, password
from layercake.features.releases.holds import NodeHolds
from layercake.features.releases.record import (
    Ended,
    KnownDisks,
    Release,
    Witness,
    abandoned,
    began,
    confirmed,
    ended,
    retried,
)
from layercake.features.releases.said import Erasing, erasing, proven
from layercake.features.releases.table import Releases
from layercake.fleet.desired import DesiredState
from layercake.fleet.guard_state import Order
from layercake.fleet.store import Record, Store
from layercake.fleet.transaction import Transaction
from layercake.kraken.errors import LayercakeError, NotFound, OperationFailed, Refused, Unreachable
from layercake.moduleapi.event_loop.tasks import cancel_all

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
BY_HEAD: Mapping[str, Witness] = {"hold": "node", "forget": "head", "bmc-password": "bmc"}
"""Whose word these steps are, whatever the node has; of the others see NodeActions.witness."""
MOST = 32
"""So many releases are carried out at a time."""


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


class ReleaseManager:
    """All releases. `sleep` waits on the loop."""

    def __init__(
        self,
        store: Store,
        desire: DesiredState,
        releases: Releases,
        means: NodeActions,
        clock: Clock,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self._desire = desire
        self._means = means
        self._clock = clock
        self._sleep = sleep
        self.kept = releases
        self.tasks: dict[str, asyncio.Task[None]] = {}
        """The releases that are carried out, by their nodes."""
        self._holds = NodeHolds(store, desire, releases, means.push)
        self._steps: dict[str, Callable[[Record, Release], Awaitable[Ended]]] = {
            "hold": self._stop_images,
            "restart": self._restart,
            "erase": self._erase,
            "tpm": self._clear_tpm,
            "forget": self._forget,
            "bmc-password": self._turn_password,
            "power-cycle": self._power_cycle,
        }

    def load(self) -> None:
        """Takes over what was kept. Before the engine begins: what is held gets no image."""
        self.kept.load()
        self._holds.load()

    def advance(self) -> None:
        """Goes on with what nobody is at. Called again and again."""
        for release in self.kept.running():
            record = self._store.find(release.node)
            if record is not None and release.node not in self.tasks and len(self.tasks) < MOST:
                task = self.tasks[release.node] = asyncio.create_task(
                    self._carry_out(record, release.id)
                )
                task.add_done_callback(partial(self._over, release.node))

    def _over(self, node: str, task: asyncio.Task[None]) -> None:
        self.tasks.pop(node, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a step of a release of %s was cut short", node, exc_info=error)

    async def stop(self) -> None:
        """Leaves them to the next head."""
        await cancel_all(self.tasks.values())

    def removed(self, record: Record) -> None:
        """A node is gone from the inventory, and no release holds it. Its rows go with the next one
        that is written."""
        self.kept.node_removed(record.node.id)

    # ---- what people say
    # -----

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """What becomes of releases and of their holds when the block ends: all of it is written, or
        nothing. Raises OperationFailed if it cannot be."""
        async with self.kept.alone, self._desire.transaction() as transaction:
            yield transaction

    def begin(self, transaction: Transaction, record: Record, by: str, *, force: bool) -> None:
        """Releases a node. Raises Refused."""
        refuse(record, force=force)
        release = self.kept.begin(transaction, record.node.id, by, record.wanted, force=force)
        self._holds.hold(transaction, record, release)
        text = f"by {by}" + (", by force" if force else "")
        transaction.event(record, events.BEGUN, text, data={"release": release.id})

    def retry(self, transaction: Transaction, record: Record, by: str) -> None:
        """Tries a release again from the step that failed. Raises Refused, NotFound."""
        self._holds.hold(transaction, record, self._change(transaction, record, retried))
        transaction.event(record, events.RETRIED, f"by {by}")

    def abandon(self, transaction: Transaction, record: Record, by: str) -> None:
        """Gives a release up; the node stays held. Raises Refused, NotFound."""
        change = partial(abandoned, by=by, now=self._store.wall())
        release = self._change(transaction, record, change)
        transaction.after(self._leave, record.node.id)
        self._holds.hold(transaction, record, release)
        transaction.event(record, events.ABANDONED, f"by {by}")

    def _leave(self, node: str) -> None:
        """Nobody is at a node's release any more."""
        self._holds.progress.pop(node, None)
        if (task := self.tasks.get(node)) is not None:
            task.cancel()

    def confirm(self, transaction: Transaction, record: Record, by: str) -> None:
        """A person vouches for a release that nobody but the node speaks for: the node is free.
        Raises Refused, NotFound."""
        images = self._holds.wanted_again(record)
        change = partial(confirmed, by=by, now=self._store.wall())
        self._change(transaction, record, change)
        self._holds.let_go(transaction, record, images)
        transaction.event(record, events.CONFIRMED, f"by {by}")
        transaction.after(self._done, record)

    def free(self, transaction: Transaction, record: Record, by: str) -> None:
        """Takes away the hold of a release that was given up, or cannot be read. Raises Refused,
        NotFound."""
        images = self._holds.wanted_again(record)
        self.kept.free(transaction, record.node.id, by)
        self._holds.let_go(transaction, record, images)
        transaction.event(record, events.FREED, f"by {by}")

    def _change(
        self, transaction: Transaction, record: Record, change: Callable[[Release], Release]
    ) -> Release:
        return self.kept.change(transaction, record.node.id, self._newest(record).id, change)

    def _newest(self, record: Record) -> Release:
        found = self.kept.of(record.node.id)
        if not found:
            raise NotFound(f"cannot find a release of {record.name}")
        return found[-1]

    async def _hold(self, record: Record, release: Release, *, up: bool) -> None:
        async with self._desire.transaction() as transaction:
            self._holds.hold(transaction, record, release, up=up)

    # ---- the steps, one after the other
    # ------------------------------------------------------------------------------------

    async def _carry_out(self, record: Record, id_: str) -> None:
        node = record.node.id
        try:
            while (release := self._newest(record)).id == id_ and (name := release.next):
                release = await self.kept.step(node, id_, lambda r: began(r, self._store.wall()))
                if record.held is None or record.wanted or record.held.state != "up":
                    await self._hold(record, release, up=True)
                self._holds.show_progress(record, "")
                end = await self._step(record, release, name)
                witness = BY_HEAD.get(name) or self._means.witness(record)
                await self.kept.step(
                    node, id_, partial(_with_end, end, self._store.wall(), witness)
                )
                self._holds.progress.pop(node, None)
                self._step_ended(record, name, end)
        except LayercakeError as error:  # nothing could be written: the next look goes on with it
            log.error("the release of %s waits: %s", record.name, error)
            await self._sleep(ASK_S)

    def _step_ended(self, record: Record, name: str, end: Ended) -> None:
        if end.result == "failed":
            self._holds.show_progress(record, "")
            self._store.event(record, events.FAILED, f"{name}: {end.detail}", data={"step": name})
            return
        self._store.event(
            record,
            events.STEP,
            f"{name}: {end.detail or 'done'}" + (" (left)" if end.result == "left" else ""),
            data={"step": name},
        )
        if self._newest(record).done:
            self._done(record)
        elif self._newest(record).waits:
            self._holds.show_progress(record, "")
            self._store.event(record, events.UNCONFIRMED, self._holds.why(record))

    def _done(self, record: Record) -> None:
        self._store.event(
            record, events.DONE, f"{len(self._newest(record).disks)} disks were erased"
        )

    async def _step(self, record: Record, release: Release, name: str) -> Ended:
        limit = (
            None
            if name == "erase"
            else BY_HAND_S
            if record.planner.attended and name in ("restart", "power-cycle")
            else LIMITS[name]
        )
        since = self._clock()
        work = asyncio.ensure_future(self._steps[name](record, release))
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
        before = [one for one in self.kept.of(record.node.id) if one.proves_disks]
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
        await self._hold(record, release, up=False)
        if record.value("power") != "OFF":
            self._means.order(record, Order("off", force=True, by=release.by, at=self._clock()))
        await self._until(lambda: record.value("power") == "OFF" and record.care.order is None)
        since = self._clock()
        await self._until(lambda: self._clock() - since >= DARK_S)
        stays_off = record.node.state == "off"
        if not stays_off:
            await self._hold(record, release, up=True)
            await self._until(lambda: self._is_up(record, before))
        if not release.unproven and self._means.witness(record) != "node":
            async with self._desire.transaction() as transaction:
                self._holds.let_go(transaction, record, self._holds.wanted_again(record))
        if stays_off:
            return Ended(detail="it is off, and stays so, as it is wanted")
        return Ended(detail=f"its memory was without power for {DARK_S:.0f} s")


def _with_end(end: Ended, now: float, witness: Witness, release: Release) -> Release:
    return ended(release, end.result, now, end.detail, end.disks, end.left, witness)


def refuse(record: Record, *, force: bool) -> None:
    """Raises Refused for a node that cannot be released now."""
    if record.held is not None:
        raise Refused(
            f"cannot release {record.name}: {record.held.why}",
            hint=f"see `layercake node release --show {record.name}`",
        )
    if record.machine.quarantine is not None and not force:
        raise Refused(
            f"cannot release {record.name}: it is quarantined",
            hint=f"`layercake node clear {record.name}` first, or --force",
        )
