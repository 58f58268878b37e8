"""Keeps what somebody is to be told of what happens, until it was taken: in batches, in the order
of the events, again and again.

A receiver that hangs or is away costs a queue that is bounded; the oldest events are left out then,
and it is told how many. What it refuses for good is given up, and that is told. How far each was
told is kept with the head's state, so that a head that starts anew goes on there: what was told
last may be told twice, by the same delivery number if nothing was added.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from layercake.base.text import count_of
from layercake.features.webhooks.formats import ENDS
from layercake.features.webhooks.settings import ReceiverSettings
from layercake.features.webhooks.transport import Transport
from layercake.fleet import events
from layercake.fleet.persistence.database import Database
from layercake.fleet.persistence.history import History, Wanted
from layercake.fleet.store import Event, Record, Store
from layercake.kernel.delivery import Delivery
from layercake.kraken.errors import LayercakeError
from layercake.kraken.events import EventKind, Severity

LONGEST_S = 300.0
"""The longest wait before it is tried again."""
MOST = 10_000
"""Events that wait for one receiver."""
_OWN = "webhook."
_SEVERITIES = tuple(one.value for one in Severity)

Expected = Callable[[Record], bool]
"""Whether it is no news that something is wrong with a node: it is in maintenance, or in an
outage."""


class Receiver:
    """One who is told. `title` is what people call it ("webhook pager"), `document` where it is
    kept how far it was told."""

    def __init__(
        self,
        title: str,
        document: str,
        criteria: ReceiverSettings,
        transport: Transport,
        store: Store,
        expected: Expected,
    ) -> None:
        self.document = document
        self._title = title
        self._criteria = criteria
        self._transport = transport
        self._delivery = Delivery(LONGEST_S, self._failed)
        self._store = store
        self._expected = expected
        self._least = _SEVERITIES.index(criteria.severity)
        self._waiting: deque[Event] = deque()
        self._some = asyncio.Event()
        self._left_out = 0
        self._full = False
        self._refused = 0

    def means(self, event: Event) -> bool:
        """Whether it is told of an event. What is told of receivers themselves is not: that would
        never end."""
        kinds = (event.kind, ENDS.get(event.kind, event.kind))
        grave = _SEVERITIES.index(event.severity) >= self._least
        return (
            (grave or (self._transport.alerts and event.kind in ENDS))
            and not event.kind.startswith(_OWN)
            and (
                not self._criteria.kinds
                or any(kind.startswith(tuple(self._criteria.kinds)) for kind in kinds)
            )
        )

    def hear(self, event: Event) -> None:
        """Something happened."""
        if self.means(event):
            self._waiting.append(event)
            if len(self._waiting) > MOST:
                self._waiting.popleft()
                self._left_out += 1
            self._some.set()

    async def run(self, database: Database) -> None:
        """Tells it what happens, for as long as the head lives; first what it has missed since it
        was told last, if it was ever told anything."""
        kept = database.documents(self.document).get(self.document, b"")
        stop = self._store.listen(self.hear)
        try:
            if kept.isdigit():
                await self._catch_up(database.history, int(kept))
            else:
                self._store_position(
                    max((e.id for e in (*self._store.events, *self._store.alarms)), default=0)
                )
            while True:
                await self._some.wait()
                await asyncio.sleep(self._transport.gather_s)
                await self._deliver()
        finally:
            stop()

    async def _catch_up(self, history: History, told: int) -> None:
        missed = await history.find(self._store, Wanted(after=told, limit=MOST), self.means)
        live = {event.id for event in self._waiting}
        self._waiting.extendleft(event for event in reversed(missed) if event.id not in live)
        self._some.set()

    def _store_position(self, number: int) -> None:
        self._store.documents[self.document] = str(number).encode

    async def _deliver(self) -> None:
        while self._waiting:
            count = min(self._transport.at_once, len(self._waiting))
            batch = [self._waiting.popleft() for _ in range(count)]
            left_out = self._left_out
            await self._until_taken(batch, left_out)
            self._left_out -= left_out
            self._store_position(batch[-1].id)
        self._some.clear()

    def _is_news(self, event: Event) -> bool:
        """Whether it is told of. What ends an alert always is: that may be of before it was
        expected, and would stay open."""
        if not self._transport.alerts or event.security or event.kind in ENDS:
            return True
        record = self._store.lookup(event.node)
        return record is None or not self._expected(record)

    async def _until_taken(self, batch: Sequence[Event], left_out: int) -> None:
        number = f"{self._store.epoch:x}-{batch[0].id}-{batch[-1].id}"

        async def send() -> str:
            news = [event for event in batch if self._is_news(event)]
            try:
                return await self._transport.send(news, left_out, number)
            except LayercakeError as error:
                self._note_left_out(str(error))
                raise

        why = await self._delivery.until_taken(send)
        if why:
            self._given_up(why, len(batch))
        else:
            self._well()

    def _failed(self, why: str) -> None:
        self._event(events.WEBHOOK_FAILED, f"{why}; it is tried again")

    def _note_left_out(self, why: str) -> None:
        """Told once, until something is taken."""
        if self._left_out and not self._full:
            self._full = True
            text = f"{MOST} events wait, and the oldest are left out from now on: {why}"
            self._event(events.WEBHOOK_FAILED, text)

    def _given_up(self, why: str, count: int) -> None:
        """Told once, until something is taken."""
        if not self._refused:
            text = f"{why}, which stays so; what it refuses is not sent again"
            self._event(events.WEBHOOK_REFUSED, text)
        self._refused += count

    def _well(self) -> None:
        after_s = self._delivery.taken()
        if after_s is None and not self._refused:
            return
        lost = f"; {count_of(self._left_out, 'event')} left out" if self._left_out else ""
        if self._refused:
            lost += f"; {count_of(self._refused, 'event')} refused, and not sent again"
        after = f", after {after_s:.0f} s" if after_s is not None else ""
        self._full = False
        self._refused = 0
        self._event(events.WEBHOOK_WELL, f"takes events again{after}{lost}")

    def _event(self, kind: EventKind, text: str) -> None:
        between = " " if kind is events.WEBHOOK_WELL else ": "
        self._store.event(None, kind, f"{self._title}{between}{text}")


async def tell_all(receivers: Sequence[Receiver], database: Database) -> None:
    """Tells them what happens, until it is cancelled."""
    await asyncio.gather(*(one.run(database) for one in receivers))
