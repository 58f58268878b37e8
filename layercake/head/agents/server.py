"""What nodes ask over TLS: to join, for their desired state, and to hand in events and answers."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from aiohttp import web

from imageapi.store.content import Attachment
from imageapi.store.store import ImageStore
from layercake.head.agents.certificates import NodeCertificates
from layercake.head.agents.joining import Joining
from layercake.head.agents.sync import Sync
from layercake.head.settings import Settings
from layercake.head.state.database import Database
from layercake.head.state.engine import Engine
from layercake.head.state.store import Record, Store, WantedImage
from layercake.kraken.converge import Discovered
from layercake.kraken.errors import LayercakeError, OperationFailed, Refused, Unreachable, WireError
from layercake.kraken.wire import check_bearer, node_text, peek_bearer

log = logging.getLogger("layercake.nodes")
_MAX_BODY = 4 << 20
_MAX_EVENTS = 500
_MAX_CONTAINERS = 200
_NOT_HISTORY = ("image.containers", "node.api")
"""Events that say how things are, not what has happened."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def no_attachment(digest: str) -> Attachment | None:
    """How nodes attach a content when all of them are fetched."""
    return None


def desired(
    record: Record, settings: Settings, requests: Mapping[int, dict[str, Any]],
    attachment: Callable[[str], Attachment | None] = no_attachment,
) -> dict[str, Any]:
    """The document D of ARCHITECTURE.md: everything that a node needs to know to act."""
    base = f"http://{settings.address}:{settings.images.http_port}/images/"
    return {
        "revision": record.cfg_revision, "goal": record.goal_values,
        "images": [_image(i, base, attachment(i.digest)) for i in record.wanted],
        "stage": [_image(i, base, attachment(i.digest)) for i in record.stage],
        "requests": [{"id": number, **request} for number, request in requests.items()],
    }


def _image(image: WantedImage, base: str, attachment: Attachment | None) -> dict[str, Any]:
    document = {
        "name": image.name, "digest": image.digest, "size": image.size, "container": image.container,
        "url": base + image.digest.removeprefix("blake2b:"),
    }
    if attachment is not None:
        document |= {"attach": attachment.attach, "verity": attachment.verity}
    return document


_FIELDS: Mapping[str, type | tuple[type, ...]] = {
    "name": str, "digest": str, "state": str, "health": str, "pid": int, "started_s": (int, float, type(None)), "retries": int,
    "last_error": str, "error": str, "retry_in_s": (int, float, type(None)),
}


def containers(data: object) -> tuple[dict[str, Any], ...]:
    """How a node says its containers are, as far as it is well-formed: it goes to people's screens."""
    found = []
    for entry in data if isinstance(data, list) else []:
        if isinstance(entry, dict) and all(isinstance(entry.get(name), kind) for name, kind in _FIELDS.items()):
            found.append({name: entry[name][:500] if isinstance(entry[name], str) else entry[name] for name in _FIELDS})
    return tuple(found[:_MAX_CONTAINERS])


