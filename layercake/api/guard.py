"""The routes of freezes, maintenances, machines that were found running, silent nodes and
outages."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from layercake.api.answers.head import Domain, GuardShown, MaintenanceList
from layercake.api.answers.nodes import Names
from layercake.api.route import CALLER, RANGE, Reach, Route
from layercake.head.operations import Operations
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


class CareRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Nodes, and who asks."""

    range: str
    by: str = ""


class OutageRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The domain whose outage a person ends, "" for the site."""

    domain: str
    by: str = ""


def routes(ops: Operations) -> tuple[Route, ...]:
    """The routes over one head."""

    def who(request: web.Request, said: str) -> str:
        return request[CALLER].by(said)

    async def show(request: web.Request, body: None) -> Any:
        return ops.head.guard.view(request[CALLER].bound)

    async def freeze(request: web.Request, body: FreezeRequest) -> Any:
        return {"nodes": await ops.care.freeze(body.range, body.reason, who(request, body.by))}

    async def thaw(request: web.Request, body: ThawRequest) -> Any:
        return {"nodes": await ops.care.thaw(body.range, who(request, body.by))}

    async def maintenances(request: web.Request, body: None) -> Any:
        return {"maintenances": ops.care.maintenances(request[RANGE])}

    async def begin(request: web.Request, body: MaintenanceRequest) -> Any:
        return {
            "nodes": await ops.care.begin(
                body.range, body.reason, who(request, body.by), body.seconds
            )
        }

    async def end(request: web.Request, body: CareRequest) -> Any:
        return {"nodes": await ops.care.end(body.range, who(request, body.by))}

    async def take(request: web.Request, body: CareRequest) -> Any:
        return {"nodes": await ops.care.adopt(body.range, who(request, body.by))}

    async def release(request: web.Request, body: CareRequest) -> Any:
        return {"nodes": await ops.care.release(body.range, who(request, body.by))}

    async def end_outage(request: web.Request, body: OutageRequest) -> Any:
        await ops.care.end_outage(body.domain, who(request, body.by))
        return {"domain": body.domain}

    view, operate, nodes = Role.VIEWER, Role.OPERATOR, Reach.RANGE
    return (
        Route(
            "GET",
            "/v1/guard",
            view,
            Reach.SHOWN,
            "Freezes, outages, and how much waits",
            show,
            returns=GuardShown,
        ),
        Route(
            "POST",
            "/v1/guard/freeze",
            operate,
            nodes,
            "Freeze nodes or the site",
            freeze,
            FreezeRequest,
            returns=Names,
        ),
        Route(
            "POST",
            "/v1/guard/thaw",
            operate,
            nodes,
            "End a freeze",
            thaw,
            ThawRequest,
            returns=Names,
        ),
        Route(
            "POST",
            "/v1/guard/outage",
            operate,
            Reach.SITE,
            "End an outage: what is silent is treated",
            end_outage,
            OutageRequest,
            returns=Domain,
        ),
        Route(
            "GET",
            "/v1/maintenance",
            view,
            nodes,
            "Maintenances, under way and over",
            maintenances,
            query=("range",),
            returns=MaintenanceList,
        ),
        Route(
            "POST",
            "/v1/maintenance/begin",
            operate,
            nodes,
            "Begin the maintenance of nodes",
            begin,
            MaintenanceRequest,
            returns=Names,
        ),
        Route(
            "POST",
            "/v1/maintenance/end",
            operate,
            nodes,
            "End the maintenance of nodes",
            end,
            CareRequest,
            returns=Names,
        ),
        Route(
            "POST",
            "/v1/nodes/take",
            operate,
            nodes,
            "Take over machines that were found running",
            take,
            CareRequest,
            returns=Names,
        ),
        Route(
            "POST",
            "/v1/nodes/remedy",
            operate,
            nodes,
            "Let silent nodes be started anew",
            release,
            CareRequest,
            returns=Names,
        ),
    )
