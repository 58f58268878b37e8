"""The route of captures."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from aiohttp import web

from layercake.api.route import CALLER, Reach, route, while_there
from layercake.api.streams import NOT_KEPT
from layercake.features.captures.operations import MOST_SECONDS, Captures
from layercake.moduleapi.module import Role

_ARCHIVE = "application/gzip"


class CaptureRequest(msgspec.Struct, forbid_unknown_fields=True):
    """For how many seconds packets are captured, and who asks."""

    seconds: Annotated[int, msgspec.Meta(ge=1, le=MOST_SECONDS)] = 30
    by: str = ""


class CaptureRoutes:
    """What was said of one node, as a file."""

    def __init__(self, captures: Captures) -> None:
        self._captures = captures

    @route(
        "POST",
        "/v1/nodes/{name}/capture",
        Role.ADMIN,
        Reach.NODE,
        body=CaptureRequest,
        kinds=(_ARCHIVE,),
    )
    async def capture(self, request: web.Request, body: CaptureRequest) -> Any:
        """An archive of what firmware and head said in a node's last boot, and of its packets."""
        work = self._captures.capture(
            request.match_info["name"], body.seconds, request[CALLER].by(body.by)
        )
        packed = await while_there(request, work)
        return web.Response(body=packed, content_type=_ARCHIVE, headers=NOT_KEPT)
