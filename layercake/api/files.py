"""The routes of the files that nodes have beside what their images bring."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from layercake.api.answers.files import FileDiffs, FileTexts, NodeFiles
from layercake.api.route import CALLER, RANGE, Reach, Route
from layercake.head.operations import Operations
from layercake.moduleapi.module import Role


class DiffRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What would change of the files of these nodes, with the directory of files as it is now, and,
    if `yaml` is given, with that inventory."""

    range: str
    yaml: str = ""
    file: str = "inventory.yaml"


def routes(ops: Operations) -> tuple[Route, ...]:
    """The routes over one head."""

    async def show(request: web.Request, body: None) -> Any:
        return await ops.files.show(request.match_info["name"])

    async def content(request: web.Request, body: None) -> Any:
        return {
            "files": await ops.files.content(
                request.match_info["name"], request.query.get("file", "")
            )
        }

    async def diff(request: web.Request, body: DiffRequest) -> Any:
        entries = await ops.inventory.entries(body.yaml, body.file) if body.yaml else {}
        return {"changes": await ops.files.diff(body.range, entries)}

    async def known_hosts(request: web.Request, body: None) -> web.Response:
        records = ops.head.store.select(request[RANGE]) if request[RANGE] else list(ops.head.store)
        text = ops.files.known_hosts(record for record in records if request[CALLER].sees(record))
        return web.Response(text=text)

    return (
        Route(
            "GET",
            "/v1/nodes/{name}/files",
            Role.OPERATOR,
            Reach.NODE,
            "The files of a node, without what is in them",
            show,
            returns=NodeFiles,
        ),
        Route(
            "GET",
            "/v1/nodes/{name}/files/content",
            Role.OPERATOR,
            Reach.NODE,
            "What is in a file of a node; never a secret",
            content,
            returns=FileTexts,
            query=("file",),
        ),
        Route(
            "POST",
            "/v1/files/diff",
            Role.ADMIN,
            Reach.RANGE,
            "How files of nodes would change",
            diff,
            DiffRequest,
            returns=FileDiffs,
        ),
        Route(
            "GET",
            "/v1/ssh/known-hosts",
            Role.VIEWER,
            Reach.SHOWN,
            "The nodes' SSH host keys, as lines of known_hosts",
            known_hosts,
            kinds=("text/plain",),
            query=("range",),
        ),
    )
