"""The routes of the TPMs of nodes."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from layercake.api.answers.machines import Forgotten
from layercake.api.answers.nodes import Names
from layercake.api.answers.tpm import OneTpm, TpmList
from layercake.api.route import CALLER, Reach, Route
from layercake.head.operations import Operations
from layercake.moduleapi.module import Role


class AcceptTpmRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The nodes whose TPM is right as it was shown last, and who says so."""

    range: str
    by: str = ""


def routes(ops: Operations) -> tuple[Route, ...]:
    """The routes over one head."""

    async def show(request: web.Request, body: None) -> Any:
        return {"tpms": ops.tpms.all()}

    async def one(request: web.Request, body: None) -> Any:
        return await ops.tpms.one(request.match_info["name"])

    async def accept(request: web.Request, body: AcceptTpmRequest) -> Any:
        return {"nodes": await ops.tpms.accept(body.range, request[CALLER].by(body.by))}

    async def forget(request: web.Request, body: None) -> Any:
        return {
            "forgotten": await ops.tpms.forget(request.match_info["name"], request[CALLER].by(""))
        }

    return (
        Route(
            "GET", "/v1/tpms", Role.OPERATOR, Reach.SITE, "The TPMs of nodes", show, returns=TpmList
        ),
        Route(
            "POST",
            "/v1/tpms/accept",
            Role.ADMIN,
            Reach.RANGE,
            "Accept the TPMs of nodes as they were shown last",
            accept,
            AcceptTpmRequest,
            returns=Names,
        ),
        Route(
            "GET",
            "/v1/nodes/{name}/tpm",
            Role.OPERATOR,
            Reach.NODE,
            "The TPM of a node, and what it has booted",
            one,
            returns=OneTpm,
        ),
        Route(
            "DELETE",
            "/v1/nodes/{name}/tpm",
            Role.ADMIN,
            Reach.NODE,
            "Forget the TPM of a node",
            forget,
            returns=Forgotten,
        ),
    )
