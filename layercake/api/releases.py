"""The routes of releases of nodes between users."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from aiohttp import web

from layercake.api.answers.nodes import Names
from layercake.api.answers.releases import NodeReleaseList
from layercake.api.route import CALLER, Reach, Route
from layercake.head.operations import Operations
from layercake.moduleapi.module import Role


class ReleaseRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The nodes that are released: their disks are erased. `force` includes BUSY ones, and does not
    wait for what runs."""

    range: str
    force: bool = False
    by: str = ""


class ReleaseChange(msgspec.Struct, forbid_unknown_fields=True):
    """What becomes of the releases of nodes: they are tried again, given up, or their nodes are
    freed."""

    range: str
    what: Literal["retry", "abandon", "free"]
    by: str = ""


def routes(ops: Operations) -> tuple[Route, ...]:
    """The routes over one head."""

    async def begin(request: web.Request, body: ReleaseRequest) -> Any:
        return {
            "nodes": await ops.releases.begin(body.range, body.force, request[CALLER].by(body.by))
        }

    async def change(request: web.Request, body: ReleaseChange) -> Any:
        return {
            "nodes": await ops.releases.change(body.range, body.what, request[CALLER].by(body.by))
        }

    async def of(request: web.Request, body: None) -> Any:
        return ops.releases.of(request.match_info["name"])

    return (
        Route(
            "POST",
            "/v1/nodes/release",
            Role.ADMIN,
            Reach.RANGE,
            "Release nodes for their next users: their disks are erased",
            begin,
            ReleaseRequest,
            returns=Names,
        ),
        Route(
            "POST",
            "/v1/nodes/release/change",
            Role.ADMIN,
            Reach.RANGE,
            "Try releases again, give them up, or free their nodes",
            change,
            ReleaseChange,
            returns=Names,
        ),
        Route(
            "GET",
            "/v1/nodes/{name}/releases",
            Role.OPERATOR,
            Reach.NODE,
            "The releases of a node, with their evidence",
            of,
            returns=NodeReleaseList,
        ),
    )
