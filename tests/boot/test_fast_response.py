"""Small answers out of hand to plain requests, and whatever is not as plain as that."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import itertools
import time
from collections.abc import AsyncIterator
from functools import partial
from http import HTTPStatus
from typing import cast

import pytest
from aiohttp import web

from layercake.base import tcp_listener
from layercake.base.tcp_listener import Connection, Limits
from layercake.moduleapi import fast_response
from layercake.moduleapi.fast_response import FastResponder, FastResponse, PlainRequest, TimeSlicer
from layercake.moduleapi.web import WebServer

OTHER = b"GET /other HTTP/1.1\r\nHost: here\r\n\r\n"
POST = (
    b"POST /small HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\nauthorization: "
    b"Bearer a.1.b\r\n"
    b'Content-Length: 8\r\n\r\n{"a": 1}'
)
GET = b"GET /small HTTP/1.1\r\nHost: here\r\nUser-Agent: iPXE\r\n\r\n"


async def closed(writer: asyncio.StreamWriter) -> None:
    """Closes a client's connection."""
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


class Rig:
    """A web server that says "slow", and "quick" out of hand at /small."""

    def __init__(self, limits: Limits, idle_s: float = 30.0) -> None:
        async def slow(request: web.Request) -> web.Response:
            return web.Response(text="slow")

        app = web.Application()
        app.router.add_route("*", "/{name}", slow)
        self.asked: list[tuple[str, str, bytes | None, str]] = []
        self.sent, self.wait = 0, 0.0
        self.server = WebServer(app, limits, idle_s=idle_s, quick=self.answer)

    def answer(self, asked: PlainRequest) -> FastResponse | None:
        if asked.path == "/bad":
            raise RuntimeError("a bug")
        self.asked.append((asked.address, asked.path, asked.body, asked.authorization))
        return (
            FastResponse("somebody", HTTPStatus.OK, b"quick", self.count, wait=self.wait)
            if asked.path == "/small"
            else None
        )

    def count(self) -> None:
        self.sent += 1

    async def say(self, *pieces: bytes) -> str:
        """What comes back for each of these pieces."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        found = []
        try:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                async with asyncio.timeout(10):
                    head = (await reader.readuntil(b"\r\n\r\n")).decode()
                    length = int(head.lower().partition("content-length: ")[2].partition("\r")[0])
                    found.append(
                        head.partition("\r")[0] + " " + (await reader.readexactly(length)).decode()
                    )
        finally:
            await closed(writer)
        return ", ".join(found)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig(Limits())
    await made.server.open(*tcp_listener.bound_sockets(["127.0.0.1"], 0))
    yield made
    await made.server.close()


async def test_plain_requests_are_answered_out_of_hand_until_one_is_not(rig: Rig) -> None:
    assert await rig.say(GET, GET, OTHER, GET) == ", ".join(
        f"HTTP/1.1 200 OK {how}" for how in ("quick", "quick", "slow", "slow")
    )
    assert (
        rig.asked == [("127.0.0.1", path, None, "") for path in ("/small", "/small", "/other")]
        and rig.sent == 2
    )


@pytest.mark.parametrize(
    "pieces", [[POST], [POST[:-3], POST[-3:]], [POST[:-8], POST[-8:-4], POST[-4:]]]
)
async def test_what_is_sent_with_a_request_may_come_later(rig: Rig, pieces: list[bytes]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", rig.server.port)
    for piece in pieces:
        assert not rig.sent
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0.02)  # what comes together would be one piece
    async with asyncio.timeout(10):
        assert (await reader.readuntil(b"quick")).startswith(b"HTTP/1.1 200 OK")
    await closed(writer)
    assert rig.asked == [("127.0.0.1", "/small", b'{"a": 1}', "Bearer a.1.b")]


async def test_what_is_begun_and_not_ended_is_not_waited_for_for_ever(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast_response, "BODY_S", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", rig.server.port)
    writer.write(POST[:-1])
    async with asyncio.timeout(10):
        assert await reader.read() == b""
    await closed(writer)
    assert not rig.asked


async def test_an_answer_that_is_to_wait_does_and_the_next_comes_after_it(rig: Rig) -> None:
    rig.wait = 0.1
    loop = asyncio.get_running_loop()
    started = loop.time()
    assert await rig.say(GET) == "HTTP/1.1 200 OK quick" and loop.time() - started >= 0.1
    rig.wait = 30.0
    reader, writer = await asyncio.open_connection("127.0.0.1", rig.server.port)
    writer.write(GET)
    await writer.drain()
    while rig.sent < 2:
        await asyncio.sleep(0.01)
    writer.write(OTHER)
    async with asyncio.timeout(10):
        assert (await reader.readuntil(b"slow")).count(b"quick") == 1, "in their order"
    await closed(writer)


@pytest.mark.parametrize(
    "asked",
    [
        b"GET /other HTTP/1.1\r\nHost: here\r\n\r\n",
        b"GET /small?a=1 HTTP/1.1\r\nHost: here\r\n\r\n",
        b"GET /small HTTP/1.0\r\n\r\n",
        b"POST /small HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /small HTTP/1.1\r\nHost: here\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000,
        b"PUT /small HTTP/1.1\r\nHost: here\r\nContent-Length: 0\r\n\r\n",
        b"GET /small HTTP/1.1\r\nHost: here\r\ncontent-length: 0\r\n\r\n",
        b"GET /small HTTP/1.1\r\nHost: here\r\nRange: bytes=0-1\r\n\r\n",
        b"GET /small HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n",
        b"GET /sm%61ll HTTP/1.1\r\nHost: here\r\n\r\n",
        b"GET /small HTTP/1.1\r\nHost: " + b"x" * 3000 + b"\r\n\r\n",
    ],
)
async def test_what_is_not_plain_is_the_web_servers(rig: Rig, asked: bytes) -> None:
    assert (await rig.say(asked)).endswith(" 200 OK slow") and rig.sent == 0


async def test_a_packed_body_is_the_web_servers_to_refuse(rig: Rig) -> None:
    packed = POST.replace(b"Content-Type: application/json", b"Content-Encoding: gzip")
    assert (await rig.say(packed)).startswith("HTTP/1.1 415 ") and rig.sent == 0


@pytest.mark.parametrize(
    "length", [b"+5", b"-1", b"0x5", b"5, 5", b"5x", b" ", b"1_0", b"\xb5", b"9" * 20]
)
@pytest.mark.parametrize("method", [b"GET", b"POST"])
async def test_a_length_that_is_no_plain_number_is_the_web_servers(
    rig: Rig, method: bytes, length: bytes
) -> None:
    """Who reads it otherwise takes what follows for another request."""
    asked = method + b" /small HTTP/1.1\r\nHost: here\r\nContent-Length: " + length
    await rig.say(asked + b"\r\n\r\n")
    assert not rig.asked and rig.sent == 0


class Inner(asyncio.Protocol):
    """A web server's protocol that keeps what it gets."""

    def __init__(self) -> None:
        self.got: list[bytes] = []

    def data_received(self, data: bytes) -> None:
        self.got.append(data)


