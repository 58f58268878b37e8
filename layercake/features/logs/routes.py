"""The routes of log levels."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from aiohttp import web

from layercake.api.caller import said_by
from layercake.api.route import CALLER, Reach, route
from layercake.features.logs.answers import LogLevelList
from layercake.fleet import events
from layercake.fleet.store import Store
from layercake.moduleapi.module import Role
from layercake.modules.log_levels import LogLevels


class LogLevelRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What shall log from which level on; `default` is as after a start of the head."""

    name: str
    level: Literal["debug", "info", "warning", "error", "default"]
    by: str = ""


class LogLevelRoutes:
    """How much is logged."""

    def __init__(self, levels: LogLevels, store: Store) -> None:
        self._levels = levels
        self._store = store

    @route("GET", "/v1/log-levels", Role.OPERATOR, Reach.SITE, returns=LogLevelList)
    async def show(self, request: web.Request, body: None) -> Any:
        """From which level on the parts of the head and its modules log."""
        return {"levels": self._levels.view()}

    @route(
        "POST", "/v1/log-levels", Role.ADMIN, Reach.SITE, body=LogLevelRequest, returns=LogLevelList
    )
    async def change(self, request: web.Request, body: LogLevelRequest) -> Any:
        """Have a part of the head, or a module, log more or less, until the head starts anew."""
        self._levels.set(body.name, body.level)
        who = said_by(request[CALLER].by(body.by))
        text = f"{body.name} logs from {body.level} on, by {who}"
        if body.level == "default":
            text = f"{body.name} logs as usual, by {who}"
        self._store.event(None, events.LOG_LEVEL, text, data={"name": body.name})
        return await self.show(request, None)
