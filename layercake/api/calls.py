"""The routes of what modules can be asked: the calls of their tables, each with the role that its module gives it."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from layercake.api.route import ROLE, Route
from layercake.head.operations import Operations
from layercake.kraken.errors import Refused
from layercake.moduleapi.module import Role


class CallRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A call of the nodes of a range, or with "" of the module itself; `params` are the request's other fields."""

    range: str = ""
    params: dict[str, Any] = {}


def routes(ops: Operations) -> tuple[Route, ...]:
    """The routes over one head."""

    async def every(request: web.Request, body: None) -> Any:
        return {"calls": ops.calls.views()}

    async def ask(request: web.Request, body: CallRequest) -> Any:
        call = ops.calls.find(request.match_info["name"])
        if request[ROLE] < call.role:
            raise Refused(f"cannot call {call.name}: it needs the role {call.role.name.lower()}")
        return {"answers": await ops.calls.ask(call.name, body.range, body.params)}

    return (
        Route("GET", "/v1/calls", Role.VIEWER, "What modules can be asked", every),
        Route("POST", "/v1/calls/{name}", Role.VIEWER, "Ask a module; each call has a role of its own", ask, CallRequest),
    )
