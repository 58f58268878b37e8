"""The routes of machines: those that no inventory knows, and the hardware of nodes."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from aiohttp import web

from layercake.api.answers.machines import (
    Adopted,
    Forgotten,
    GivenFree,
    MachineList,
    NodeDisks,
    OneMachine,
    Scanned,
)
from layercake.api.answers.nodes import Names
from layercake.api.route import CALLER, Reach, Route
from layercake.head.operations import Operations
from layercake.moduleapi.module import Role


class AdoptRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Which machines, by their MAC addresses, all that were discovered without; the names of the
    nodes (n[01-48]), the first of their addresses, their groups, and in which order: switch-port,
    mac, serial or seen. `bmc`: with the addresses of their BMCs."""

    name: str
    ip: str
    macs: list[str] = []
    order: str = "switch-port"
    groups: list[str] = []
    bmc: bool = False


class AcceptRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The nodes whose hardware is right as it is, and who says so."""

    range: str
    by: str = ""


class WipeRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The disk, by its serial number or WWID, the mark of what it was seen to hold, and who says
    so."""

    disk: str
    mark: str
    by: str = ""


class ScanRequest(msgspec.Struct, forbid_unknown_fields=True):
    """An IPv4 network of at most 4096 addresses, and where in it a page begins."""

    network: str
    start: Annotated[int, msgspec.Meta(ge=0)] = 0


def routes(ops: Operations) -> tuple[Route, ...]:
    """The routes over one head."""

    async def show(request: web.Request, body: None) -> Any:
        return {"machines": ops.machines.all()}

    async def one(request: web.Request, body: None) -> Any:
        return await ops.machines.one(request.match_info["mac"])

    async def adopt(request: web.Request, body: AdoptRequest) -> Any:
        return ops.machines.adopt(
            body.macs, body.name, body.order, body.ip, body.groups, bmc=body.bmc
        )

    async def scan(request: web.Request, body: ScanRequest) -> Any:
        return await ops.machines.scan(body.network, body.start)

    async def accept(request: web.Request, body: AcceptRequest) -> Any:
        return {"nodes": await ops.machines.accept(body.range, request[CALLER].by(body.by))}

    async def forget(request: web.Request, body: None) -> Any:
        return {
            "forgotten": await ops.machines.forget(
                request.match_info["mac"], request[CALLER].by("")
            )
        }

    async def disks(request: web.Request, body: None) -> Any:
        return ops.machines.disks(request.match_info["name"])

    async def wipe(request: web.Request, body: WipeRequest) -> Any:
        return await ops.machines.wipe(
            request.match_info["name"], body.disk, body.mark, request[CALLER].by(body.by)
        )

    operator = Role.OPERATOR
    return (
        Route(
            "GET",
            "/v1/machines",
            operator,
            Reach.SITE,
            "Machines that no inventory knows",
            show,
            returns=MachineList,
        ),
        Route(
            "POST",
            "/v1/machines/adopt",
            operator,
            Reach.SITE,
            "The inventory's entries for machines that were discovered",
            adopt,
            AdoptRequest,
            returns=Adopted,
        ),
        Route(
            "POST",
            "/v1/machines/scan",
            operator,
            Reach.SITE,
            "Ask the addresses of a network whether a BMC is there",
            scan,
            ScanRequest,
            returns=Scanned,
        ),
        Route(
            "POST",
            "/v1/machines/accept",
            operator,
            Reach.RANGE,
            "Accept the hardware of nodes as it is",
            accept,
            AcceptRequest,
            returns=Names,
        ),
        Route(
            "GET",
            "/v1/machines/{mac}",
            operator,
            Reach.SITE,
            "One machine, by its MAC address or as a node, with its report",
            one,
            returns=OneMachine,
        ),
        Route(
            "DELETE",
            "/v1/machines/{mac}",
            operator,
            Reach.SITE,
            "Forget a machine that no inventory knows",
            forget,
            returns=Forgotten,
        ),
        Route(
            "GET",
            "/v1/nodes/{name}/disks",
            operator,
            Reach.NODE,
            "The disks of a node, and what is in the way",
            disks,
            returns=NodeDisks,
        ),
        Route(
            "POST",
            "/v1/nodes/{name}/disks/wipe",
            Role.ADMIN,
            Reach.NODE,
            "Give a disk free that holds something else: it is made anew",
            wipe,
            WipeRequest,
            returns=GivenFree,
        ),
    )
