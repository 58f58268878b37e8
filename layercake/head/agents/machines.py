"""What machines hand in of their hardware: nodes under their session, and strangers by a ticket
that is good for nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web

from layercake.base.text import parse_json
from layercake.fleet.store import Record
from layercake.head.machines import report
from layercake.head.machines.keeper import Machines
from layercake.kraken.errors import InputError
from layercake.moduleapi.web import body_of, known

WEIGHT = 20.0
"""What a stranger's request counts at the door: five a second are a lot for it."""


class MachineApi:
    """The two routes."""

    def __init__(self, authenticate: Callable[[web.Request], Record], machines: Machines) -> None:
        self._authenticate, self._machines = authenticate, machines

    async def survey(self, request: web.Request) -> web.Response:
        """A node's survey."""
        record = self._authenticate(request)
        await self._machines.survey(record, (await _object(request)).get("report"))
        return web.json_response({})

    async def stranger(self, request: web.Request) -> web.Response:
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