class AcceptedTransport(asyncio.Transport):
    """One that a TcpListener has accepted; it may be `lost`, and tell its protocol later in the
    same turn of the loop."""

    lost = False

    def is_closing(self) -> bool:
        """Whether it has ended."""
        return self.lost

    def close(self) -> None:
        """It ends."""
        self.lost = True

    def get_protocol(self) -> asyncio.BaseProtocol:
        return Connection(cast(tcp_listener.TcpListener, None), "127.0.0.1", 0.0)


@pytest.mark.parametrize("pieces", [[GET[:9], GET[9:]], [GET + GET], [GET + b"x"], [b"\r\n", GET]])
async def test_what_comes_in_pieces_or_with_more_is_the_web_servers(pieces: list[bytes]) -> None:
    inner = Inner()
    first = FastResponder(
        lambda asked: FastResponse("somebody", HTTPStatus.OK, b"quick"),
        lambda: inner,
        1.0,
        set(),
        TimeSlicer(60.0),
    )
    first.connection_made(AcceptedTransport({"peername": ("127.0.0.1", 5)}))
    for piece in pieces:
        first.data_received(piece)
    assert inner.got == pieces


@pytest.mark.parametrize("cancels", [False, True])
async def test_what_a_lost_connection_has_asked_is_not_done_and_ends_in_silence(
    cancels: bool,
) -> None:
    asked: list[str] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        asked.append(request.path)
        return web.Response()

    failed: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda loop, about: failed.append(str(about["message"]))
    )
    server = web.Server(answer, handler_cancellation=cancels)
    slicer = TimeSlicer(1e-9)
    first = FastResponder(lambda asked: None, server, 1.0, set(), slicer)
    transport = AcceptedTransport({"peername": ("127.0.0.1", 5)})
    first.connection_made(transport)
    slicer.do(lambda: time.sleep(1e-6))  # the slice is used up: what comes now is looked at later
    first.data_received(OTHER)
    transport.lost = True
    await asyncio.sleep(0)
    first.connection_lost(None)
    for _ in range(5):
        await asyncio.sleep(0)
    gc.collect()
    assert not failed and not asked and not server.connections


