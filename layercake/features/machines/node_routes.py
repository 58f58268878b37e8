"""What machines hand in of their hardware: nodes under their session, and strangers by a ticket
that is good for nothing else."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from layercake.agents.https.routes import NodeRoute, OpenRoute
from layercake.base.text import parse_json
from layercake.features.machines.hardware import report
from layercake.features.machines.manager import Machines
from layercake.fleet.store import Record
from layercake.kraken.errors import InputError
from layercake.moduleapi.web import body_of, known

WEIGHT = 20.0
"""What a stranger's request counts at the door: five a second are a lot for it."""


class MachineReports:
    """Takes their reports."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines

    def routes(self) -> list[NodeRoute | OpenRoute]:
        """The routes."""
        return [
            NodeRoute("POST", "/node/v1/survey", self._survey),
            OpenRoute("POST", "/node/v1/machine", self._stranger),
        ]

    async def _survey(self, record: Record, request: web.Request) -> web.Response:
        """A node's survey."""
        await self._machines.survey(record, (await _object(request)).get("report"))
        return web.json_response({})

    async def _stranger(self, request: web.Request) -> web.Response:
        """A stranger speaks, perhaps with a report."""
        body = await _object(request)
        answer = await self._machines.stranger(body, request.remote or "")
        known(request, f"stranger/{str(body.get('mac'))[:17].lower()}", WEIGHT)
        return web.json_response(answer)


async def _object(request: web.Request) -> dict[str, Any]:
    """The body. Raises InputError."""
    try:
        body = parse_json(await body_of(request, report.MOST_BYTES))
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise InputError("cannot take the report: it is not an object of JSON")
    return body
