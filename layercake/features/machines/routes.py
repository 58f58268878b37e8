"""The routes of machines: those that no inventory knows, and the hardware of nodes."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from aiohttp import web

from layercake.api.answers import Names, NodesRequest
from layercake.api.route import CALLER, Reach, route
from layercake.features.machines.answers import (
    Adopted,
    Forgotten,
    GivenFree,
    MachineList,
    NodeDisks,
    OneMachine,
    Scanned,
)
from layercake.features.machines.operations import MachineRequests
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


class MachineRoutes:
    """Machines: known and unknown ones, their hardware and disks."""

    def __init__(self, machines: MachineRequests) -> None:
        self._machines = machines

    @route("GET", "/v1/machines", Role.OPERATOR, Reach.SITE, returns=MachineList)
    async def show(self, request: web.Request, body: None) -> Any:
        """Machines that no inventory knows."""
        return {"machines": self._machines.all()}

    @route("GET", "/v1/machines/{mac}", Role.OPERATOR, Reach.SITE, returns=OneMachine)
    async def one(self, request: web.Request, body: None) -> Any:
        """One machine, by its MAC address or as a node, with its report."""
        return await self._machines.one(request.match_info["mac"])

    @route(
        "POST", "/v1/machines/adopt", Role.OPERATOR, Reach.SITE, body=AdoptRequest, returns=Adopted
    )
    async def adopt(self, request: web.Request, body: AdoptRequest) -> Any:
        """The inventory's entries for machines that were discovered."""
        return self._machines.adopt(
            body.macs, body.name, body.order, body.ip, body.groups, bmc=body.bmc
        )

    @route(
        "POST", "/v1/machines/scan", Role.OPERATOR, Reach.SITE, body=ScanRequest, returns=Scanned
    )
    async def scan(self, request: web.Request, body: ScanRequest) -> Any:
        """Ask the addresses of a network whether a BMC is there."""
        return await self._machines.scan(body.network, body.start)

    @route(
        "POST", "/v1/machines/accept", Role.OPERATOR, Reach.RANGE, body=NodesRequest, returns=Names
    )
    async def accept(self, request: web.Request, body: NodesRequest) -> Any:
        """Accept the hardware of nodes as it is."""
        return {"nodes": await self._machines.accept(body.range, request[CALLER].by(body.by))}

    @route("DELETE", "/v1/machines/{mac}", Role.OPERATOR, Reach.SITE, returns=Forgotten)
    async def forget(self, request: web.Request, body: None) -> Any:
        """Forget a machine that no inventory knows."""
        return {
            "forgotten": await self._machines.forget(
                request.match_info["mac"], request[CALLER].by("")
            )
        }

    @route("GET", "/v1/nodes/{name}/disks", Role.OPERATOR, Reach.NODE, returns=NodeDisks)
    async def disks(self, request: web.Request, body: None) -> Any:
        """The disks of a node, and what is in the way."""
        return self._machines.disks(request.match_info["name"])

    @route(
        "POST",
        "/v1/nodes/{name}/disks/wipe",
        Role.ADMIN,
        Reach.NODE,
        body=WipeRequest,
        returns=GivenFree,
    )
    async def wipe(self, request: web.Request, body: WipeRequest) -> Any:
        """Give a disk free that holds something else: it is made anew."""
        return await self._machines.wipe(
            request.match_info["name"], body.disk, body.mark, request[CALLER].by(body.by)
        )
