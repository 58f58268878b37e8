"""The routes of power."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from aiohttp import web

from layercake.api.answers.nodes import AcceptedList, CapList, PowerList, SensorList, SetupList
from layercake.api.route import CALLER, RANGE, Reach, Route, while_there
from layercake.head.operations import Operations
from layercake.moduleapi.module import Role

_STATES = {"on": "up", "off": "off", "cycle": "cycle"}


class PowerRequest(msgspec.Struct, forbid_unknown_fields=True):
    """on and off change what is wanted; cycle boots anew. `soft`, with off: once the system inside
    has shut down by itself, and never otherwise."""

    range: str
    action: Literal["on", "off", "cycle"]
    force: bool = False
    soft: bool = False


class CapRequest(msgspec.Struct, forbid_unknown_fields=True):
    """At how many watts the BMCs cap what nodes draw; null for no cap."""

    range: str
    watts: Annotated[int, msgspec.Meta(ge=1, le=65535)] | None


class SetupRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Which BMCs are set up from inside; without `apply` it is said what would change. `prefix` is
    the length of the prefix of their network, 0 for what the inventory says, or as it is."""

    range: str
    apply: bool = False
    gateway: str = ""
    prefix: Annotated[int, msgspec.Meta(ge=0, le=30)] = 0


def routes(ops: Operations) -> tuple[Route, ...]:
    """The routes over one head."""

    async def status(request: web.Request, body: None) -> Any:
        rows = await ops.power.status(request[RANGE])
        if request[CALLER].looks_only:
            rows = [
                {**r, "driver": None, "address": None, "error": r["error"] and "cannot be asked"}
                for r in rows
            ]
        return {"power": rows}

    async def sensors(request: web.Request, body: None) -> Any:
        rows = await while_there(request, ops.power.sensors(request[RANGE]))
        if request[CALLER].looks_only:
            rows = [{**r, "error": r["error"] and "cannot be asked"} for r in rows]
        return {"sensors": rows}

    async def change(request: web.Request, body: PowerRequest) -> Any:
        who = request[CALLER].by()
        if body.action == "cycle" and not body.soft:
            names = await ops.power.cycle(body.range, body.force, who)
        else:
            names = await ops.nodes.set_state(
                body.range, _STATES[body.action], body.force, who, soft=body.soft
            )
        return {"nodes": [{"node": n, "accepted": True, "why": ""} for n in names]}

    async def caps(request: web.Request, body: None) -> Any:
        rows = await while_there(request, ops.power.caps(request[RANGE]))
        if request[CALLER].looks_only:
            rows = [{**r, "error": r["error"] and "cannot be asked"} for r in rows]
        return {"nodes": rows}

    async def cap(request: web.Request, body: CapRequest) -> Any:
        return {"nodes": await ops.power.cap(body.range, body.watts, request[CALLER].by())}

    async def set_up(request: web.Request, body: SetupRequest) -> Any:
        return {
            "nodes": await ops.power.set_up(
                body.range, body.apply, body.gateway, body.prefix, request[CALLER].by()
            )
        }

    return (
        Route(
            "GET",
            "/v1/power",
            Role.VIEWER,
            Reach.RANGE,
            "What the BMCs say now",
            status,
            query=("range",),
            returns=PowerList,
        ),
        Route(
            "GET",
            "/v1/power/sensors",
            Role.VIEWER,
            Reach.RANGE,
            "Power draw, temperatures and fans, read now",
            sensors,
            query=("range",),
            returns=SensorList,
        ),
        Route(
            "POST",
            "/v1/power",
            Role.OPERATOR,
            Reach.RANGE,
            "Power on, off or cycle",
            change,
            PowerRequest,
            returns=AcceptedList,
        ),
        Route(
            "GET",
            "/v1/power/cap",
            Role.VIEWER,
            Reach.RANGE,
            "How many watts nodes may draw, by their BMCs",
            caps,
            query=("range",),
            returns=CapList,
        ),
        Route(
            "POST",
            "/v1/power/cap",
            Role.OPERATOR,
            Reach.RANGE,
            "Cap what nodes draw, by their BMCs",
            cap,
            CapRequest,
            returns=CapList,
        ),
        Route(
            "POST",
            "/v1/power/setup",
            Role.ADMIN,
            Reach.RANGE,
            "BMCs from inside: in what they are not as the inventory says, and have them be so",
            set_up,
            SetupRequest,
            returns=SetupList,
        ),
    )
