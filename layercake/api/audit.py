"""The route of the audit log."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from layercake.api.answers.events import AuditList
from layercake.api.route import Reach, Route, number
from layercake.head.operations import Operations
from layercake.moduleapi.module import Role

MOST = 5000


def routes(ops: Operations) -> tuple[Route, ...]:
    """The routes over one head."""

    async def show(request: web.Request, body: None) -> Any:
        limit = max(1, min(number(request, "limit", 1000), MOST))
        return {
            "audit": await ops.head.audit.read(
                number(request, "after", 0), float(number(request, "since", 0)), limit
            )
        }

    return (
        Route(
            "GET",
            "/v1/audit",
            Role.ADMIN,
            Reach.SITE,
            "Who changed what: after a record, since a time, oldest first",
            show,
            query=("after", "since", "limit"),
            returns=AuditList,
        ),
    )