class NodeApi:
    """The /node/v1 routes, and the requests that are waiting for a node's answer."""

    def __init__(
        self, store: Store, engine: Engine, joining: Joining, sync: Sync, database: Database, settings: Settings,
        images: ImageStore, certificates: NodeCertificates,
    ) -> None:
        self._store = store
        self._engine = engine
        self._joining = joining
        self._sync = sync
        self._database = database
        self._settings = settings
        self._images = images
        self._certificates = certificates
        self._numbers = itertools.count(1)
        self._requests: dict[str, dict[int, dict[str, Any]]] = {}
        self._answers: dict[int, asyncio.Future[Any]] = {}

    def routes(self) -> list[web.RouteDef]:
        """The routes, each answering errors as JSON."""
        return [
            web.post("/node/v1/join", _guarded(self._join)),
            web.get("/node/v1/desired", _guarded(self._desired)),
            web.get("/node/v1/secrets/{name}", _guarded(self._secret)),
            web.post("/node/v1/events", _guarded(self._events)),
            web.post("/node/v1/answers/{id}", _guarded(self._answer)),
        ]

    async def ask(self, record: Record, request: dict[str, Any], timeout: float = 15.0) -> Any:
        """Sends a request to a node's agent and waits for its answer. Raises Unreachable if none comes in `timeout` seconds."""
        if record.value("run") != "SYNC":
            hint = f"see `layercake node explain {record.name}`"
            raise Unreachable(f"cannot ask {record.name}: its agent is not in sync", hint=hint)
        number = next(self._numbers)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers[number] = future
        self._requests.setdefault(record.node.id, {})[number] = request
        record.cfg_revision += 1
        self._store.mark(record)
        self._sync.push(record)
        try:
            answer = await asyncio.wait_for(future, timeout)
        except TimeoutError:
            raise Unreachable(f"cannot ask {record.name}: no answer in {timeout:.0f} s") from None
        finally:
            self._answers.pop(number, None)
            self._requests.get(record.node.id, {}).pop(number, None)
        if not answer.get("ok"):
            raise OperationFailed(f"{record.name} says: {str(answer.get('error', 'no'))[:500]}")
        return answer

    async def _join(self, request: web.Request) -> web.Response:
        body = await _body(request)
        fields = ("node", "token", "boot_id", "mac", "version")
        claim = {k: body.get(k) if isinstance(body, dict) else None for k in fields}
        if not all(isinstance(v, str) and len(v) <= 200 for v in claim.values()):
            raise Refused("cannot join: the claim is not well-formed")
        record = self._store.find(str(claim["node"]))
        if record is None:
            self._store.event(None, "join.refused", f"a join from {request.remote} was refused: no such node", severity="warning")
            raise Refused("cannot join: no such node")
        session = self._joining.claim(record, str(claim["token"]), str(claim["boot_id"]))
        self._sync.forget(record)
        record.session, record.last_seen, record.address, record.acked, record.running = session, None, None, 0, ()
        record.staged, record.stage_error, record.unhealthy, record.containers, record.api_port = frozenset(), "", "", (), 0
        facts = {"boot_id": session.boot_id, "mac": claim["mac"], "version": claim["version"]}
        self._store.event(record, "node.joined", f"joined from {request.remote}", data=facts)
        self._engine.post(record, Discovered({"power": "ON", "boot": "INIT", "run": "INIT"}, "the node has joined"))
        self._store.mark(record)
        await self._database.flush(self._store)
        timers = self._settings.sync
        return web.json_response({
            "session": session.number, "key": base64.b64encode(session.key).decode(), "epoch": self._store.epoch,
            "layout": record.planner.layout.to_wire(), "hello_s": timers.hello_s, "dead_s": timers.dead_s,
            "sync": f"{self._settings.address}:{timers.port}", "desired": self._document(record),
            "tls": self._certificates.issue(record.node.id, session.number),
            "mutations": [m.to_wire() for m in record.planner.mutations], "traits": record.planner.traits,
        })

    def _document(self, record: Record) -> dict[str, Any]:
        return desired(record, self._settings, self._requests.get(record.node.id, {}), self._images.attachment)

    def _authenticate(self, request: web.Request) -> Record:
        header = request.headers.get("Authorization", "")
        try:
            node, number = peek_bearer(header)
            record = self._store.find(node_text(node))
            if record is not None and record.session is not None and record.session.number == number:
                check_bearer(header, record.session.key)
                return record
        except WireError as error:
            log.debug("an unusable bearer from %s: %s", request.remote, error)
        raise web.HTTPUnauthorized(text=json.dumps({"error": "cannot serve this: not the session of a joined node"}))

    async def _desired(self, request: web.Request) -> web.Response:
        return _json(self._document(self._authenticate(request)))

    async def _secret(self, request: web.Request) -> web.Response:
        """A key that an image of this node's needs, and no other."""
        record, name = self._authenticate(request), request.match_info["name"]
        document = self._document(record)
        if not any(i.get("attach", {}).get("secret") == name for i in (*document["images"], *document["stage"])):
            self._store.event(record, "secret.refused", "asked for a secret that none of its images needs", severity="warning",
                              data={"secret": name[:80]})
            raise Refused("cannot hand out the secret: no image of this node needs it")
        return web.json_response({"key": self._images.secret(name)}, headers={"Cache-Control": "no-store"})

    async def _events(self, request: web.Request) -> web.Response:
        record = self._authenticate(request)
        body = await _body(request)
        events = body if isinstance(body, list) else [body]
        for event in events[:_MAX_EVENTS]:
            if not isinstance(event, dict) or not isinstance(event.get("data", {}), dict):
                raise OperationFailed("cannot take the events: each is an object")
            kind, text = str(event.get("kind", "node.event"))[:64], str(event.get("text", ""))
            severity = str(event.get("severity", "info"))
            if kind not in _NOT_HISTORY:
                self._store.event(record, kind, text, severity=severity, data=event.get("data"))
            self._note(record, kind, text, event.get("data", {}))
        return _json({"taken": len(events)})

    def _note(self, record: Record, kind: str, text: str, data: Mapping[str, Any]) -> None:
        """Keeps what is to be known of a node from its events: what it has staged, and how its containers are."""
        if kind == "image.staged":
            digest = str(data.get("digest", ""))
            if digest not in {i.digest for i in record.stage}:
                return
            record.staged |= {digest}
        elif kind == "image.stage-failed":
            record.stage_error = str(data.get("error") or text)[:500]
        elif kind in ("image.unhealthy", "image.healthy"):
            record.unhealthy = text[:500] if kind == "image.unhealthy" else ""
        elif kind == "image.containers":
            record.containers = containers(data.get("containers"))
            record.unhealthy = next((c["error"] for c in record.containers if c["health"] == "unhealthy"), "")
        elif kind == "node.api":
            port = data.get("port")
            record.api_port = port if isinstance(port, int) and 0 < port < 65536 else 0
        else:
            return
        self._store.mark(record)

    async def _answer(self, request: web.Request) -> web.Response:
        record = self._authenticate(request)
        body = await _body(request)
        if not isinstance(body, dict):
            raise OperationFailed("cannot take the answer: it is not an object")
        number = int(request.match_info["id"]) if request.match_info["id"].isdigit() else -1
        future = self._answers.get(number)
        if future is not None and number in self._requests.get(record.node.id, {}) and not future.done():
            future.set_result(body)
        return _json({"taken": future is not None})


def _json(value: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")


async def _body(request: web.Request) -> Any:
    data = await request.content.read(_MAX_BODY + 1)
    while not request.content.at_eof() and len(data) <= _MAX_BODY:
        data += await request.content.read(_MAX_BODY + 1 - len(data))
    if len(data) > _MAX_BODY:
        raise OperationFailed("cannot take the request: it is too large")
    try:
        return json.loads(data)
    except ValueError:
        raise OperationFailed("cannot take the request: it is not JSON") from None


def _guarded(handler: Handler) -> Handler:
    async def wrapped(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except Refused as error:
            return web.json_response({"error": error.message, "hint": error.hint}, status=403)
        except LayercakeError as error:
            return web.json_response({"error": error.message, "hint": error.hint}, status=400)

    return wrapped