async def test_what_is_too_much_for_one_turn_of_the_loop_waits_in_its_order() -> None:
    seconds = itertools.count(0.0, 1.0)  # each work takes one
    stretch, done = TimeSlicer(1.5, lambda: next(seconds)), list[int]()
    for number in range(5):
        stretch.do(partial(done.append, number))
    seen = [list(done)]
    for _ in range(3):
        await asyncio.sleep(0)
        stretch.do(partial(done.append, 5 + len(seen)))
        seen.append(list(done))
    assert seen == [[0, 1], [0, 1, 2, 3], [0, 1, 2, 3, 4, 6], [0, 1, 2, 3, 4, 6, 7, 8]]


async def waiting(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request takes longer than the slice."""
    monkeypatch.setattr("layercake.moduleapi.web.TimeSlicer", partial(TimeSlicer, 1e-9))
    await rig.server.open(*tcp_listener.bound_sockets(["127.0.0.1"], 0))


async def test_one_that_fails_later_ends_its_own_connection_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig, failed = Rig(Limits()), list[str]()
    asyncio.get_running_loop().set_exception_handler(
        lambda loop, about: failed.append(str(about.get("exception")))
    )
    await waiting(rig, monkeypatch)
    bad = b"GET /bad HTTP/1.1\r\nHost: here\r\n\r\n"
    try:
        found = await asyncio.gather(
            *(rig.say(asked) for asked in (GET, bad, GET, bad, GET)), return_exceptions=True
        )
    finally:
        await rig.server.close()
    assert [found[n] for n in (0, 2, 4)] == ["HTTP/1.1 200 OK quick"] * 3 and failed == [
        "a bug",
        "a bug",
    ]
    assert all(isinstance(found[n], (OSError, EOFError)) for n in (1, 3)), found


async def test_what_was_asked_before_the_other_side_said_its_last_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(Limits())
    await waiting(rig, monkeypatch)

    async def asks() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", rig.server.port)
        writer.write(GET)
        writer.write_eof()
        async with asyncio.timeout(10):
            found = await reader.read()
        await closed(writer)
        return found

    try:
        assert all(
            found.endswith(b"quick") for found in await asyncio.gather(*(asks() for _ in range(20)))
        )
    finally:
        await rig.server.close()


@pytest.mark.parametrize("asked", [b"GET /small HTTP/1.1\r\nno header\r\n\r\n", b"\0\1\2\r\n\r\n"])
async def test_what_is_no_request_is_refused(rig: Rig, asked: bytes) -> None:
    assert (await rig.say(asked)).startswith("HTTP/1.") and rig.sent == 0 and not rig.asked


async def test_a_connection_that_asks_no_more_ends() -> None:
    rig = Rig(Limits(), idle_s=0.05)
    await rig.server.open(*tcp_listener.bound_sockets(["127.0.0.1"], 0))
    reader, writer = await asyncio.open_connection("127.0.0.1", rig.server.port)
    writer.write(GET)
    async with asyncio.timeout(10):
        assert (await reader.read()).endswith(b"quick"), "to its end"
    writer.close()
    async with asyncio.timeout(10):
        while rig.server.listener is not None and rig.server.listener.connection_count():
            await asyncio.sleep(0.01)
    await rig.server.close()


async def test_a_server_that_closes_ends_connections_that_wait(rig: Rig) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", rig.server.port)
    writer.write(GET)
    async with asyncio.timeout(10):
        assert (await reader.readuntil(b"quick")).startswith(b"HTTP/1.1 200 OK")
        await rig.server.close()
        assert await reader.read() == b""
    writer.close()


async def test_who_asks_too_often_by_connections_of_his_own_waits() -> None:
    rig = Rig(dataclasses.replace(Limits(), requests_per_s=2.0))
    await rig.server.open(*tcp_listener.bound_sockets(["127.0.0.1"], 0))
    loop = asyncio.get_running_loop()
    started = loop.time()
    for _ in range(5):
        assert (await rig.say(GET)).endswith("quick")
    assert loop.time() - started >= 0.4, "four at once, and then two a second"
    await rig.server.close()
