"""The routes of what modules can be asked: the calls of their tables, each with the role that its
module gives it."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from layercake.api.route import CALLER, Reach, route
from layercake.features.calls.answers import CallAnswers, CallList
from layercake.features.calls.operations import Calls
from layercake.moduleapi.module import Role


class CallRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A call of the nodes of a range, or with "" of the module itself; `params` are the request's
    other fields."""

    range: str = ""
    params: dict[str, Any] = {}


class CallRoutes:
    """The calls of modules."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    @route("GET", "/v1/calls", Role.VIEWER, Reach.NONE, returns=CallList)
    async def every(self, request: web.Request, body: None) -> Any:
        """What modules can be asked."""
        return {"calls": self._calls.views()}

    def _role(self, request: web.Request) -> Role:
        return self._calls.find(request.match_info["name"]).role

    @route(
        "POST",
        "/v1/calls/{name}",
        Role.VIEWER,
        Reach.RANGE,
        body=CallRequest,
        role_of=_role,
        returns=CallAnswers,
    )
    async def ask(self, request: web.Request, body: CallRequest) -> Any:
        """Ask a module; each call has a role of its own."""
        answers = await self._calls.call(request.match_info["name"], body.range, body.params)
        if request[CALLER].looks_only:
            answers = [
                a
                if a["ok"]
                else {**a, "error": "cannot be answered", "hint": "an operator is told why"}
                for a in answers
            ]
        return {"answers": answers}
