"""The routes of freezes, maintenances, machines that were found running, silent nodes and
outages."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from layercake.api.answers import Names, NodesRequest
from layercake.api.route import CALLER, RANGE, Reach, route
from layercake.features.guard.answers import Domain, GuardShown, MaintenanceEnded, MaintenanceList
from layercake.features.guard.guard import Guard
from layercake.features.guard.operations import GuardChanges
from layercake.moduleapi.module import Role


class FreezeRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Without a range it is the whole site that is frozen."""

    reason: str
    range: str = ""
    by: str = ""


class ThawRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Without a range it is the freeze of the whole site that ends."""

    range: str = ""
    by: str = ""


class MaintenanceRequest(msgspec.Struct, forbid_unknown_fields=True):
    """`seconds` null: until it is ended."""

    range: str
    reason: str
    seconds: float | None = None
    by: str = ""


class OutageRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The domain whose outage a person ends, "" for the site."""

    domain: str
    by: str = ""


class GuardRoutes:
    """Freezes, maintenances, found machines, silent nodes and outages."""

    def __init__(self, care: GuardChanges, guard: Guard) -> None:
        self._care = care
        self._guard = guard

    @route("GET", "/v1/guard", Role.VIEWER, Reach.SHOWN, returns=GuardShown)
    async def show(self, request: web.Request, body: None) -> Any:
        """Freezes, outages, and how much waits."""
        return self._guard.view(request[CALLER].bound)

    @route(
        "POST", "/v1/guard/freeze", Role.OPERATOR, Reach.RANGE, body=FreezeRequest, returns=Names
    )
    async def freeze(self, request: web.Request, body: FreezeRequest) -> Any:
        """Freeze nodes or the site."""
        return {
            "nodes": await self._care.freeze(body.range, body.reason, request[CALLER].by(body.by))
        }

    @route("POST", "/v1/guard/thaw", Role.OPERATOR, Reach.RANGE, body=ThawRequest, returns=Names)
    async def thaw(self, request: web.Request, body: ThawRequest) -> Any:
        """End a freeze."""
        return {"nodes": await self._care.thaw(body.range, request[CALLER].by(body.by))}

    @route(
        "GET",
        "/v1/maintenance",
        Role.VIEWER,
        Reach.RANGE,
        query=("range",),
        returns=MaintenanceList,
    )
    async def maintenances(self, request: web.Request, body: None) -> Any:
        """Maintenances, under way and over."""
        return {"maintenances": self._care.maintenances(request[RANGE])}

    @route(
        "POST",
        "/v1/maintenance/begin",
        Role.OPERATOR,
        Reach.RANGE,
        body=MaintenanceRequest,
        returns=Names,
    )
    async def begin(self, request: web.Request, body: MaintenanceRequest) -> Any:
        """Begin the maintenance of nodes."""
        return {
            "nodes": await self._care.begin(
                body.range, body.reason, request[CALLER].by(body.by), body.seconds
            )
        }

    @route(
        "POST",
        "/v1/maintenance/end",
        Role.OPERATOR,
        Reach.RANGE,
        body=NodesRequest,
        returns=MaintenanceEnded,
    )
    async def end(self, request: web.Request, body: NodesRequest) -> Any:
        """End the maintenance of nodes."""
        return await self._care.end(body.range, request[CALLER].by(body.by))

    @route("POST", "/v1/nodes/take", Role.OPERATOR, Reach.RANGE, body=NodesRequest, returns=Names)
    async def adopt(self, request: web.Request, body: NodesRequest) -> Any:
        """Take over machines that were found running."""
        return {"nodes": await self._care.adopt(body.range, request[CALLER].by(body.by))}

    @route("POST", "/v1/nodes/remedy", Role.OPERATOR, Reach.RANGE, body=NodesRequest, returns=Names)
    async def release(self, request: web.Request, body: NodesRequest) -> Any:
        """Let silent nodes be started anew."""
        return {"nodes": await self._care.release(body.range, request[CALLER].by(body.by))}

    @route(
        "POST", "/v1/guard/outage", Role.OPERATOR, Reach.SITE, body=OutageRequest, returns=Domain
    )
    async def end_outage(self, request: web.Request, body: OutageRequest) -> Any:
        """End an outage: what is silent is treated."""
        await self._care.end_outage(body.domain, request[CALLER].by(body.by))
        return {"domain": body.domain}
