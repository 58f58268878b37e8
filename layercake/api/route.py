"""What a route is: one operation of the API, from which the server and the OpenAPI document are made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from layercake.base.text import whole_number
from layercake.kraken.errors import InputError
from layercake.moduleapi.module import Role

ROLE = web.RequestKey("role", Role)
"""Where a request has the role of who asks."""
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


def number(request: web.Request, name: str, default: int) -> int:
    """A whole number from the query. Raises InputError."""
    text = request.query.get(name, "")
    found = whole_number(text, 10 ** 15) if text else default
    if found is None:
        raise InputError(f"cannot use {name}={text[:40]!r}: a whole number is expected")
    return found
