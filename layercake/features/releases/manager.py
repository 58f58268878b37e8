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

from layercake.base.clock import Clock
from layercake.base.text import count_of
from layercake.features.releases import events
from layercake.features.releases.holds import NodeHolds
from layercake.features.releases.record import (
    STEPS,
    Ended,
    Release,
    Witness,
    abandoned,
    began,
    confirmed,
    ended,
    retried,
)
from layercake.features.releases.steps.carrying_out import NodeActions, ReleaseSteps
from layercake.features.releases.table import Releases
from layercake.fleet.desired import DesiredState
from layercake.fleet.store import Record, Store
from layercake.fleet.transaction import Transaction
from layercake.kraken.errors import LayercakeError, NotFound, Refused
from layercake.moduleapi.event_loop.tasks import cancel_all

log = logging.getLogger("layercake.releases")
ASK_S = 2.0
BY_HEAD: Mapping[str, Witness] = {"hold": "node", "forget": "head", "bmc-password": "bmc"}
"""Whose word these steps are, whatever the node has; of the others see NodeActions.witness."""
MOST = 32
"""So many releases are carried out at a time."""


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
        self._steps = ReleaseSteps(means, self._holds, releases, clock, sleep)

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
    async def transaction(self, *, revises: bool = True) -> AsyncIterator[Transaction]:
        """What becomes of releases and of their holds when the block ends: all of it is written, or
        nothing. Raises OperationFailed if it cannot be."""
        async with self.kept.alone, self._desire.transaction(revises=revises) as transaction:
            self.kept.clean(transaction)
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

    # ---- the steps, one after the other
    # ------------------------------------------------------------------------------------

    async def _carry_out(self, record: Record, id_: str) -> None:
        try:
            while (release := self._newest(record)).id == id_ and (name := release.next):
                release = await self._begin_step(record, id_)
                self._holds.show_progress(record, "")
                end = await self._steps.carry_out(record, release, name)
                await self._end_step(record, release, name, end)
        except LayercakeError as error:  # nothing could be written: the next look goes on with it
            log.error("the release of %s waits: %s", record.name, error)
            await self._sleep(ASK_S)

    async def _begin_step(self, record: Record, id_: str) -> Release:
        held = record.held is not None and not record.wanted and record.held.state == "up"
        change = partial(began, now=self._store.wall())
        async with self.transaction(revises=not held) as transaction:
            release = self.kept.change(transaction, record.node.id, id_, change)
            if not held:
                self._holds.hold(transaction, record, release)
            return release

    async def _end_step(self, record: Record, release: Release, name: str, end: Ended) -> None:
        """With the last one the node is let go."""
        witness = BY_HEAD.get(name) or self._means.witness(record)
        change = partial(_with_end, end, self._store.wall(), witness)
        async with self.transaction(revises=name == STEPS[-1]) as transaction:
            release = self.kept.change(transaction, record.node.id, release.id, change)
            if release.done:
                self._holds.let_go(transaction, record, self._holds.wanted_again(record))
            transaction.after(self._step_ended, record, name, end)

    def _step_ended(self, record: Record, name: str, end: Ended) -> None:
        self._holds.progress.pop(record.node.id, None)
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
        erased = count_of(len(self._newest(record).disks), "disk")
        self._store.event(record, events.DONE, f"{erased} erased")


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
