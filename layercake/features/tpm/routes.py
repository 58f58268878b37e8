"""The routes of the TPMs of nodes."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from layercake.api.answers import Names, NodesRequest
from layercake.api.route import CALLER, Reach, route
from layercake.features.machines.answers import Forgotten
from layercake.features.tpm.answers import OneTpm, TpmList
from layercake.features.tpm.operations import NodeTpms
from layercake.moduleapi.module import Role


class TpmRoutes:
    """TPMs of nodes."""

    def __init__(self, tpms: NodeTpms) -> None:
        self._tpms = tpms

    @route("GET", "/v1/tpms", Role.OPERATOR, Reach.SITE, returns=TpmList)
    async def show(self, request: web.Request, body: None) -> Any:
        """The TPMs of nodes."""
        return {"tpms": self._tpms.all()}

    @route("GET", "/v1/nodes/{name}/tpm", Role.OPERATOR, Reach.NODE, returns=OneTpm)
    async def one(self, request: web.Request, body: None) -> Any:
        """The TPM of a node, and what it has booted."""
        return await self._tpms.one(request.match_info["name"])

    @route("POST", "/v1/tpms/accept", Role.ADMIN, Reach.RANGE, body=NodesRequest, returns=Names)
    async def accept(self, request: web.Request, body: NodesRequest) -> Any:
        """Accept the TPMs of nodes as they were shown last."""
        return {"nodes": await self._tpms.accept(body.range, request[CALLER].by(body.by))}

    @route("DELETE", "/v1/nodes/{name}/tpm", Role.ADMIN, Reach.NODE, returns=Forgotten)
    async def forget(self, request: web.Request, body: None) -> Any:
        """Forget the TPM of a node."""
        return {
            "forgotten": await self._tpms.forget(request.match_info["name"], request[CALLER].by(""))
        }
