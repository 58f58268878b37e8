"""What a route is: one operation of the API, from which the server, the OpenAPI document and the
table of rights are made."""

from __future__ import annotations

import asyncio
import enum
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from aiohttp import web
from msgspec.inspect import EnumType, LiteralType, Type, UnionType

from layercake.api.caller import Caller
from layercake.api.streams import ClientLeft
from layercake.base.text import nearest, printable, show, whole_number
from layercake.fleet.store import Record
from layercake.kraken.errors import InputError
from layercake.moduleapi.module import Role

CALLER = web.RequestKey("caller", Caller)
"""Where a request has who asks."""
RANGE = web.RequestKey("range", str)
"""Where a request without a body has its range of nodes, as far as it is the caller's; "" without
one."""
SMALL_BODY = 256 << 10
"""Bytes of a request's body, if its operation says nothing else: it is read in the head's loop."""
BIG_BODY = 32 << 20
"""Bytes of the body of a request that holds an inventory, which is read elsewhere."""
LOOK_S = 0.25
"""How often it is looked whether somebody still waits for an answer that takes long."""
_PLACED = re.compile(r"(.*) - at `\$([\w.\[\]]*)`", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_INVALID = re.compile(r"Invalid enum value (.*)", re.DOTALL)
Answer = Callable[[web.Request, Any], Awaitable[Any]]


class Reach(enum.Enum):
    """What of the site a route is about: how it is bound to the groups of a caller. The gate sees
    to all but SHOWN."""

    SITE = "the whole site: only who is bound to no group"
    RANGE = (
        "the nodes of the range: all of them the caller's; without a range, in a body, the "
        "whole site"
    )
    NODE = "the node of the path: the caller's"
    NODES = "the nodes of what the path names: all of them the caller's"
    SHOWN = "what is shown of the caller's nodes"
    NONE = "no nodes: all callers alike"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What one operation of the API is, without who does it. `body` is the struct of its request,
    of at most `most` bytes, `returns` of its answer, `kinds` are the content types of one that is
    no JSON, none for a WebSocket; `query` are the names of its parameters. `exec`: it needs the
    right of this name too. `stream`: its answer goes on, and ends when the token does. `role_of`
    gives the role of one request, where it depends on that; `role` is the lowest then. `nodes_of`
    gives the nodes that a request with Reach.NODES is about. What needs more than a viewer and is
    no GET is a change, and recorded; so is one that is `recorded`: a WebSocket by which something
    is done is a GET."""

    method: str
    path: str
    role: Role
    reach: Reach
    summary: str
    body: type[msgspec.Struct] | None = None
    most: int = SMALL_BODY
    returns: type[msgspec.Struct] | None = None
    kinds: tuple[str, ...] = ("application/json",)
    query: tuple[str, ...] = ()
    exec: bool = False
    stream: bool = False
    role_of: Callable[[Any, web.Request], Role] | None = None
    nodes_of: Callable[[Any, web.Request], Iterable[Record | None]] | None = None
    recorded: bool = False

    @property
    def path_shown(self) -> str:
        """The path without what the server wants of its parts: "{file}" for "{file:.+}"."""
        return re.sub(r"{(\w+):[^}]*}", r"{\1}", self.path)

    @property
    def changes(self) -> bool:
        """Whether what it does is recorded, as far as its own role says."""
        return (self.method != "GET" or self.recorded) and self.role > Role.VIEWER


@dataclass(frozen=True, slots=True)
class Route:
    """An operation and the method that answers it, of the object `handlers`."""

    operation: Operation
    handlers: object
    answer: Answer

    def role_for(self, request: web.Request) -> Role:
        """The role that a request needs."""
        role_of = self.operation.role_of
        return self.operation.role if role_of is None else role_of(self.handlers, request)

    def nodes_for(self, request: web.Request) -> list[Record | None]:
        """The nodes that a request with Reach.NODES is about."""
        nodes_of = self.operation.nodes_of
        return [] if nodes_of is None else list(nodes_of(self.handlers, request))


Method = TypeVar("Method", bound=Callable[..., Awaitable[Any]])


def route(
    method: str, path: str, role: Role, reach: Reach, **more: Any
) -> Callable[[Method], Method]:
    """Declares the method that follows to be the handler of an operation, whose summary is the
    method's docstring; for `more` see Operation."""

    def declared(handler: Method) -> Method:
        summary = " ".join((handler.__doc__ or "").split()).rstrip(".")
        operation = Operation(
            method=method, path=path, role=role, reach=reach, summary=summary, **more
        )
        handler.operation = operation  # type: ignore[attr-defined]
        return handler

    return declared


def operations(handlers: type) -> list[tuple[str, Operation]]:
    """The operations that a class of handlers declares, in their order, with the names of the
    methods."""
    return [
        (name, method.operation)
        for name, method in vars(handlers).items()
        if hasattr(method, "operation")
    ]


def routes_of(handlers: object) -> list[Route]:
    """The routes that an object of handlers has."""
    return [
        Route(operation, handlers, getattr(handlers, name))
        for name, operation in operations(type(handlers))
    ]


async def while_there(request: web.Request, work: Coroutine[Any, Any, Any]) -> Any:
    """What comes of work; it is cancelled when who asked for it has left. Raises
    ConnectionResetError then."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            await asyncio.wait([task], timeout=LOOK_S)
            if request.transport is None or request.transport.is_closing():
                raise ClientLeft
        return task.result()
    finally:
        task.cancel()
        await asyncio.wait([task])


def number(request: web.Request, name: str, default: int) -> int:
    """A whole number from the query. Raises InputError."""
    text = request.query.get(name, "")
    found = whole_number(text, 10**15) if text else default
    if found is None:
        raise InputError(f"cannot use {name}={text[:40]!r}: a whole number is expected")
    return found


def mistake_in(text: str, body: type) -> InputError:
    """Why a request's body is none of this struct, out of what msgspec says of it: with the place
    first, and with what may have been meant."""
    what = text
    where = ""
    if placed := _PLACED.fullmatch(text):
        what = placed[1]
        where = placed[2].lstrip(".")
    fields = getattr(msgspec.inspect.type_info(body), "fields", ())
    hint = ""
    if unknown := _UNKNOWN.fullmatch(what):
        what = f"there is no field {show(unknown[1])}"
        hint = "" if where else nearest(unknown[1], [field.encode_name for field in fields])
    elif missing := _MISSING.fullmatch(what):
        what = f"{missing[1]} is missing"
    elif invalid := _INVALID.fullmatch(what):
        what = f"{printable(invalid[1], 60)} is none of its values"  # msgspec has quoted it
        kinds = [field.type for field in fields if field.encode_name == where]
        hint = nearest(invalid[1][1:-1], _values(kinds))
    said = printable(f"{where}: {what}" if where else what, 200)
    return InputError(f"cannot use the request: {said}", hint=hint)


def _values(kinds: Iterable[Type]) -> list[str]:
    """The words that a field of such types may be."""
    found: list[str] = []
    for kind in kinds:
        if isinstance(kind, UnionType):
            found += _values(kind.types)
        elif isinstance(kind, LiteralType):
            found += map(str, kind.values)
        elif isinstance(kind, EnumType):
            found += [str(member.value) for member in kind.cls]
    return found
