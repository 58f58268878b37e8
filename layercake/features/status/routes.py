"""The routes of the head itself: how it is, its numbers, and what happened since yesterday."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web

from layercake import __version__
from layercake.api.route import CALLER, Reach, number, route
from layercake.features.inventory.secret_warnings import Warnings
from layercake.features.nodes.lists.metrics import KIND
from layercake.features.status.answers import HeadsBrief, HeadStatus, SiteReport
from layercake.features.status.metrics import Metrics
from layercake.features.status.report import report_view
from layercake.features.status.views import Census, Observed, head_status
from layercake.kraken.errors import InputError
from layercake.moduleapi.module import Role

USUAL_H = 24
MOST_H = 24 * 366


class StatusRoutes:
    """How the head is."""

    def __init__(
        self,
        observed: Observed,
        census: Census,
        metrics: Metrics,
        warnings: Warnings,
        of_heads: Callable[[], HeadsBrief],
    ) -> None:
        self._observed = observed
        self._census = census
        self._metrics = metrics
        self._warnings = warnings
        self._of_heads = of_heads

    @route("GET", "/v1/status", Role.VIEWER, Reach.SHOWN, returns=HeadStatus)
    async def status(self, request: web.Request, body: None) -> Any:
        """How the head and its modules are."""
        caller = request[CALLER]
        told = [] if caller.looks_only or caller.bound else await self._warnings.now()
        heads = HeadsBrief() if caller.bound else self._of_heads()
        found = await head_status(self._observed, caller.bound, self._census)
        return {"version": __version__, **found, "warnings": told, "heads": heads}

    @route("GET", "/v1/metrics", Role.VIEWER, Reach.SITE, kinds=("text/plain",))
    async def numbers(self, request: web.Request, body: None) -> Any:
        """Numbers for Prometheus."""
        return web.Response(text=await self._metrics.page(), headers={"Content-Type": KIND})

    @route("GET", "/v1/report", Role.OPERATOR, Reach.SITE, query=("hours",), returns=SiteReport)
    async def report(self, request: web.Request, body: None) -> Any:
        """What failed, was slow, was held and changed in the last hours."""
        hours = number(request, "hours", USUAL_H)
        now = self._observed.store.wall()
        if not 1 <= hours <= MOST_H:
            raise InputError(f"cannot report of {hours} hours: 1 to {MOST_H} are possible")
        return await report_view(self._observed, self._census, now - 3600.0 * hours, now)
