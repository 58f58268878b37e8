"""The route of the head's metrics."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from layercake.api.route import Reach, Route
from layercake.features.nodes.lists.metrics import KIND
from layercake.head.operations import Operations
from layercake.head.views.head import Census
from layercake.head.views.metrics import Metrics
from layercake.moduleapi.module import Role


def routes(ops: Operations, census: Census) -> tuple[Route, ...]:
    """The routes over one head."""
    metrics = Metrics(ops.head, census)

    async def show(request: web.Request, body: None) -> Any:
        return web.Response(text=await metrics.page(), headers={"Content-Type": KIND})

    return (
        Route(
            "GET",
            "/v1/metrics",
            Role.VIEWER,
            Reach.SITE,
            "Numbers for Prometheus",
            show,
            kinds=("text/plain",),
        ),
    )
