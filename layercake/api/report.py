"""The route of the report: what happened since yesterday."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from layercake.api.answers.report import SiteReport
from layercake.api.route import Reach, Route, number
from layercake.head.operations import Operations
from layercake.head.views.head import Census
from layercake.head.views.report import report_view
from layercake.kraken.errors import InputError
from layercake.moduleapi.module import Role

USUAL_H, MOST_H = 24, 24 * 366


def routes(ops: Operations, census: Census) -> tuple[Route, ...]:
    """The routes over one head."""

    async def show(request: web.Request, body: None) -> Any:
        hours, now = number(request, "hours", USUAL_H), ops.head.store.wall()
        if not 1 <= hours <= MOST_H:
            raise InputError(f"cannot report of {hours} hours: 1 to {MOST_H} are possible")
        return await report_view(ops.head, census, now - 3600.0 * hours, now)

    return (
        Route(
            "GET",
            "/v1/report",
            Role.OPERATOR,
            Reach.SITE,
            "What failed, was slow, was held and changed in the last hours",
            show,
            query=("hours",),
            returns=SiteReport,
        ),
    )
