"""Following the head's events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NoReturn

from layercake.client.command import App
from layercake.client.target import Target
from layercake.client.websocket import open_websocket
from layercake.kraken.errors import Unreachable

RETRY_S = 2.0
Event = Mapping[str, Any]


class Follower:
    """Has each event shown once, in order, across interruptions of the stream. `filters` are those
    of GET /v1/events."""

    def __init__(self, app: App, show: Callable[[Event], None], limit: int, **filters: str) -> None:
        self._app = app
        self._show = show
        self._limit = limit
        self._filters: dict[str, Any] = filters
        self._last: int | None = None

    async def run(self, since: int | None) -> NoReturn:
        """Until interrupted. Raises Unreachable only if the head was not there at the start."""
        self._last = since
        reached = False
        while True:
            try:
                async for batch in _events(self._app.target, **self._filters):
                    # The stream is open now, so what the list does not hold comes by the stream;
                    # ids tell them apart.
                    past = [] if batch else self._past()
                    reached = True
                    for event in [*past, *batch]:
                        if self._last is None or event["id"] > self._last:
                            self._last = event["id"]
                            self._show(event)
            except Unreachable as error:
                if not reached:
                    raise
                self._app.out.note(f"{error.message}; trying again")
            await asyncio.sleep(RETRY_S)

    def _past(self) -> list[Event]:
        answer = self._app.head.get(
            "/v1/events", since=self._last, limit=self._limit, **self._filters
        )
        events: list[Event] = answer["events"]
        return events


async def _events(target: Target, **query: str) -> AsyncIterator[list[Event]]:
    """Batches of events as they happen. First an empty one: what happens from then on is not
    missed. Ends when the head closes the stream. Raises Unreachable when it cannot be opened, and
    OperationFailed when the head refuses it."""
    async with open_websocket(target, "/v1/events/ws", **query) as socket:
        yield []
        async for message in socket.messages():
            yield message["events"]
