"""The routes of events: what happened, and what happens, in batches over a WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import Any

import msgspec
from aiohttp import WSMsgType, web

from layercake.api.caller import Caller
from layercake.api.route import CALLER, RANGE, Reach, number, route
from layercake.features.events.answers import EventList
from layercake.features.events.views import View, event_view, meanings
from layercake.fleet.persistence.history import History, Wanted
from layercake.fleet.store import Event, Store
from layercake.fleet.table import Table
from layercake.kernel.feature import Matching
from layercake.kraken.errors import InputError
from layercake.kraken.events import Severity
from layercake.moduleapi.module import Role
from layercake.moduleapi.web import is_web_socket, web_socket

BATCH_S = 0.03
"""How long events are gathered at most, while one follows another. The first after a rest is sent
at once."""

_FIRST_S = 0.002  # gathered after the first batch; twice as long after each that follows
_AT_ONCE = 500  # events in one message: what waits to be read by a slow client is bounded
_BACKLOG = 10_000  # events that a slow WebSocket client may be behind before it is cut off
MOST = 5000
"""Past events in one answer."""

STUCK_S = 10.0
"""A client that does not take one message in so long is cut off."""


class EventRoutes:
    """Events, past and as they happen."""

    def __init__(self, store: Store, table: Table, history: History, matching: Matching) -> None:
        self._store = store
        self._table = table
        self._history = history
        self._matching = matching

    def _view(self, caller: Caller) -> View:
        return meanings(self._table.events) if caller.looks_only else event_view

    @route(
        "GET",
        "/v1/events",
        Role.VIEWER,
        Reach.RANGE,
        query=(
            "since",
            "before",
            "from",
            "to",
            "node",
            "range",
            "where",
            "kind",
            "severity",
            "limit",
            "security",
        ),
        returns=EventList,
    )
    async def past(self, request: web.Request, body: None) -> Any:
        """Events, oldest first."""
        query = request.query
        caller = request[CALLER]
        now = self._store.wall()
        wanted = Wanted(
            after=number(request, "since", 0),
            before=number(request, "before", 2**62),
            since=_moment(request, "from", 0.0, now),
            until=_moment(request, "to", 1e15, now),
            node=query.get("node", ""),
            kind=query.get("kind", "")[:64],
            nodes=await self._names(caller, request[RANGE], query.get("where", "")),
            severities=_severities(query.get("severity", "")),
            security=bool(query.get("security")),
            limit=min(max(1, number(request, "limit", 200)), MOST),
        )
        show = self._view(caller)
        return {"events": [show(e) for e in await self._history.find(self._store, wanted)]}

    @route(
        "GET",
        "/v1/events/ws",
        Role.VIEWER,
        Reach.SHOWN,
        query=("node", "kind", "security"),
        stream=True,
        kinds=(),
    )
    async def stream(self, request: web.Request, body: None) -> Any:
        """Events as they happen, by WebSocket."""
        if not is_web_socket(request):
            raise InputError(
                "cannot follow events: this is no WebSocket",
                hint="GET /v1/events has what happened",
            )
        return await follow(request, self._store, self._view(request[CALLER]))

    async def _names(self, caller: Caller, wanted: str, where: str) -> frozenset[str] | None:
        """The nodes whose events are meant, of those that the caller sees; None for all, and the
        head's own. Raises InputError."""
        if not wanted and not where and caller.groups is None:
            return None
        records = self._store.select(wanted) if wanted else list(self._store)
        if where:
            records = await self._matching(records, where, brief=caller.looks_only)
        return frozenset(record.name for record in records if caller.sees(record))


def _moment(request: web.Request, name: str, default: float, now: float) -> float:
    """A time of the query: seconds since the epoch, or before now if it is negative. Raises
    InputError."""
    text = request.query.get(name, "")
    try:
        found = float(text) if text else default
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise InputError(
            f"cannot use {name}={text[:40]!r}: seconds since the epoch are expected, or -3600 for "
            "an hour ago"
        )
    return now + found if found < 0 else found


def _severities(least: str) -> frozenset[str]:
    """Those that are at least as bad; none for all. Raises InputError."""
    names = [one.value for one in Severity]
    if least and least not in names:
        raise InputError(f"cannot use severity={least[:40]!r}: it is one of {', '.join(names)}")
    return frozenset(names[names.index(least) :]) if least else frozenset()


async def follow(request: web.Request, store: Store, show: View) -> web.StreamResponse:
    """Sends events in batches, filtered by node, by kind, by whether they are of security, and by
    what the caller sees, until the client leaves."""
    caller = request[CALLER]
    node, kind, security = (request.query.get(name, "") for name in ("node", "kind", "security"))
    socket = web_socket(20.0)
    await socket.prepare(request)
    pending: list[Event] = []
    arrived = asyncio.Event()

    def listener(event: Event) -> None:
        wanted = (
            (not node or event.node == node)
            and event.kind.startswith(kind)
            and (event.security or not security)
        )
        if wanted and len(pending) <= _BACKLOG and caller.sees_name(store, event.node):
            pending.append(event)
            arrived.set()

    stop = store.listen(listener)
    sender = asyncio.create_task(_send_batches(request, socket, pending, arrived, show))
    try:
        async for message in socket:
            if message.type is WSMsgType.ERROR:
                break
    finally:
        stop()
        sender.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sender
    return socket


async def _send_batches(
    request: web.Request,
    socket: web.WebSocketResponse,
    pending: list[Event],
    arrived: asyncio.Event,
    show: View,
) -> None:
    """Sends what is pending: at once after a rest, else gathered for longer and longer, up to
    BATCH_S."""
    loop = asyncio.get_running_loop()
    gather_s = sent = 0.0
    while not socket.closed:
        await arrived.wait()
        rested = loop.time() - sent
        gather_s = 0.0 if rested > BATCH_S else min(BATCH_S, max(_FIRST_S, 2 * gather_s))
        if gather_s > rested:
            await asyncio.sleep(gather_s - rested)
        late = len(pending) > _BACKLOG
        batch = pending[:_AT_ONCE]
        pending[:_AT_ONCE] = []
        if not pending:
            arrived.clear()
        try:
            async with asyncio.timeout(STUCK_S):
                if late:
                    await socket.close(message=b"too far behind")
                    return
                await socket.send_str(
                    msgspec.json.encode({"events": [show(e) for e in batch]}).decode()
                )
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
            return
        except ConnectionError:
            return
        sent = loop.time()
