"""What nodes ask over TLS: their desired state, to hand in events and answers, and what features
have for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any

import msgspec
from aiohttp import web

from layercake.agents.https.authentication import WEIGHT, SessionAuthenticator
from layercake.agents.https.document import DesiredDocument
from layercake.agents.https.requests import NodeRequests
from layercake.agents.https.routes import NodeRoute, OpenRoute, json_answer, json_body
from layercake.agents.intake import NodeEventIntake
from layercake.agents.sync import Sync
from layercake.base.text import parse_json, whole_number
from layercake.fleet.store import Record
from layercake.kraken.errors import InputError, LayercakeError, OperationFailed, Refused
from layercake.moduleapi.fast_response import FastResponse, PlainRequest

DESIRED = "/node/v1/desired"
EVENTS = "/node/v1/events"
ANSWERS = "/node/v1/answers/"
"""What nodes ask most."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class NodeApi:
    """The /node/v1 routes: those of every node, and `features`."""

    def __init__(
        self,
        authenticator: SessionAuthenticator,
        document: DesiredDocument,
        requests: NodeRequests,
        intake: NodeEventIntake,
        sync: Sync,
        features: Sequence[NodeRoute | OpenRoute],
    ) -> None:
        self._authenticator = authenticator
        self._document = document
        self._requests = requests
        self._intake = intake
        self._sync = sync
        self._routes = (
            NodeRoute("GET", DESIRED, self._desired),
            NodeRoute("POST", EVENTS, self._events),
            NodeRoute("POST", ANSWERS + "{id}", self._answer),
            *features,
        )

    def routes(self) -> list[web.RouteDef]:
        """The routes, each answering errors as JSON."""
        return [web.route(r.method, r.path, _guarded(self._handler(r))) for r in self._routes]

    def _handler(self, route: NodeRoute | OpenRoute) -> Handler:
        if isinstance(route, OpenRoute):
            return route.handler
        return partial(self._authenticated, route)

    async def _authenticated(self, route: NodeRoute, request: web.Request) -> web.StreamResponse:
        return await route.handler(self._authenticator.node_of_request(request), request)

    async def _desired(self, record: Record, request: web.Request) -> web.Response:
        return json_answer(self._fetched(record))

    def _fetched(self, record: Record) -> dict[str, Any]:
        self._sync.coming.pulled(record.node.id, record.cfg_revision)
        return self._document.of(record)

    async def _events(self, record: Record, request: web.Request) -> web.Response:
        taken, wait = self._intake.apply_events(record, await json_body(request))
        if wait:
            await asyncio.sleep(wait)
        return json_answer({"taken": taken})

    async def _answer(self, record: Record, request: web.Request) -> web.Response:
        number = whole_number(request.match_info["id"], 1 << 63)
        try:
            body = await json_body(request, self._requests.most(record, number))
        except InputError as error:  # whoever waits for it need not wait any more
            self._requests.resolve(record, number, {"ok": False, "error": error.message})
            raise
        return json_answer(self._resolved(record, number, body))

    def _resolved(self, record: Record, number: int | None, body: Any) -> dict[str, Any]:
        if not isinstance(body, dict):
            raise OperationFailed("cannot take the answer: it is not an object")
        return {"taken": self._requests.resolve(record, number, body)}

    def quick(self, asked: PlainRequest) -> FastResponse | None:
        """What nodes ask most, out of hand: their desired state, to take events, and answers. What
        is refused is left to the routes, which say why."""
        is_answer = asked.body is not None and asked.path.startswith(ANSWERS)
        if not is_answer and asked.path != (DESIRED if asked.body is None else EVENTS):
            return None
        record = self._authenticator.node_of_header(asked.authorization, asked.transport)
        if record is None or self._authenticator.outdated(asked.fields):
            return None
        try:
            if asked.body is None:
                answer = self._fetched(record)
                wait = 0.0
            elif is_answer:
                number = whole_number(asked.path.removeprefix(ANSWERS), 1 << 63)
                answer = self._resolved(record, number, parse_json(asked.body))
                wait = 0.0
            else:
                taken, wait = self._intake.apply_events(record, parse_json(asked.body))
                answer = {"taken": taken}
        except (LayercakeError, ValueError):
            return None
        return FastResponse(
            record.node.id,
            HTTPStatus.OK,
            msgspec.json.encode(answer),
            kind="application/json",
            weight=WEIGHT,
            wait=wait,
            route=ANSWERS + "{id}" if is_answer else asked.path,
        )


def _guarded(handler: Handler) -> Handler:
    async def wrapped(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except Refused as error:
            return web.json_response({"error": error.message, "hint": error.hint}, status=403)
        except LayercakeError as error:
            return web.json_response({"error": error.message, "hint": error.hint}, status=400)

    return wrapped
