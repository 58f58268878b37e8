"""What reaches into nodes: a log as it grows, a command. The answers go through as they come; the head keeps none of them."""

from __future__ import annotations

import json
import time
from typing import Any

import msgspec
from aiohttp import web

from imageapi.spec.names import NAME
from layercake.api.auth import Role
from layercake.api.route import Route, number
from layercake.head.operations.operations import Operations
from layercake.head.state.store import Record
from layercake.kraken.errors import InputError, LayercakeError

ROLE = web.RequestKey("role", Role)
LAST_LINE = 200
"""Bytes; the last line says how it ended and is short."""
COMMAND_SHOWN = 200


class ExecRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A command for a node, in one of its containers or, with none named, in minOS itself."""

    command: list[str]
    container: str = ""
    timeout_s: float = 60.0


class NodeRoutes:
    """The handlers, over one head."""

    def __init__(self, operations: Operations) -> None:
        self._head = operations.head

    def table(self) -> tuple[Route, ...]:
        """The routes."""
        return (
            Route("GET", "/v1/nodes/{name}/follow", Role.OPERATOR, "A container's log, as it grows", self._follow,
                  query=("container", "lines")),
            Route("POST", "/v1/nodes/{name}/exec", Role.OPERATOR, "Run a command on a node or in a container", self._exec,
                  ExecRequest),
        )

    def _container(self, record: Record, name: str) -> str:
        if not name and record.wanted:
            name = record.wanted[0].name
        if not name:
            raise InputError(f"cannot find a container on {record.name}: no image is wanted there")
        if not NAME.fullmatch(name):
            raise InputError(f"cannot find container {name[:80]!r}: that is no image's name")
        return name

    async def _follow(self, request: web.Request, body: None) -> Any:
        record = self._head.store.named(request.match_info["name"])
        container = self._container(record, request.query.get("container", ""))
        query = {"lines": str(number(request, "lines", 200)), "follow": "1"}
        async with self._head.node_link.open(record, "GET", f"/v1/containers/{container}/log", query=query) as answer:
            response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8", "Cache-Control": "no-store"})
            await response.prepare(request)
            async for data in answer.content.iter_any():
                await response.write(data)
            await response.write_eof()
        return response

    async def _exec(self, request: web.Request, body: ExecRequest) -> Any:
        record = self._head.store.named(request.match_info["name"])
        if not body.command:
            raise InputError("cannot run a command: none is given")
        who = f"{request[ROLE].name.lower()} at {request.remote}" if request.remote else "this machine's administrator"
        where = f"in {body.container}" if body.container else "on the node"
        shown = " ".join(body.command)[:COMMAND_SHOWN]
        data = {"by": who, "container": body.container}
        asked = {"command": body.command, "container": body.container, "timeout_s": body.timeout_s}
        since, ended = time.monotonic(), "cut off"
        self._head.store.event(record, "node.exec", f"{who} runs {where}: {shown}", data=data)
        try:
            async with self._head.node_link.open(record, "POST", "/v1/exec", body=asked) as answer:
                response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson", "Cache-Control": "no-store"})
                await response.prepare(request)
                rest = b""
                async for part in answer.content.iter_any():
                    await response.write(part)
                    rest = (rest + part)[-LAST_LINE:]
                ended = _ended(rest)
                await response.write_eof()
        except LayercakeError as error:
            ended = str(error)
            raise
        finally:
            seconds = round(time.monotonic() - since, 1)
            self._head.store.event(record, "node.exec-ended", f"after {seconds:.1f} s, {ended}: {shown}",
                                   data={**data, "seconds": seconds})
        return response


def _ended(lines: bytes) -> str:
    """How a command ended, by the last line of its answer; never what it said."""
    try:
        last = json.loads(lines.rstrip(b"\n").rpartition(b"\n")[2])
    except ValueError:
        return "cut off"
    if isinstance(last, dict) and isinstance(last.get("exit"), int):
        return f"exit status {last['exit']}"
    return "killed after its time" if isinstance(last, dict) and "error" in last else "cut off"
