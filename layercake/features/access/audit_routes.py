"""The route of the audit log."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from layercake.api.route import Reach, number, route
from layercake.features.access.answers import AuditList
from layercake.features.access.audit import Audit
from layercake.moduleapi.module import Role

MOST = 5000


class AuditRoutes:
    """The audit log."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit

    @route(
        "GET",
        "/v1/audit",
        Role.ADMIN,
        Reach.SITE,
        query=("after", "since", "limit"),
        returns=AuditList,
    )
    async def show(self, request: web.Request, body: None) -> Any:
        """Who changed what: after a record, since a time, oldest first."""
        limit = max(1, min(number(request, "limit", 1000), MOST))
        return {
            "audit": await self._audit.read(
                number(request, "after", 0), float(number(request, "since", 0)), limit
            )
        }
