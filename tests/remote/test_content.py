"""The content of a file that is copied, as nodes fetch it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
import os
import socket
import time
from typing import Any

import pytest
from aiohttp import web
from patience import patience

from layercake.features.remote.node_routes import ContentRequests
from layercake.features.remote.operations import Remote
from tests.remote.conftest import Fleet
from tests.support.api import served
from tests.support.world import World

SIZE = 8 << 20


async def test_a_node_that_is_slow_holds_no_copy_of_it_in_the_head(
    world: World, fleet: Fleet
) -> None:
    node = fleet["n0"]
    node.mute = True
    data = os.urandom(SIZE)
    body = {"range": "n0", "path": "/tmp/x", "content": {"base64": base64.b64encode(data).decode()}}
    sent = io.BytesIO(json.dumps(body).encode())
    transports: list[asyncio.WriteTransport] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        assert isinstance(request.transport, asyncio.WriteTransport)
        transports.append(request.transport)
        (route,) = ContentRequests(world.head.part(Remote)).routes()
        return await route.handler(node.record, request)

    app = web.Application()
    app.router.add_get("/{digest}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with served(world.head, local=True) as api:
        copying = asyncio.ensure_future(api.post("/v1/nodes/copy", data=sent))
        digest = await _asked(world, node.record)
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
            slow.connect(runner.addresses[0])
            slow.sendall(f"GET /{digest} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            async with asyncio.timeout(patience(10.0)):
                while not transports or not transports[0].get_write_buffer_size():
                    await asyncio.sleep(0.01)
            assert transports[0].get_write_buffer_size() < 1 << 20
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            said = await asyncio.to_thread(_all_of, slow)
        assert said.partition(b"\r\n\r\n")[2] == data
        (await copying).close()
    await runner.cleanup()


async def test_a_node_that_never_takes_it_is_given_up(
    world: World, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte now and then kept 8 MiB in memory for weeks."""
    monkeypatch.setattr("layercake.features.remote.node_routes.FETCHED_S", 0.5)
    record = fleet["n0"].record
    remote = world.head.part(Remote)
    monkeypatch.setattr(remote, "content", lambda record, digest: bytes(SIZE))
    (route,) = ContentRequests(remote).routes()
    app = web.Application()

    async def handler(request: web.Request) -> web.StreamResponse:
        return await route.handler(record, request)

    app.router.add_get("/{digest}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        slow.connect(runner.addresses[0])
        slow.sendall(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
        taken = await asyncio.wait_for(asyncio.to_thread(_slowly, slow), patience(20.0))
    assert taken < SIZE
    await runner.cleanup()


def _slowly(slow: socket.socket) -> int:
    """Takes a little every now and then, until it ends."""
    taken = 0
    with contextlib.suppress(ConnectionError):
        while part := slow.recv(256):
            taken += len(part)
            time.sleep(0.001)
    return taken


async def _asked(world: World, record: Any) -> str:
    async with asyncio.timeout(patience(10.0)):
        while not (found := world.head.kernel.requests.document(record)["requests"]):
            await asyncio.sleep(0.01)
    return str(found[0]["digest"])


def _all_of(slow: socket.socket) -> bytes:
    parts = []
    while part := slow.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)
