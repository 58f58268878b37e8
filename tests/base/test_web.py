"""What a request may be: its body is taken as it comes, on every server; a WebSocket's messages are
plain, and small."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import zlib
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import WSMsgType, web

from layercake.base import tcp_listener
from layercake.base.tcp_listener import Limits
from layercake.moduleapi.web import WebServer, body_of, known, web_socket


async def _count(request: web.Request) -> web.Response:
    known(request, "somebody")
    return web.Response(text=str(len(await body_of(request, 1 << 20))))


async def _echo(request: web.Request) -> web.StreamResponse:
    known(request, "somebody")
    socket = web_socket(20.0)
    await socket.prepare(request)
    async for message in socket:
        await socket.send_str(str(len(message.data)))
    return socket


@contextlib.asynccontextmanager
async def served() -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/count", _count)
    app.router.add_get("/echo", _echo)
    server = WebServer(app, Limits())
    await server.open(*tcp_listener.bound_sockets(["127.0.0.1"], 0))
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        await server.close()


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        ("gzip", gzip.compress(bytes(256 << 10))),
        ("deflate", zlib.compress(bytes(256 << 10))),
        ("br", b"whatever"),
        ("zstd", b"whatever"),
        (" GZIP ", gzip.compress(b"x")),
        ("identity, gzip", gzip.compress(b"x")),
    ],
    ids=["gzip", "deflate", "br", "zstd", "spaces", "two"],
)
async def test_a_packed_body_is_refused_and_not_unpacked(encoding: str, data: bytes) -> None:
    async with served() as url, aiohttp.ClientSession() as client:
        async with client.post(
            f"{url}/count", data=data, headers={"Content-Encoding": encoding}
        ) as answer:
            assert answer.status == 415 and "packed" in await answer.text()
            assert answer.headers["Accept-Encoding"] == "identity"
        async with client.post(
            f"{url}/count", data=data, headers={"Content-Encoding": "identity"}
        ) as answer:
            assert await answer.text() == str(len(data))


async def test_a_websocket_takes_no_packed_messages_and_no_large_ones() -> None:
    async with (
        served() as url,
        aiohttp.ClientSession() as client,
        client.ws_connect(f"{url}/echo", compress=15) as socket,
        asyncio.timeout(10),
    ):
        assert not socket.compress
        await socket.send_str("x" * 1000)
        assert (await socket.receive()).data == "1000"
        await socket.send_str("x" * 1025)
        assert (await socket.receive()).type is WSMsgType.CLOSE
