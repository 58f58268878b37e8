"""The routes of rolls: begin one, look at it, pause, resume, abort."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web
from msgspec.structs import replace

from layercake.api.caller import Caller
from layercake.api.route import CALLER, Reach, number, route
from layercake.base.text import whole_number
from layercake.features.rolls.answers import OneRoll, RollList
from layercake.features.rolls.facts import Roll
from layercake.features.rolls.manager import Rolls
from layercake.features.rolls.operations import RollRequests, RollStart
from layercake.features.rolls.views import SHOWS, roll_view
from layercake.fleet.store import Record, Store
from layercake.kraken.errors import InputError, NotFound
from layercake.moduleapi.module import Role


class RollOrder(msgspec.Struct, forbid_unknown_fields=True):
    """An order to a roll. `by` says who gives it."""

    by: str = ""


def _number(request: web.Request) -> int:
    """The number of the roll in the path. Raises NotFound."""
    text = request.match_info["id"]
    found = whole_number(text, 10**9)
    if found is None:
        raise NotFound(
            f"cannot find roll {text[:40]!r}: a roll has a number",
            hint="see `layercake roll status`",
        )
    return found


class RollRoutes:
    """Rolls."""

    def __init__(self, rolls: RollRequests, manager: Rolls, store: Store) -> None:
        self._rolls = rolls
        self._manager = manager
        self._store = store

    @route("POST", "/v1/rolls", Role.OPERATOR, Reach.RANGE, body=RollStart, returns=OneRoll)
    async def start(self, request: web.Request, body: RollStart) -> Any:
        """Roll nodes to an image, in batches with gates, now or at a time."""
        self._rolls.permit(body.image, request[CALLER].groups)
        asked = replace(body, by=request[CALLER].by(body.by))
        return {"roll": roll_view(await self._rolls.start(asked), self._store, "none")}

    @route("GET", "/v1/rolls", Role.VIEWER, Reach.SHOWN, query=("limit",), returns=RollList)
    async def show_all(self, request: web.Request, body: None) -> Any:
        """The rolls, newest first, without their nodes."""
        limit = max(1, number(request, "limit", 20))
        caller = request[CALLER]
        store = self._store
        found = [r for r in self._manager.all() if caller.groups is None or self._is_of(r, caller)][
            :limit
        ]
        return {"rolls": [roll_view(r, store, "none", brief=caller.looks_only) for r in found]}

    def _is_of(self, roll: Roll, caller: Caller) -> bool:
        """Whether all nodes of a roll are the caller's."""
        return all(
            (record := self._store.find(key)) is not None and caller.sees(record)
            for key in roll.nodes
        )

    def _nodes(self, request: web.Request) -> list[Record | None]:
        """The nodes of the roll that a request is about."""
        try:
            return [self._store.find(key) for key in self._manager.get(_number(request)).nodes]
        except NotFound:
            return [None]

    @route(
        "GET",
        "/v1/rolls/{id}",
        Role.VIEWER,
        Reach.NODES,
        nodes_of=_nodes,
        query=("nodes",),
        returns=OneRoll,
    )
    async def show(self, request: web.Request, body: None) -> Any:
        """A roll, its nodes: all, open (not done) or none."""
        nodes = request.query.get("nodes", "all")
        if nodes not in SHOWS:
            raise InputError(f"cannot show nodes {nodes[:40]!r}: it is one of {', '.join(SHOWS)}")
        roll = self._manager.get(_number(request))
        brief = request[CALLER].looks_only
        return {"roll": roll_view(roll, self._store, nodes, brief=brief)}

    @route(
        "POST",
        "/v1/rolls/{id}/pause",
        Role.OPERATOR,
        Reach.NODES,
        nodes_of=_nodes,
        body=RollOrder,
        returns=OneRoll,
    )
    async def pause(self, request: web.Request, body: RollOrder) -> Any:
        """Begin no further switch."""
        return await self._order(request, "pause", body)

    @route(
        "POST",
        "/v1/rolls/{id}/resume",
        Role.OPERATOR,
        Reach.NODES,
        nodes_of=_nodes,
        body=RollOrder,
        returns=OneRoll,
    )
    async def resume(self, request: web.Request, body: RollOrder) -> Any:
        """Go on with a paused roll."""
        return await self._order(request, "resume", body)

    @route(
        "POST",
        "/v1/rolls/{id}/abort",
        Role.OPERATOR,
        Reach.NODES,
        nodes_of=_nodes,
        body=RollOrder,
        returns=OneRoll,
    )
    async def abort(self, request: web.Request, body: RollOrder) -> Any:
        """End a roll; nodes that have switched stay."""
        return await self._order(request, "abort", body)

    async def _order(self, request: web.Request, what: str, body: RollOrder) -> Any:
        roll = await self._manager.order(_number(request), what, request[CALLER].by(body.by))
        return {"roll": roll_view(roll, self._store, "none")}
