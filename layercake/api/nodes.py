"""The routes of nodes: how they are, what is wanted of them, and what reaches into them. Logs and
commands' answers go through as they come; the head keeps none of them."""

from __future__ import annotations

import bisect
import functools
import operator
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal

import msgspec
from aiohttp import web

from layercake.api.answers.nodes import Causes, Explained, Names, NodeList, NodeWithHistory, Text
from layercake.api.route import CALLER, RANGE, Reach, Route, number
from layercake.features.access.caller import Caller
from layercake.features.events.views import event_view, meanings
from layercake.features.nodes.explain import explain_text, explain_view
from layercake.features.nodes.lists.causes import (
    Beside,
    Gathered,
    in_outages,
    of_alarms,
    of_consoles,
    what_of,
)
from layercake.features.nodes.lists.listing import Found, Kind, Listing
from layercake.features.nodes.views import node_view, status_of
from layercake.fleet.slices import Once, slowly
from layercake.fleet.store import Record
from layercake.head.operations import Operations
from layercake.kraken.errors import InputError
from layercake.moduleapi.module import Role

AT_ONCE = 200
"""So many nodes are one piece; a longer list is sent as it is made."""
LAST_LINES = 8
"""Of a node's console, where it is explained why it is not as wanted."""
BY_NAME = operator.attrgetter("node.name")
NOT_KEPT = {"Cache-Control": "no-store"}
LIST = ("range", "fields", "limit", "after", "since", "where")


class RangeRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Nodes by range: names, `n[0-3]`, `@group`."""

    range: str


class StateRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Nodes that are wanted up or off. `force` includes BUSY ones, and switches off without waiting
    for their images."""

    range: str
    state: Literal["up", "off"]
    force: bool = False


class ExecRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A command for a node, in one of its containers or, with none named, in minOS itself."""

    command: list[str]
    container: str = ""
    timeout_s: float = 60.0


async def _whole(first: bytes, pieces: AsyncIterator[bytes], last: bytes) -> AsyncIterator[bytes]:
    yield first
    async for piece in pieces:
        yield piece
    yield last


async def _send(
    request: web.Request,
    kind: str,
    pieces: AsyncIterator[bytes],
    headers: Mapping[str, str] = NOT_KEPT,
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": kind, **headers})
    await response.prepare(request)
    async for piece in pieces:
        await response.write(piece)
    return response


class NodeRoutes:
    """The handlers, over one head."""

    def __init__(self, ops: Operations) -> None:
        self._ops = ops
        self._head = ops.head

    @functools.cached_property
    def _listing(self) -> Listing:
        return self._head.listing()  # the document is made of routes over no head

    def table(self) -> tuple[Route, ...]:
        """The routes."""
        view, operate, nodes, node = Role.VIEWER, Role.OPERATOR, Reach.RANGE, Reach.NODE
        return (
            Route(
                "GET",
                "/v1/nodes",
                view,
                nodes,
                "Nodes: all, by range, by query",
                self._nodes,
                query=LIST,
                returns=NodeList,
            ),
            Route(
                "GET",
                "/v1/nodes/{name}",
                view,
                node,
                "One node and its history",
                self._node,
                returns=NodeWithHistory,
            ),
            Route(
                "GET",
                "/v1/causes",
                view,
                nodes,
                "What keeps nodes from being as wanted, by cause",
                self._causes,
                query=("range",),
                returns=Causes,
            ),
            Route(
                "GET",
                "/v1/nodes/{name}/explain",
                view,
                node,
                "Where a node is, what blocks it, what was tried",
                self._explain,
                returns=Explained,
            ),
            Route(
                "GET",
                "/v1/nodes/{name}/logs",
                operate,
                node,
                "A container's log",
                self._logs,
                query=("container", "lines"),
                returns=Text,
            ),
            Route(
                "GET",
                "/v1/nodes/{name}/follow",
                operate,
                node,
                "A container's log, as it grows",
                self._follow,
                query=("container", "lines"),
                stream=True,
                kinds=("text/plain",),
            ),
            Route(
                "POST",
                "/v1/nodes/{name}/exec",
                operate,
                node,
                "Run a command on a node or in a container",
                self._exec,
                ExecRequest,
                exec=True,
                stream=True,
                kinds=("application/x-ndjson",),
            ),
            Route(
                "POST",
                "/v1/nodes/clear",
                operate,
                nodes,
                "Take nodes out of quarantine",
                self._clear,
                RangeRequest,
                returns=Names,
            ),
            Route(
                "POST",
                "/v1/nodes/state",
                operate,
                nodes,
                "Want nodes up or off",
                self._state,
                StateRequest,
                returns=Names,
            ),
        )

    async def _nodes(self, request: web.Request, body: None) -> Any:
        wanted, store, caller, query = (
            request[RANGE],
            self._head.store,
            request[CALLER],
            request.query,
        )
        kind, where = (
            Kind(self._listing.fields(query.get("fields", "")), caller.looks_only),
            query.get("where", ""),
        )
        limit, after = number(request, "limit", 0), query.get("after", "")
        since = (
            query.get("since", "") if caller.groups is None else ""
        )  # what leaves a group is not told to who is bound to that
        if since and where:
            raise InputError(
                "cannot use since with where: what a query means changes with the time alone",
                hint="leave one out",
            )
        if since and not (wanted or limit or after):
            return await self._told(request, await self._listing.news(kind, since, ""), kind)
        records: Sequence[Record] = (
            self._ops.head.store.select(wanted) if wanted else store.in_order
        )
        if wanted and (limit or after):
            records = sorted(records, key=BY_NAME)
        records = records[bisect.bisect_right(records, after, key=BY_NAME) :] if after else records
        records = (
            records
            if caller.groups is None
            else [record for record in records if caller.sees(record)]
        )
        if where:
            records = await self._head.queries.matching(records, where)
        more = bool(limit) and len(records) > limit
        records = records[:limit] if more else records
        found = await self._listing.find(
            records, kind, since, f"{wanted} {limit} {after} {caller.groups} {where}"
        )
        return await self._told(request, found, kind, records[-1].name if more else None)

    async def _told(
        self, request: web.Request, found: Found, kind: Kind, after: str | None = None
    ) -> web.StreamResponse:
        """The answer; `after` is the name to go on after."""
        headers = {"ETag": found.mark, "Cache-Control": "no-cache"}
        if found.mark in (
            word.strip() for word in request.headers.get("If-None-Match", "").split(",")
        ):
            return web.Response(status=304, headers=headers)
        end = msgspec.json.encode(
            {
                "variables": [v.name for v in self._head.table.variables],
                "next": after,
                "change": found.change,
                "whole": found.whole,
                "removed": found.removed,
            }
        )
        pieces = _whole(b'{"nodes":[', self._listing.encode(found, kind), b"]," + end[1:])
        if len(found.nodes) <= AT_ONCE:
            return web.Response(
                body=b"".join([piece async for piece in pieces]),
                headers=headers,
                content_type="application/json",
            )
        return await _send(request, "application/json", pieces, headers)

    async def _node(self, request: web.Request, body: None) -> Any:
        record, caller = self._head.store.named(request.match_info["name"]), request[CALLER]
        show = meanings(self._head.table.events) if caller.looks_only else event_view
        told = await self._head.database.history.of(self._head.store, record.name)
        return {"node": self._view(record, caller), "history": [show(e) for e in told]}

    def _view(self, record: Record, caller: Caller) -> dict[str, Any]:
        why = self._head.guard.why(record)
        return node_view(
            record,
            self._head.clock(),
            self._head.table,
            why,
            brief=caller.looks_only,
            patience=self._head.patience,
        )

    async def _causes(self, request: web.Request, body: None) -> Any:
        caller, wanted = request[CALLER], request[RANGE]
        if not wanted and caller.groups is None:  # what every dashboard asks for
            return await self._all_causes[caller.looks_only].get()
        records = self._ops.head.store.select(wanted) if wanted else list(self._head.store)
        return await self._causes_of(
            [record for record in records if caller.sees(record)], caller.looks_only
        )

    @functools.cached_property
    def _all_causes(self) -> Mapping[bool, Once[dict[str, Any]]]:
        """Of all nodes, as viewers are shown them and as others are."""
        return {
            brief: Once(functools.partial(self._causes_of, None, brief)) for brief in (True, False)
        }

    async def _causes_of(self, records: list[Record] | None, brief: bool) -> dict[str, Any]:
        head, found, now = self._head, Gathered(), self._head.clock()
        dark = in_outages(head.guard.outages.values())
        async for record in slowly(list(head.store) if records is None else records):
            stopped = head.guard.stopped(record)
            what = what_of(
                record,
                now,
                head.guard.why(record),
                stopped,
                head.patience.last_step(record),
                outage=dark.get(record.node.id, ""),
                brief=brief,
            )
            found.add(record, what, head.unmet.seconds(record), stopped=bool(stopped))

        def example(record: Record) -> str:
            return status_of(record, now, head.guard.why(record), brief=brief)[1]

        beside = [] if brief else await self._beside(records)
        return {
            "well": found.well,
            "causes": found.causes(example),
            "stopped": sorted(found.stopped),
            "beside": beside,
        }

    async def _beside(self, records: Sequence[Record] | None) -> list[Beside]:
        """What is wrong beside that: of these nodes, or, with None, of all, and of the head
        itself."""
        head, wanted = self._head, None if records is None else {record.name for record in records}
        logs, lost = await self._ops.consoles.troubles()
        known = [
            (record, why)
            for key, why in lost.items()
            if (record := head.store.find(key)) is not None
        ]
        return [
            *of_alarms(list(head.store.alarms), wanted, head.store.wall(), head.table.events),
            *of_consoles(
                "" if wanted is not None else logs,
                [(record, why) for record, why in known if wanted is None or record.name in wanted],
            ),
        ]

    async def _explain(self, request: web.Request, body: None) -> Any:
        brief = meanings(self._head.table.events) if request[CALLER].looks_only else None
        head, record = self._head, self._head.store.named(request.match_info["name"])
        told = await head.database.history.of(head.store, record.name)
        why = head.guard.why(record)
        stuck = (
            brief is None
            and status_of(record, head.clock(), why)[0].value != "converged"
            and record.value("power") != "OFF"
        )
        console = await self._ops.consoles.last(record, LAST_LINES) if stuck else ()
        explanation = explain_view(
            record,
            head.clock(),
            head.guard,
            told,
            brief,
            head.patience,
            head.machines,
            head.files.troubles(record),
            head.disks.troubles(record),
            head.tpms.troubles(record),
            console,
        )
        return {"explanation": explanation, "text": explain_text(explanation)}

    async def _logs(self, request: web.Request, body: None) -> Any:
        name, container = request.match_info["name"], request.query.get("container", "")
        return {"text": await self._ops.nodes.logs(name, container, number(request, "lines", 200))}

    async def _follow(self, request: web.Request, body: None) -> Any:
        lines, container = number(request, "lines", 200), request.query.get("container", "")
        async with self._ops.nodes.follow(request.match_info["name"], container, lines) as pieces:
            response = await _send(request, "text/plain; charset=utf-8", pieces)
            await response.write_eof()
        return response

    async def _exec(self, request: web.Request, body: ExecRequest) -> Any:
        who, name = str(request[CALLER]), request.match_info["name"]
        async with self._ops.nodes.execute(
            name, body.command, body.container, body.timeout_s, who
        ) as pieces:
            response = await _send(request, "application/x-ndjson", pieces)
        await response.write_eof()  # after the end is in the node's history
        return response

    async def _clear(self, request: web.Request, body: RangeRequest) -> Any:
        return {"nodes": await self._ops.nodes.clear(body.range, request[CALLER].by())}

    async def _state(self, request: web.Request, body: StateRequest) -> Any:
        return {
            "nodes": await self._ops.nodes.set_state(
                body.range, body.state, body.force, request[CALLER].by()
            )
        }
