"""The routes about what is behind images' names: what one pointed to, what is different between two, what nobody needs."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from layercake.api.auth import Role
from layercake.api.route import Route
from layercake.head.operations import contents as imageviews
from layercake.head.operations.operations import Operations


class ImageRoutes:
    """The handlers, over one head."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._head = operations.head

    def table(self) -> tuple[Route, ...]:
        """All routes about contents."""
        view = Role.VIEWER
        return (
            Route("GET", "/v1/images/diff", view, "How two images differ: packages, files", self._diff, query=("a", "b")),
            Route("GET", "/v1/images/{name}/history", view, "What a name points to and pointed to, newest first", self._history),
            Route("DELETE", "/v1/contents/unused", Role.OPERATOR, "Delete contents that no name, node or roll needs", self._prune),
        )

    async def _diff(self, request: web.Request, body: None) -> Any:
        return await imageviews.difference(self._head, request.query.get("a", ""), request.query.get("b", ""))

    async def _prune(self, request: web.Request, body: None) -> Any:
        return {"deleted": await imageviews.prune(self._head, self._operations.in_use())}

    async def _history(self, request: web.Request, body: None) -> Any:
        return imageviews.history(self._head, request.match_info["name"])
