"""The head's API out of a can, for tests of the CLI: on a Unix socket (or TLS), in a thread, it
answers what it is told to."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from aiohttp import WSMsgType, web

Json = Any
Answer = tuple[int, Json] | Callable[[web.Request, Json], tuple[int, Json]]


DEBIAN = {"name": "debian", "digest": "blake2b:aaaa"}


def node_view(name: str = "n0", **parts: Any) -> dict[str, Any]:
    """A node as the API shows it, converged unless told otherwise."""
    view: dict[str, Any] = {
        "name": name,
        "id": f"id-{name}",
        "state": {"power": "ON", "boot": "INIT", "run": "SYNC", "image": "ACTIVE", "busy": "FREE"},
        "goal": {"power": "ON", "run": "SYNC", "image": "ACTIVE"},
        "wanted": "up",
        "in_use": True,
        "stopped": [],
        "status": "converged",
        "status_text": "",
        "images": {"wanted": [DEBIAN], "running": [DEBIAN]},
        "ip": "10.0.0.1",
        "macs": ["52:54:00:00:00:01"],
        "firmware": "bios",
        "bmc": {"driver": "ipmi", "address": "10.1.0.1"},
        "last_seen_s": 0.4,
        "active": None,
        "since_s": 12.0,
        "revision": 3,
    }
    return {**view, **parts}


def working(name: str = "n0") -> dict[str, Any]:
    """A node that boots."""
    return node_view(
        name,
        state={
            "power": "ON",
            "boot": "WAIT",
            "run": "UNKNOWN",
            "image": "UNKNOWN",
            "busy": "UNKNOWN",
        },
        status="working",
        in_use=False,
        status_text="boot-wait, 12 s",
        images={"wanted": [DEBIAN], "running": []},
        active={"mutation": "boot-wait", "attempt": 1, "seconds": 12.0, "deadline_s": 168.0},
        last_seen_s=None,
    )


def event(number: int, text: str = "on", **parts: Any) -> dict[str, Any]:
    """An event as the API shows it."""
    return {
        "id": number,
        "at": 1700000000.0 + number,
        "node": "n0",
        "kind": "power.state",
        "severity": "info",
        "text": text,
        "data": {},
        **parts,
    }


class CannedApi:
    """`answers` maps "GET /v1/..." to (status, JSON) or to a function of request and body;
    `requests` keeps what was asked. `snapshots` are the successive answers to GET /v1/nodes, the
    last one stays. `batches` go out on the WebSocket."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.requests: list[tuple[str, Mapping[str, str], Json]] = []
        self.headers: list[Mapping[str, str]] = []
        self.snapshots: list[list[dict[str, Any]]] = [[node_view()]]
        self.batches: list[list[dict[str, Any]]] = []
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._runner: web.AppRunner | None = None

    def start(self, socket: Path | None = None, tls: ssl.SSLContext | None = None) -> None:
        """Serves on a Unix socket, or with TLS on a free port of loopback."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._serve(socket, tls), self._loop).result(10)

    def stop(self) -> None:
        """Ends the thread and all that is in it."""
        if self._runner is not None:
            asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def asked(self, key: str) -> list[Json]:
        """The bodies of the requests to "POST /v1/..."."""
        return [body for name, _, body in self.requests if name == key]

    async def _serve(self, socket: Path | None, tls: ssl.SSLContext | None) -> None:
        app = web.Application()
        app.router.add_get("/v1/events/ws", self._websocket)
        app.router.add_route("*", "/{tail:.*}", self._any)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = (
            web.UnixSite(self._runner, str(socket))
            if socket
            else web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=tls)
        )
        await site.start()
        if not socket:
            self.port = self._runner.addresses[0][1]

    async def _any(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        body = json.loads(raw) if raw else None
        key = f"{request.method} {request.path}"
        self.requests.append((key, dict(request.query), body))
        self.headers.append(dict(request.headers))
        answer = self.answers.get(key)
        if answer is None and key == "GET /v1/nodes":
            return web.json_response(
                {"nodes": self.snapshots.pop(0) if len(self.snapshots) > 1 else self.snapshots[0]}
            )
        if answer is None:
            return web.json_response(
                {"error": f"cannot find {request.path}", "hint": ""}, status=404
            )
        status, value = answer(request, body) if callable(answer) else answer
        if isinstance(value, str):
            return web.Response(text=value, status=status)
        return web.json_response(value, status=status)

    async def _websocket(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(("WS", dict(request.query), None))
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        for batch in self.batches:
            await socket.send_json({"events": batch})
        async for message in socket:
            if message.type is WSMsgType.ERROR:
                break
        return socket
