"""What a route is: one operation of the API, from which the server and the OpenAPI document are made."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from layercake.kraken.errors import InputError
from layercake.moduleapi.module import Role

ROLE = web.RequestKey("role", Role)
"""Where a request has the role of who asks."""
LOOK_S = 0.25
"""How often it is looked whether somebody still waits for an answer that takes long."""
Answer = Callable[[web.Request, Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Route:
    """One operation of the API. `body` is the struct of its request, `query` the names of its parameters."""

    method: str
    path: str
    role: Role
    summary: str
    answer: Answer
    body: type[msgspec.Struct] | None = None
    query: tuple[str, ...] = ()


async def while_there(request: web.Request, work: Coroutine[Any, Any, Any]) -> Any:
    """What comes of work that changes nothing; it is given up when who asked for it has left."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            await asyncio.wait([task], timeout=LOOK_S)
            if request.transport is None or request.transport.is_closing():
                raise ConnectionResetError("who asked has left")
        return task.result()
    finally:
        task.cancel()
        await asyncio.wait([task])


def number(request: web.Request, name: str, default: int) -> int:
    """A whole number from the query. Raises InputError."""
    text = request.query.get(name, "")
    if text and not (text.isascii() and text.isdigit() and len(text) < 16):
        raise InputError(f"cannot use {name}={text[:40]!r}: a whole number is expected")
    return int(text) if text else default
