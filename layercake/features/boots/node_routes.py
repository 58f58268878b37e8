"""What nodes ask of boot sets: the agent that they shall have; which modules of their kernel there
are for devices without a driver, and these modules, one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from aiohttp import web

from layercake.agents.https.routes import NodeRoute, json_answer
from layercake.base.text import parse_json
from layercake.features.boots.boot_sets import BootSets
from layercake.fleet.store import Record
from layercake.kraken.errors import InputError, NotFound, Refused
from layercake.moduleapi.web import body_of
from minos.build.drivers import Drivers

Found = TypeVar("Found")
MOST_DEVICES = 1000
_MAX_ALIAS = 1024
_MAX_BODY = 1 << 20


class BootSetRequests:
    """The answers. `more_drivers` is the setting of that name. A node gets what is of the boot set
    that it has booted, nothing else."""

    def __init__(self, boots: BootSets, *, more_drivers: bool) -> None:
        self._boots = boots
        self._more_drivers = more_drivers
        self._turn = asyncio.Lock()
        """One thread for all nodes: whatever they ask, the head goes first."""

    def routes(self) -> list[NodeRoute]:
        """The routes."""
        return [
            NodeRoute("GET", "/node/v1/agent/{name}", self._agent),
            NodeRoute("POST", "/node/v1/drivers", self._drivers),
            NodeRoute("GET", "/node/v1/modules/{name}", self._module),
            NodeRoute("GET", "/node/v1/firmware/{path:.+}", self._firmware),
        ]

    async def _agent(self, record: Record, request: web.Request) -> web.Response:
        """The agent that a node shall have, and no other."""
        name = request.match_info["name"]
        if name != record.boots.agent:
            raise Refused(
                "cannot hand out the agent: it is not the one that is wanted of this node"
            )
        agent = await asyncio.to_thread(self._boots.agent, name)
        return web.Response(body=agent, content_type="application/zip")

    async def _drivers(self, record: Record, request: web.Request) -> web.Response:
        """Which modules there are for devices."""
        release, devices = _question(await body_of(request, _MAX_BODY))
        found: Any = {"devices": {}, "modules": {}}
        if self._more_drivers:
            wanted = await self._aside(record, lambda drivers: drivers.wanted(release, devices))
            found = wanted or found
        return json_answer(found)

    async def _module(self, record: Record, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        return await self._file(record, lambda drivers: drivers.module(name))

    async def _firmware(self, record: Record, request: web.Request) -> web.Response:
        path = request.match_info["path"]
        return await self._file(record, lambda drivers: drivers.firmware(path))

    async def _file(self, record: Record, read: Callable[[Drivers], bytes]) -> web.Response:
        data = await self._aside(record, read) if self._more_drivers else None
        if data is None:
            raise NotFound(
                "cannot hand out the file: the boot set that this node has booted has none"
            )
        return web.Response(body=data, content_type="application/octet-stream")

    async def _aside(self, record: Record, what: Callable[[Drivers], Found]) -> Found | None:
        """Has a thread do something with the modules of a node's boot set; None if there are
        none."""
        name = record.boots.runs
        if not name:
            return None

        def work() -> Found | None:
            drivers = self._boots.drivers(name)
            return None if drivers is None else what(drivers)

        async with self._turn:
            return await asyncio.to_thread(work)


def _question(data: bytes) -> tuple[str, list[str]]:
    """(release of the kernel, what devices say they are). Raises InputError."""
    try:
        body = parse_json(data)
    except ValueError:
        body = None
    release, devices = (
        (body.get(word) for word in ("release", "devices"))
        if isinstance(body, dict)
        else (None, None)
    )
    if (
        not isinstance(release, str)
        or not isinstance(devices, list)
        or len(devices) > MOST_DEVICES
        or not all(isinstance(alias, str) and len(alias) <= _MAX_ALIAS for alias in devices)
    ):
        raise InputError(
            f"cannot take the question: expected a release, and up to {MOST_DEVICES} devices as "
            "their modalias says"
        )
    return release, devices
