"""The route of the head itself."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from layercake import __version__
from layercake.api.route import Route
from layercake.head.operations import Operations
from layercake.head.secrets import Warnings
from layercake.head.views.head import head_status
from layercake.moduleapi.module import Role


def routes(ops: Operations) -> tuple[Route, ...]:
    """The routes over one head."""

    warnings = Warnings(ops.head)

    async def status(request: web.Request, body: None) -> Any:
        return {"version": __version__, **head_status(ops.head), "warnings": await warnings.now()}

    return (Route("GET", "/v1/status", Role.VIEWER, "How the head and its modules are", status),)
