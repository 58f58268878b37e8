"""What every request goes through: is its caller let in, has it the role and the right, are the
nodes its own; and each change is recorded. The routes say what they need (route.py); this is the
one place where it is asked for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from aiohttp import web

from layercake.api.route import CALLER, RANGE, Reach, Route, roll_number
from layercake.api.simulated import refusal
from layercake.features.access.caller import Caller
from layercake.features.access.tokens import Token
from layercake.fleet.persistence.database import whole
from layercake.fleet.store import Record
from layercake.head.head import Head
from layercake.inventory.ranges import expand
from layercake.inventory.schema import groups_of
from layercake.kraken.errors import InputError, LayercakeError, NotFound, Refused
from layercake.moduleapi.module import Role
from layercake.moduleapi.web import body_of

log = logging.getLogger("layercake.api")
MAX_BODY = 32 << 20
Answered = Callable[[Any], Awaitable[web.StreamResponse]]
"""Makes the answer, of the request's body."""


class Gate:
    """Lets requests through. `status` gives the HTTP status of an error."""

    def __init__(self, head: Head, status: Callable[[web.Request, LayercakeError], int]) -> None:
        self._head, self._store, self._status = head, head.store, status
        self._open: dict[str, set[asyncio.Task[Any]]] = {}
        head.tokens.revoked = self._revoked
        head.sessions.ended = self._cut

    async def serve(
        self, route: Route, request: web.Request, caller: Caller, answer: Answered
    ) -> web.StreamResponse:
        """Answers a request. Raises Refused for what the caller may not do, InputError,
        OperationFailed for a change that cannot be recorded, and what `answer` raises."""
        role = route.role_of(request) if route.role_of is not None else route.role
        if caller.role < role:
            raise Refused(
                f"cannot serve this: it needs the role {role.name.lower()}; {caller.name} is "
                f"{caller.role.name.lower()}"
            )
        if route.exec and not caller.exec:
            raise Refused(
                f"cannot serve this: it needs the right exec, which {caller.name} does not have",
                hint="`layercake token create --exec` makes a token that has it",
            )
        body = await _body(route, request)
        self._bound(route, request, body, caller)
        request[CALLER] = caller
        if self._head.settings.simulated and (why := refusal(route, request, body)) is not None:
            self._must_exist(route, request, body)
            raise why
        with self._while_valid(route, caller):
            if (request.method == "GET" and not route.recorded) or role < Role.OPERATOR:
                return await answer(body)
            return await self._recorded(request, caller, body, answer)

    async def _recorded(
        self, request: web.Request, caller: Caller, body: Any, answer: Answered
    ) -> web.StreamResponse:
        record = await self._head.audit.begin(caller, f"{request.method} {request.path}", body)
        status, error = 500, "internal error"
        try:
            response = await answer(body)
            status, error = response.status, ""
            return response
        except LayercakeError as failure:
            status, error = self._status(request, failure), failure.message
            raise
        except asyncio.CancelledError:
            status, error = 0, "cut off"
            raise
        finally:
            await whole(self._end(record, status, error))

    async def _end(self, number: int, status: int, error: str) -> None:
        try:
            await self._head.audit.end(number, status, error)
        # the change is recorded, and has happened: only its outcome is not known later
        except LayercakeError as failure:
            log.error("cannot record the outcome of change %s: %s", number, failure)

    # -- the scope

    def _bound(self, route: Route, request: web.Request, body: Any, caller: Caller) -> None:
        """Holds a request to its caller's nodes: a range is narrowed to them in place. Raises
        Refused."""
        asked = str(request.query.get("range", ""))
        request[RANGE] = (
            caller.narrowed(self._store, asked) if asked and route.reach is Reach.RANGE else asked
        )
        if caller.groups is None or route.reach in (Reach.SHOWN, Reach.NONE):
            return
        what = f"{request.method} {request.path[:80]}"
        if route.reach is Reach.RANGE and body is not None and body.range:
            body.range = caller.narrowed(self._store, body.range)
        elif route.reach is Reach.SITE or (route.reach is Reach.RANGE and body is not None):
            raise caller.refusal(what, "it is about the whole site, and not only the nodes")
        elif route.reach in (Reach.NODE, Reach.ROLL):
            records = (
                [self._store.lookup(request.match_info["name"])]
                if route.reach is Reach.NODE
                else self._of_roll(request)
            )
            if not all(record is not None and caller.sees(record) for record in records):
                raise caller.refusal(what, "it is about others than the nodes")

    def _must_exist(self, route: Route, request: web.Request, body: Any) -> None:
        """Raises NotFound or InputError, as everywhere, for nodes that are not in the inventory."""
        if route.reach is Reach.NODE:
            self._store.named(request.match_info["name"])
        elif asked := str(getattr(body, "range", "")) or request[RANGE]:
            nodes = {record.name: record.node for record in self._store}
            expand(asked, list(nodes), groups_of(nodes))

    def _of_roll(self, request: web.Request) -> list[Record | None]:
        try:
            return [
                self._store.find(key) for key in self._head.rolls.get(roll_number(request)).nodes
            ]
        except NotFound:
            return [None]

    # -- the life of a token, and of a session

    @contextmanager
    def _while_valid(self, route: Route, caller: Caller) -> Iterator[None]:
        """An answer that goes on is cut off when the token or the session expires or ends."""
        task, holds = (
            asyncio.current_task(),
            [held for held in (caller.token, caller.session) if held],
        )
        if not (route.stream and holds and task is not None):
            yield
            return
        left = None if caller.expires is None else max(0.0, caller.expires - self._store.wall())
        timer = None if left is None else asyncio.get_running_loop().call_later(left, task.cancel)
        for held in holds:
            self._open.setdefault(held, set()).add(task)
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()
            for held in holds:
                self._open[held].discard(task)
                if not self._open[held]:
                    del self._open[held]

    def _revoked(self, token: Token) -> None:
        self._cut(token.id)

    def _cut(self, held: str) -> None:
        for task in self._open.get(held, ()):
            task.cancel()


async def _body(route: Route, request: web.Request) -> Any:
    if route.body is None:
        return None
    try:
        return msgspec.json.decode(await body_of(request, MAX_BODY), type=route.body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InputError(f"cannot use the request: {error}") from None
