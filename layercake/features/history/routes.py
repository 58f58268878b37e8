"""The routes of the inventory's history, and the repository itself for `git clone`."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from layercake.api.route import CALLER, RANGE, Reach, number, route, while_there
from layercake.features.history.answers import (
    Blame,
    ChangeLog,
    InventoryDiff,
    InventoryShown,
    Rebuilt,
    RevertPlan,
)
from layercake.features.history.operations import PastInventories
from layercake.features.history.reading import MOST_LOGGED
from layercake.features.inventory.answers import Applied
from layercake.features.inventory.new_inventory import Consent
from layercake.features.inventory.routes import ChangeRequest
from layercake.kraken.errors import NotFound
from layercake.moduleapi.module import Role

USUAL = 30
_SERVED = re.compile(
    r"HEAD|info/refs|objects/info/packs|objects/[0-9a-f]{2}/[0-9a-f]{38}"
    r"|objects/pack/pack-[0-9a-f]{40}\.(?:pack|idx)",
    re.ASCII,
)
"""The files that git fetches of a repository that is served as files (gitprotocol-http(5))."""
_BYTES = "application/octet-stream"


class RevertAsk(msgspec.Struct, forbid_unknown_fields=True):
    """What is to be undone: a revision, or A..B, all after A up to B. `moved` says what becomes of
    values that have moved on since, "keep" or "take-back"."""

    revision: str
    moved: str = ""


class RevertRequest(ChangeRequest, forbid_unknown_fields=True, kw_only=True):
    """The same, to be done; for the rest see ApplyRequest."""

    revision: str
    moved: str = ""
    digest: str | None = None
    allow_remove: bool = False


class HistoryRoutes:
    """The history of the inventory. `repository` is where it is."""

    def __init__(self, past: PastInventories, repository: Path) -> None:
        self._past = past
        self._repository = repository

    @route(
        "GET",
        "/v1/inventory/log",
        Role.VIEWER,
        Reach.RANGE,
        query=("range", "limit", "revision"),
        returns=ChangeLog,
    )
    async def log(self, request: web.Request, body: None) -> Any:
        """The changes of the inventory, the newest first."""
        limit = max(1, min(number(request, "limit", USUAL), MOST_LOGGED))
        query = request.query
        work = self._past.log(request[CALLER], request[RANGE], limit, query.get("revision", ""))
        return await while_there(request, work)

    @route(
        "GET",
        "/v1/inventory/show",
        Role.VIEWER,
        Reach.RANGE,
        query=("revision", "range"),
        returns=InventoryShown,
    )
    async def show(self, request: web.Request, body: None) -> Any:
        """The inventory at a revision."""
        query = request.query
        work = self._past.show(request[CALLER], request[RANGE], query.get("revision", "HEAD"))
        return await while_there(request, work)

    @route(
        "GET",
        "/v1/inventory/diff",
        Role.VIEWER,
        Reach.RANGE,
        query=("before", "after", "range"),
        returns=InventoryDiff,
    )
    async def diff(self, request: web.Request, body: None) -> Any:
        """What differs between two revisions of the inventory."""
        query = request.query
        work = self._past.diff(
            request[CALLER],
            request[RANGE],
            query.get("before", "HEAD~1"),
            query.get("after", "HEAD"),
        )
        return await while_there(request, work)

    @route(
        "GET", "/v1/nodes/{name}/blame", Role.VIEWER, Reach.NODE, query=("revision",), returns=Blame
    )
    async def blame(self, request: web.Request, body: None) -> Any:
        """Who said what of a node, when and why."""
        work = self._past.blame(
            request[CALLER], request.match_info["name"], request.query.get("revision", "HEAD")
        )
        return await while_there(request, work)

    @route(
        "POST",
        "/v1/inventory/revert/plan",
        Role.ADMIN,
        Reach.SITE,
        body=RevertAsk,
        returns=RevertPlan,
    )
    async def plan_revert(self, request: web.Request, body: RevertAsk) -> Any:
        """What undoing a change of the inventory would do."""
        return await while_there(request, self._past.plan_revert(body.revision, body.moved))

    @route(
        "POST", "/v1/inventory/revert", Role.ADMIN, Reach.SITE, body=RevertRequest, returns=Applied
    )
    async def revert(self, request: web.Request, body: RevertRequest) -> Any:
        """Undo a change of the inventory."""
        consent = Consent(
            body.take_back, body.at_once, request[CALLER].by(body.by), body.confirm_secrets
        )
        return await self._past.revert(
            body.revision, body.moved, body.digest, body.allow_remove, consent
        )

    @route("POST", "/v1/inventory/rebuild", Role.ADMIN, Reach.SITE, returns=Rebuilt)
    async def rebuild(self, request: web.Request, body: None) -> Any:
        """Mend the repository of the inventory's history, or begin another."""
        return await self._past.history.rebuild()

    @route("GET", "/v1/inventory/history.git/{file:.+}", Role.ADMIN, Reach.SITE, kinds=(_BYTES,))
    async def clone(self, request: web.Request, body: None) -> Any:
        """A file of the repository, for `git clone`."""
        file = request.match_info["file"]
        path = self._repository / file
        if not _SERVED.fullmatch(file) or not await asyncio.to_thread(path.is_file):
            raise NotFound(f"cannot serve {file[:80]!r}: the repository has no such file")
        return web.FileResponse(path, headers={"Content-Type": _BYTES})
