"""The routes of releases of nodes between users."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from aiohttp import web

from layercake.api.answers import Names
from layercake.api.route import CALLER, RANGE, Reach, route, while_there
from layercake.features.releases.answers import NodeReleaseList, ReleasesOfNodes
from layercake.features.releases.operations import NodeReleases
from layercake.moduleapi.module import Role


class ReleaseRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The nodes that are released: their disks are erased. `force` includes BUSY ones, and does not
    wait for what runs."""

    range: str
    force: bool = False
    by: str = ""


class ReleaseChange(msgspec.Struct, forbid_unknown_fields=True):
    """What becomes of the releases of nodes: they are tried again, given up, confirmed where only
    the node speaks for them, or their nodes are freed."""

    range: str
    what: Literal["retry", "abandon", "free", "confirm"]
    by: str = ""


class ReleaseRoutes:
    """Releases of nodes between users."""

    def __init__(self, releases: NodeReleases) -> None:
        self._releases = releases

    @route("POST", "/v1/nodes/release", Role.ADMIN, Reach.RANGE, body=ReleaseRequest, returns=Names)
    async def begin(self, request: web.Request, body: ReleaseRequest) -> Any:
        """Release nodes for their next users: their disks are erased."""
        return {
            "nodes": await self._releases.begin(body.range, body.force, request[CALLER].by(body.by))
        }

    @route(
        "POST",
        "/v1/nodes/release/change",
        Role.ADMIN,
        Reach.RANGE,
        body=ReleaseChange,
        returns=Names,
    )
    async def change(self, request: web.Request, body: ReleaseChange) -> Any:
        """Try releases again, give them up, confirm them, or free their nodes."""
        return {
            "nodes": await self._releases.change(body.range, body.what, request[CALLER].by(body.by))
        }

    @route("GET", "/v1/nodes/{name}/releases", Role.OPERATOR, Reach.NODE, returns=NodeReleaseList)
    async def of(self, request: web.Request, body: None) -> Any:
        """The releases of a node, with their evidence."""
        return self._releases.of(request.match_info["name"])

    @route(
        "GET",
        "/v1/releases",
        Role.OPERATOR,
        Reach.RANGE,
        query=("range", "last"),
        returns=ReleasesOfNodes,
    )
    async def of_many(self, request: web.Request, body: None) -> Any:
        """The releases of nodes, with their evidence; with `last` only the last of each."""
        last = bool(request.query.get("last"))
        work = self._releases.of_many(request[RANGE], last=last)
        return {"nodes": await while_there(request, work)}
