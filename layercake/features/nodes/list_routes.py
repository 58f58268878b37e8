"""The route of the list of nodes: all, by range, by query, or what is new in it."""

from __future__ import annotations

import bisect
import operator
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
from aiohttp import web

from layercake.api.caller import Caller
from layercake.api.route import CALLER, RANGE, Reach, number, route
from layercake.api.streams import send_pieces
from layercake.features.nodes.answers import NodeList
from layercake.features.nodes.lists.listing import Found, Kind, Listing
from layercake.features.nodes.queries import NodeQueries
from layercake.fleet.store import Record, Store
from layercake.fleet.table import Table
from layercake.kraken.errors import InputError
from layercake.moduleapi.module import Role

AT_ONCE = 200
"""So many nodes are one piece; a longer list is sent as it is made."""
BY_NAME = operator.attrgetter("node.name")
LIST = ("range", "fields", "limit", "after", "since", "where")


async def _whole(first: bytes, pieces: AsyncIterator[bytes], last: bytes) -> AsyncIterator[bytes]:
    yield first
    async for piece in pieces:
        yield piece
    yield last


class NodeListRoutes:
    """The list of nodes."""

    def __init__(self, store: Store, table: Table, listing: Listing, queries: NodeQueries) -> None:
        self._store = store
        self._table = table
        self._listing = listing
        self._queries = queries

    @route("GET", "/v1/nodes", Role.VIEWER, Reach.RANGE, query=LIST, returns=NodeList)
    async def nodes(self, request: web.Request, body: None) -> Any:
        """Nodes: all, by range, by query."""
        caller = request[CALLER]
        query = request.query
        kind = Kind(self._listing.fields(query.get("fields", "")), caller.looks_only)
        where = query.get("where", "")
        limit = number(request, "limit", 0)
        since = self._since(request, kind)
        if since and not (request[RANGE] or limit or query.get("after")):
            return await self._told(request, await self._listing.news(kind, since, ""), kind)
        records = self._asked_for(request, caller, ordered=bool(limit))
        if where:
            bound = caller.groups is not None
            records = await self._queries.matching(
                records, where, brief=caller.looks_only, bound=bound
            )
        more = bool(limit) and len(records) > limit
        records = records[:limit] if more else records
        about = f"{request[RANGE]} {limit} {query.get('after', '')} {caller.groups} {where}"
        found = await self._listing.find(records, kind, since, about)
        return await self._told(request, found, kind, records[-1].name if more else None)

    def _since(self, request: web.Request, kind: Kind) -> str:
        """The change since which it is asked, "" for none. Raises InputError where changes are not
        noticed."""
        since = request.query.get("since", "")
        if not since or request[CALLER].groups is not None:
            return ""  # what leaves a group is not told to who is bound to that
        if beyond := self._listing.beyond(kind):
            raise InputError(
                f"cannot use since with the field {beyond[0]}: no change of it is noticed",
                hint="leave one out",
            )
        if request.query.get("where", ""):
            raise InputError(
                "cannot use since with where: what a query means changes with the time alone",
                hint="leave one out",
            )
        return since

    def _asked_for(
        self, request: web.Request, caller: Caller, *, ordered: bool
    ) -> Sequence[Record]:
        """The nodes of the range, or all, that the caller sees, from the one on that it has come
        to; by name where that matters."""
        wanted = request[RANGE]
        after = request.query.get("after", "")
        records: Sequence[Record] = self._store.select(wanted) if wanted else self._store.in_order
        if wanted and (ordered or after):
            records = sorted(records, key=BY_NAME)
        if after:
            records = records[bisect.bisect_right(records, after, key=BY_NAME) :]
        if caller.groups is None:
            return records
        return [record for record in records if caller.sees(record)]

    async def _told(
        self, request: web.Request, found: Found, kind: Kind, after: str | None = None
    ) -> web.StreamResponse:
        """The answer; `after` is the name to go on after."""
        headers = {"Cache-Control": "no-cache"}
        if not self._listing.beyond(kind):
            headers["ETag"] = found.mark
        if "ETag" in headers and found.mark in (
            word.strip() for word in request.headers.get("If-None-Match", "").split(",")
        ):
            return web.Response(status=304, headers=headers)
        end = msgspec.json.encode(
            {
                "variables": [v.name for v in self._table.variables],
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
        return await send_pieces(request, "application/json", pieces, headers)
