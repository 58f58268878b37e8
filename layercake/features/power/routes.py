"""The routes of power."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

import msgspec
from aiohttp import web

from layercake.api.route import CALLER, RANGE, Reach, route, while_there
from layercake.api.streams import send_pieces
from layercake.features.nodes.lists.metrics import KIND
from layercake.features.nodes.operations import Nodes
from layercake.features.power.answers import AcceptedList, CapList, PowerList, SensorList, SetupList
from layercake.features.power.operations import Power
from layercake.features.power.passwords import BmcPasswords, Changed
from layercake.features.power.readings import NodeReadings
from layercake.kraken.errors import InputError
from layercake.moduleapi.module import Role

_STATES = {"on": "up", "off": "off", "cycle": "cycle"}

_LINES = "application/x-ndjson"
_LEFT_OFF = "stays off when its maintenance is over, until `layercake power on {}`"


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


class PasswordChange(msgspec.Struct, forbid_unknown_fields=True):
    """Whose BMCs get a new password: a random one, or what is in the file `new` of the head's
    directory of secrets."""

    range: str
    new: str = ""


class SetupRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Which BMCs are set up from inside; without `apply` it is said what would change. `prefix` is
    the length of the prefix of their network, 0 for what the inventory says, or as it is."""

    range: str
    apply: bool = False
    gateway: str = ""
    prefix: Annotated[int, msgspec.Meta(ge=0, le=30)] = 0


class PowerRoutes:
    """Power, as people ask for it."""

    def __init__(
        self, power: Power, nodes: Nodes, passwords: BmcPasswords, readings: NodeReadings
    ) -> None:
        self._passwords = passwords
        self._power = power
        self._nodes = nodes
        self._readings = readings

    @route("GET", "/v1/metrics/nodes", Role.VIEWER, Reach.SHOWN, kinds=("text/plain",))
    async def numbers(self, request: web.Request, body: None) -> Any:
        """Power and temperature of each node, for Prometheus, as they were read last."""
        text = await self._readings.page(request[CALLER].bound)
        return web.Response(text=text, headers={"Content-Type": KIND})

    @route("GET", "/v1/power", Role.VIEWER, Reach.RANGE, query=("range",), returns=PowerList)
    async def status(self, request: web.Request, body: None) -> Any:
        """What the BMCs say now."""
        rows = await self._power.status(request[RANGE])
        if request[CALLER].looks_only:
            rows = [
                {**r, "driver": None, "address": None, "error": r["error"] and "cannot be asked"}
                for r in rows
            ]
        return {"power": rows}

    @route(
        "GET", "/v1/power/sensors", Role.VIEWER, Reach.RANGE, query=("range",), returns=SensorList
    )
    async def sensors(self, request: web.Request, body: None) -> Any:
        """Power draw, temperatures and fans, read now."""
        rows = await while_there(request, self._power.sensors(request[RANGE]))
        if request[CALLER].looks_only:
            rows = [{**r, "error": r["error"] and "cannot be asked"} for r in rows]
        return {"sensors": rows}

    @route("POST", "/v1/power", Role.OPERATOR, Reach.RANGE, body=PowerRequest, returns=AcceptedList)
    async def change(self, request: web.Request, body: PowerRequest) -> Any:
        """Power on, off or cycle."""
        who = request[CALLER].by()
        if body.soft and body.action != "off":
            raise InputError(
                f"cannot power {body.action} softly: only a node that goes off can be asked to "
                "shut down by itself",
                hint="`layercake power off RANGE --soft`, and `layercake power on RANGE` once it "
                "is off",
            )
        if body.action == "cycle":
            names = await self._power.cycle(body.range, body.force, who)
        else:
            names = await self._nodes.set_state(
                body.range, _STATES[body.action], body.force, who, soft=body.soft
            )
        off = self._nodes.left_off(names)
        return {
            "nodes": [
                {"node": n, "accepted": True, "why": _LEFT_OFF.format(n) if n in off else ""}
                for n in names
            ]
        }

    @route("GET", "/v1/power/cap", Role.VIEWER, Reach.RANGE, query=("range",), returns=CapList)
    async def caps(self, request: web.Request, body: None) -> Any:
        """How many watts nodes may draw, by their BMCs."""
        rows = await while_there(request, self._power.caps(request[RANGE]))
        if request[CALLER].looks_only:
            rows = [{**r, "error": r["error"] and "cannot be asked"} for r in rows]
        return {"nodes": rows}

    @route("POST", "/v1/power/cap", Role.OPERATOR, Reach.RANGE, body=CapRequest, returns=CapList)
    async def cap(self, request: web.Request, body: CapRequest) -> Any:
        """Cap what nodes draw, by their BMCs."""
        return {"nodes": await self._power.cap(body.range, body.watts, request[CALLER].by())}

    @route("POST", "/v1/power/setup", Role.ADMIN, Reach.RANGE, body=SetupRequest, returns=SetupList)
    async def set_up(self, request: web.Request, body: SetupRequest) -> Any:
        """BMCs from inside: in what they are not as the inventory says, and have them be so."""
        return {
            "nodes": await self._power.set_up(
                body.range, body.apply, body.gateway, body.prefix, request[CALLER].by()
            )
        }

    @route(
        "POST",
        "/v1/power/password",
        Role.ADMIN,
        Reach.RANGE,
        body=PasswordChange,
        stream=True,
        kinds=(_LINES,),
    )
    async def password(self, request: web.Request, body: PasswordChange) -> Any:
        """Give BMCs a new password, each of which is seen to work first; a JSON line for each node
        as it is done."""
        results = await self._passwords.change(body.range, body.new, request[CALLER].by())
        async with contextlib.aclosing(results):
            return await send_pieces(request, _LINES, _as_lines(results))


async def _as_lines(results: AsyncIterator[Changed]) -> AsyncIterator[bytes]:
    async for result in results:
        yield msgspec.json.encode(result) + b"\n"
