"""The routes of nodes: features say which they have, and NodeApi serves them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from layercake.base.text import parse_json
from layercake.fleet.store import Record
from layercake.kraken.errors import OperationFailed
from layercake.moduleapi.web import body_of

MAX_BODY = 4 << 20
"""Bytes of a request of a joined node."""
NO_STORE = {"Cache-Control": "no-store"}
"""The headers of an answer with a secret in it."""


@dataclass(frozen=True, slots=True)
class NodeRoute:
    """A route of joined nodes. `handler` gets the node under whose session the request comes."""

    method: str
    path: str
    handler: Callable[[Record, web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class OpenRoute:
    """A route that needs no session: its handler itself decides whom it serves."""

    method: str
    path: str
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]]


def json_answer(value: Any) -> web.Response:
    """An answer in JSON."""
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")


async def json_body(request: web.Request, most: int = MAX_BODY) -> Any:
    """The body of a request, up to `most` bytes. Raises OperationFailed if it is not JSON."""
    data = await body_of(request, most)
    try:
        return parse_json(data)
    except ValueError:
        raise OperationFailed("cannot take the request: it is not JSON") from None
