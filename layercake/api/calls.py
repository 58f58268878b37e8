"""The routes of what modules can be asked: the calls of their tables, each with the role that its
module gives it."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from layercake.api.answers.events import CallAnswers, CallList
from layercake.api.route import CALLER, Reach, Route
from layercake.head.operations import Operations
from layercake.moduleapi.module import Role


class CallRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A call of the nodes of a range, or with "" of the module itself; `params` are the request's
    other fields."""

    range: str = ""
    params: dict[str, Any] = {}


def routes(ops: Operations) -> tuple[Route, ...]:
    """The routes over one head."""

    async def every(request: web.Request, body: None) -> Any:
        return {"calls": ops.calls.views()}

    async def ask(request: web.Request, body: CallRequest) -> Any:
        answers = await ops.calls.call(request.match_info["name"], body.range, body.params)
        if request[CALLER].looks_only:
            answers = [
                a
                if a["ok"]
                else {**a, "error": "cannot be answered", "hint": "an operator is told why"}
                for a in answers
            ]
        return {"answers": answers}

    def role(request: web.Request) -> Role:
        return ops.calls.find(request.match_info["name"]).role

    return (
        Route(
            "GET",
            "/v1/calls",
            Role.VIEWER,
            Reach.NONE,
            "What modules can be asked",
            every,
            returns=CallList,
        ),
        Route(
            "POST",
            "/v1/calls/{name}",
            Role.VIEWER,
            Reach.RANGE,
            "Ask a module; each call has a role of its own",
            ask,
            CallRequest,
            role_of=role,
            returns=CallAnswers,
        ),
    )
