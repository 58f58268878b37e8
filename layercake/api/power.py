"""The routes of power."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from aiohttp import web

from layercake.api.route import Route
from layercake.head.operations import Operations
from layercake.moduleapi.module import Role


class PowerRequest(msgspec.Struct, forbid_unknown_fields=True):
    """on and off change what is wanted; cycle boots anew."""

    range: str
    action: Literal["on", "off", "cycle"]
    force: bool = False


def routes(ops: Operations) -> tuple[Route, ...]:
    """The routes over one head."""

    async def status(request: web.Request, body: None) -> Any:
        return {"power": await ops.power.status(request.query.get("range", ""))}

    async def change(request: web.Request, body: PowerRequest) -> Any:
        if body.action == "cycle":
            names = await ops.power.cycle(body.range, body.force)
        else:
            names = await ops.nodes.set_state(body.range, "up" if body.action == "on" else "off", body.force)
        return {"nodes": [{"node": n, "accepted": True, "why": ""} for n in names]}

    return (
        Route("GET", "/v1/power", Role.VIEWER, "What the BMCs say now", status, query=("range",)),
        Route("POST", "/v1/power", Role.OPERATOR, "Power on, off or cycle", change, PowerRequest),
    )
