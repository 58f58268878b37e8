"""The routes of rolls: begin one, look at it, pause, resume, abort."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from aiohttp import web

from layercake.api.answers.images import OneRoll, RollList
from layercake.api.route import CALLER, Reach, Route, number, roll_number
from layercake.features.access.caller import Caller
from layercake.features.rolls.facts import Roll
from layercake.features.rolls.operations import Ask
from layercake.features.rolls.views import SHOWS, roll_view
from layercake.head.operations import Operations
from layercake.kraken.errors import InputError
from layercake.moduleapi.module import Role


class RollStart(msgspec.Struct, forbid_unknown_fields=True):
    """A roll in batches: the new content is staged on every node first, each batch has to pass its
    gate.

    `batch` and `max_unavailable` are a number of nodes or a share of a stage ("10%"); empty means
    all of a stage at once, but when none of the three amounts is given and many nodes run
    something, they go as config.yaml says (`rolls`). `canary` nodes go first, alone. A node passes
    the gate when it was well for `health_timeout_s` after its switch. `stages` are groups of the
    inventory, in order; the last may be "all". `by` says who asks.
    """

    range: str
    image: str
    replace: str | None = None
    batch: str = ""
    max_unavailable: str = ""
    canary: int = 0
    health_timeout_s: float = 5.0
    on_failure: Literal["rollback", "pause"] = "rollback"
    on_stage_failure: Literal["skip", "fail"] = "skip"
    stages: list[str] = []
    by: str = ""


class RollOrder(msgspec.Struct, forbid_unknown_fields=True):
    """An order to a roll. `by` says who gives it."""

    by: str = ""


def ask_of(request: web.Request, body: RollStart) -> Ask:
    """What a request asks for."""
    return Ask(
        body.image,
        body.replace,
        body.batch,
        body.max_unavailable,
        body.canary,
        body.health_timeout_s,
        body.on_failure,
        body.on_stage_failure,
        tuple(body.stages),
        request[CALLER].by(body.by),
    )


class RollRoutes:
    """The handlers, over one head."""

    def __init__(self, operations: Operations) -> None:
        self._ops = operations
        self._head = operations.head

    def table(self) -> tuple[Route, ...]:
        """All routes of rolls."""
        view, operate, order, of = Role.VIEWER, Role.OPERATOR, RollOrder, Reach.ROLL
        begin = RollStart
        return (
            Route(
                "POST",
                "/v1/rolls",
                operate,
                Reach.RANGE,
                "Roll nodes to an image, in batches with gates",
                self._start,
                begin,
                returns=OneRoll,
            ),
            Route(
                "GET",
                "/v1/rolls",
                view,
                Reach.SHOWN,
                "The rolls, newest first, without their nodes",
                self._list,
                query=("limit",),
                returns=RollList,
            ),
            Route(
                "GET",
                "/v1/rolls/{id}",
                view,
                of,
                "A roll, its nodes: all, open (not done) or none",
                self._show,
                query=("nodes",),
                returns=OneRoll,
            ),
            Route(
                "POST",
                "/v1/rolls/{id}/pause",
                operate,
                of,
                "Begin no further switch",
                self._pause,
                order,
                returns=OneRoll,
            ),
            Route(
                "POST",
                "/v1/rolls/{id}/resume",
                operate,
                of,
                "Go on with a paused roll",
                self._resume,
                order,
                returns=OneRoll,
            ),
            Route(
                "POST",
                "/v1/rolls/{id}/abort",
                operate,
                of,
                "End a roll; nodes that have switched stay",
                self._abort,
                order,
                returns=OneRoll,
            ),
        )

    async def _start(self, request: web.Request, body: RollStart) -> Any:
        return {
            "roll": roll_view(
                await self._ops.rolls.start(body.range, ask_of(request, body)),
                self._head.store,
                "none",
            )
        }

    async def _list(self, request: web.Request, body: None) -> Any:
        limit = max(1, number(request, "limit", 20))
        caller, store = request[CALLER], self._head.store
        found = [
            r for r in self._head.rolls.all() if caller.groups is None or self._is_of(r, caller)
        ][:limit]
        return {"rolls": [roll_view(r, store, "none", brief=caller.looks_only) for r in found]}

    def _is_of(self, roll: Roll, caller: Caller) -> bool:
        """Whether all nodes of a roll are the caller's."""
        return all(
            (record := self._head.store.find(key)) is not None and caller.sees(record)
            for key in roll.nodes
        )

    async def _show(self, request: web.Request, body: None) -> Any:
        nodes = request.query.get("nodes", "all")
        if nodes not in SHOWS:
            raise InputError(f"cannot show nodes {nodes[:40]!r}: it is one of {', '.join(SHOWS)}")
        roll, brief = self._head.rolls.get(roll_number(request)), request[CALLER].looks_only
        return {"roll": roll_view(roll, self._head.store, nodes, brief=brief)}

    async def _pause(self, request: web.Request, body: RollOrder) -> Any:
        return await self._order(request, "pause", body)

    async def _resume(self, request: web.Request, body: RollOrder) -> Any:
        return await self._order(request, "resume", body)

    async def _abort(self, request: web.Request, body: RollOrder) -> Any:
        return await self._order(request, "abort", body)

    async def _order(self, request: web.Request, what: str, body: RollOrder) -> Any:
        roll = await self._head.rolls.order(roll_number(request), what, request[CALLER].by(body.by))
        return {"roll": roll_view(roll, self._head.store, "none")}
