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

from layercake.api.access import Access
from layercake.api.caller import Caller, printable
from layercake.api.route import CALLER, RANGE, Operation, Reach, Route, mistake_in
from layercake.api.simulated import refusal
from layercake.api.streams import ClientLeft
from layercake.fleet import events
from layercake.fleet.store import Store
from layercake.fleet.transaction import ORIGIN, Origin
from layercake.inventory.ranges import expand, spelled
from layercake.kraken.errors import LayercakeError, Refused
from layercake.moduleapi.module import Role
from layercake.moduleapi.web import body_of, charge_names

log = logging.getLogger("layercake.api")
MOST_REASON = 500
"""Characters of why somebody asks for a change, as it is kept."""
SESSION = "/v1/session"
"""Where one asks who one is, and where a session is ended."""
Answered = Callable[[Any], Awaitable[web.StreamResponse]]
"""Makes the answer, of the request's body."""


class Gate:
    """Lets requests through. `status` gives the HTTP status of an error; `simulated`: so are all
    nodes. What a change has done is answered when `settled` returns."""

    def __init__(
        self,
        store: Store,
        access: Access,
        status: Callable[[web.Request, LayercakeError], int],
        *,
        simulated: bool,
        settled: Callable[[], Awaitable[None]],
    ) -> None:
        self._settled = settled
        self._store = store
        self._access = access
        self._status = status
        self._simulated = simulated
        self._open: dict[str, set[asyncio.Task[Any]]] = {}
        access.listen(self._cut)

    async def serve(
        self, route: Route, request: web.Request, caller: Caller, answer: Answered
    ) -> web.StreamResponse:
        """Answers a request. Raises Refused for what the caller may not do, InputError,
        OperationFailed for a change that cannot be recorded, and what `answer` raises."""
        operation = route.operation
        role = route.role_for(request)
        with self.telling(request, caller.name):
            body = await self._let_in(route, role, request, caller)
        request[CALLER] = caller
        log.debug("%s %s of %s", request.method, printable(request.path, 200), caller.name)
        if self._simulated and (why := refusal(operation, request, body)) is not None:
            self._must_exist(operation, request, body)
            raise why
        with self._while_valid(operation, caller):
            if (request.method == "GET" and not operation.recorded) or role < Role.OPERATOR:
                return await answer(body)
            return await self._recorded(request, caller, body, answer)

    @contextmanager
    def telling(self, request: web.Request, who: str) -> Iterator[None]:
        """Tells of a request that is refused within, and why; one that repeats itself is counted.
        `who` asks, "" for nobody that is known. Each page of the dashboard asks whether it has a
        session before anybody signs in: that is no news."""
        try:
            yield
        except Refused as error:
            if not who and _asks_for_a_session(request):
                raise
            address = request.remote or "this machine"
            text = (
                f"{request.method} {request.path[:80]} of {who or 'nobody that is known'} from "
                f"{address}: {error.message}"
            )
            data = {"address": address, "caller": who}
            self._store.event(None, events.API_REFUSED, text[:500], data=data)
            raise

    async def _let_in(self, route: Route, role: Role, request: web.Request, caller: Caller) -> Any:
        """The body of a request whose caller may do what it asks for. Raises Refused,
        InputError."""
        operation = route.operation
        if caller.role < role:
            raise Refused(
                f"cannot serve this: it needs the role {role.name.lower()}; {caller.name} is "
                f"{caller.role.name.lower()}"
            )
        if operation.exec and not caller.exec:
            raise Refused(
                f"cannot serve this: it needs the right exec, which {caller.name} does not have",
                hint="`layercake token create NAME --role operator --exec` makes a token that has "
                "it",
            )
        body = await _body(operation, request)
        self._bound(route, request, body, caller)
        return body

    async def _recorded(
        self, request: web.Request, caller: Caller, body: Any, answer: Answered
    ) -> web.StreamResponse:
        record = await self._access.begin(caller, f"{request.method} {request.path}", body)
        status = 500
        error = "internal error"
        ORIGIN.set(_origin(request, caller, body))
        try:
            response = await answer(body)
            await self._settled()
            status = response.status
            error = ""
            return response
        except LayercakeError as failure:
            status = self._status(request, failure)
            error = failure.message
            raise
        except (asyncio.CancelledError, ConnectionError, ClientLeft):
            status = 0
            error = "cut off"
            raise
        finally:
            self._access.end(record, status, error)

    # -- the scope

    def _bound(self, route: Route, request: web.Request, body: Any, caller: Caller) -> None:
        """Holds a request to its caller's nodes: a range is narrowed to them in place. Raises
        Refused."""
        reach = route.operation.reach
        asked = str(request.query.get("range", ""))
        if text := asked or str(getattr(body, "range", "")):
            charge_names(request, spelled(text) + (len(self._store) if "@" in text else 0))
        of_range = asked and reach is Reach.RANGE
        request[RANGE] = caller.narrowed(self._store, asked) if of_range else asked
        if caller.groups is None or reach in (Reach.SHOWN, Reach.NONE):
            return
        what = f"{request.method} {request.path[:80]}"
        if reach is Reach.SITE:
            raise caller.refusal(what, "it is about the whole site, and not only the nodes")
        if reach is Reach.RANGE:
            self._narrow(body, caller, what)
        elif not self._is_of(route, request, caller):
            raise caller.refusal(what, "it is about others than the nodes")

    def _narrow(self, body: Any, caller: Caller, what: str) -> None:
        """The same for the range in a body, where "" is the whole site."""
        if body is None:
            return
        if not body.range:
            raise caller.refusal(what, "it is about the whole site, and not only the nodes")
        body.range = caller.narrowed(self._store, body.range)

    def _is_of(self, route: Route, request: web.Request, caller: Caller) -> bool:
        """Whether a request is about nodes of its caller alone."""
        if route.operation.reach is Reach.NODE:
            records = [self._store.lookup(request.match_info["name"])]
        else:
            records = route.nodes_for(request)
        return all(record is not None and caller.sees(record) for record in records)

    def _must_exist(self, operation: Operation, request: web.Request, body: Any) -> None:
        """Raises NotFound or InputError, as everywhere, for nodes that are not in the inventory."""
        if operation.reach is Reach.NODE:
            self._store.named(request.match_info["name"])
        elif asked := str(getattr(body, "range", "")) or request[RANGE]:
            expand(asked, *self._store.names_and_groups())

    # -- the life of a token, and of a session

    @contextmanager
    def _while_valid(self, operation: Operation, caller: Caller) -> Iterator[None]:
        """An answer that goes on is cut off when the token or the session expires or ends."""
        task = asyncio.current_task()
        holds = [held for held in (caller.token, caller.session) if held]
        if not (operation.stream and holds and task is not None):
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

    def _cut(self, held: str) -> None:
        for task in self._open.get(held, ()):
            task.cancel()


def _asks_for_a_session(request: web.Request) -> bool:
    """Whether somebody who shows nothing asks who he is."""
    shows = "Authorization" in request.headers or "Cookie" in request.headers
    return not shows and (request.method, request.path) == ("GET", SESSION)


def _origin(request: web.Request, caller: Caller, body: Any) -> Origin:
    """Where a change comes from."""
    how = printable(f"{request.method} {request.path}", 200)
    return Origin(
        caller.by(str(getattr(body, "by", ""))),
        printable(str(getattr(body, "reason", "")), MOST_REASON),
        f"{how} ({caller.program})" if caller.program else how,
        caller.name if caller.kind == "token" else "",
        caller.address,
        token_id=caller.token if caller.kind == "token" else "",
    )


async def _body(operation: Operation, request: web.Request) -> Any:
    if operation.body is None:
        return None
    try:
        return msgspec.json.decode(await body_of(request, operation.most), type=operation.body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise mistake_in(str(error), operation.body) from None
