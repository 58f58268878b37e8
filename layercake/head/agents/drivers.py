"""What nodes ask for devices without a driver: which modules of their kernel there are for them,
and these modules, one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from layercake.base.text import parse_json
from layercake.fleet.store import Record
from layercake.head.boots import BootSets
from layercake.kraken.errors import InputError, NotFound
from layercake.moduleapi.web import body_of
from minos.build.drivers import Drivers

Authenticate = Callable[[web.Request], Record]
Found = TypeVar("Found")
MOST_DEVICES, _MAX_ALIAS, _MAX_BODY = 1000, 1024, 1 << 20


class DriverApi:
    """The answers. `enabled` is the setting more_drivers. A node gets what is of the boot set that
    it has booted, nothing else."""

    def __init__(self, authenticate: Authenticate, boots: BootSets, *, enabled: bool) -> None:
        self._authenticate = authenticate
        self._boots = boots
        self._enabled = enabled
        self._turn = asyncio.Lock()
        """One thread for all nodes: whatever they ask, the head goes first."""

    async def wanted(self, request: web.Request) -> web.Response:
        """Which modules there are for devices."""
        record = self._authenticate(request)
        release, devices = _question(await body_of(request, _MAX_BODY))
        empty: dict[str, Any] = {"devices": {}, "modules": {}}
        found = (
            await self._aside(record, lambda drivers: drivers.wanted(release, devices))
            if self._enabled
            else None
        )
        return web.Response(
            body=msgspec.json.encode(empty if found is None else found),
            content_type="application/json",
        )

    async def module(self, request: web.Request) -> web.Response:
        """One module."""
        return await self._file(request, lambda drivers: drivers.module(request.match_info["name"]))

    async def firmware(self, request: web.Request) -> web.Response:
        """One firmware file."""
        return await self._file(
            request, lambda drivers: drivers.firmware(request.match_info["path"])
        )

    async def _file(self, request: web.Request, read: Callable[[Drivers], bytes]) -> web.Response:
        data = await self._aside(self._authenticate(request), read) if self._enabled else None
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
