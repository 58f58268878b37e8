"""A server's door: strangers get few places and little time, and keep nobody out. Over real
sockets."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from patience import patience

from layercake.base import tcp_listener
from layercake.base.packets import bpf
from layercake.base.packets.dropped_sources import program_without
from layercake.base.tcp_listener import Limits
from layercake.moduleapi.web import WebServer, body_of, charge_names, known, open_to_all

LIMITS = Limits(
    each=8,
    strangers=12,
    known=3,
    most=20,
    prove_s=1.5,
    answer_s=1.0,
    per_s=5.0,
    burst=100.0,
    requests_per_s=20.0,
)
ME = b"GET /me?who=%s HTTP/1.1\r\nHost: x\r\n\r\n"


async def _answer(request: web.Request) -> web.Response:
    who = request.query.get("who", "")
    if not who:
        raise web.HTTPForbidden(text="no")
    known(request, who)
    return web.Response(text=f"you are {who}, {len(await body_of(request, 1000))} bytes")


async def _open(request: web.Request) -> web.Response:
    await open_to_all(request)
    return web.Response(text="for everybody")


async def _big(request: web.Request) -> web.Response:
    return web.Response(body=bytes(1 << 20))


async def _names(request: web.Request) -> web.Response:
    known(request, "n0")
    charge_names(request, 10_000)
    return web.Response(text="of many")


@contextlib.asynccontextmanager
async def served(limits: Limits = LIMITS) -> AsyncIterator[int]:
    app = web.Application()
    app.router.add_route("*", "/me", _answer)
    app.router.add_get("/big", _big)
    app.router.add_get("/open", _open)
    app.router.add_get("/names", _names)
    server = WebServer(app, limits, idle_s=30.0)
    await server.open(*tcp_listener.bound_sockets(["127.0.0.1"], 0))
    try:
        yield server.port
    finally:
        await server.close()


_made: list[socket.socket] = []


@pytest.fixture(autouse=True)
def _all_are_closed() -> Iterator[None]:
    yield
    while _made:
        _made.pop().close()


def knock(port: int, source: str = "127.0.0.1", data: bytes = b"") -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), 5.0, (source, 0))
    _made.append(made)
    made.sendall(data)
    return made


async def said(link: socket.socket, limit: float = 5.0) -> bytes:
    """What comes next; b"" when the connection is closed."""
    link.setblocking(False)
    with contextlib.suppress(ConnectionError):
        return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(link, 65536), limit)
    return b""


async def is_open(link: socket.socket) -> bool:
    try:
        return bool(await said(link, 0.05))
    except TimeoutError:
        return True


async def test_idle_strangers_keep_nobody_out() -> None:
    async with served() as port:
        idle = []
        for _ in range(60):
            idle.append(knock(port))
            await asyncio.sleep(0)
        for source in ("127.0.0.1", "127.0.0.2"):  # also who shares their address
            link = knock(port, source, ME % b"n0")
            assert b"you are n0" in await said(link)
        assert sum([await is_open(link) for link in idle]) <= LIMITS.each
        async with asyncio.timeout(10):
            while any([await is_open(link) for link in idle]):
                await asyncio.sleep(0.1)  # their time is up, without anybody coming
        assert await is_open(link), "who is known stays"


@pytest.mark.parametrize("start", [b"", b"GET /me?x=", b"GET /me?who=n0 HTTP/1.1\r\nHost: x\r\n"])
async def test_a_stranger_has_until_its_request_is_there(start: bytes) -> None:
    async with served() as port:
        link, since = knock(port, data=start), asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() - since < patience(6.0):
            if not await is_open(link):
                break
            with contextlib.suppress(OSError):
                link.sendall(b"a" if start else b"")  # a byte now and then does not help
            await asyncio.sleep(0.2)
        assert 1.0 < asyncio.get_running_loop().time() - since < patience(6.0)


async def test_a_body_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("layercake.moduleapi.web.BODY_S", 0.2)
    head = b"POST /me%s HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\nabc"
    async with served() as port:
        link = knock(port, data=head % b"?who=n0")
        assert b"500 Internal" in await said(link), "the handler of this test says no more of it"
        assert b"403" in await said(knock(port, data=head % b""))


async def test_who_is_refused_loses_the_connection_and_is_slowed_down_in_the_end() -> None:
    async with served(Limits(burst=20.0, per_s=1.0)) as port:
        answers = []
        for _ in range(40):
            link = knock(port, data=b"GET /me HTTP/1.1\r\nHost: x\r\n\r\n")
            answers.append(await said(link))
            assert await said(link) == b"", "no second guess on the same connection"
        assert 20 <= sum(b"403" in a for a in answers) <= 30 and b"" in answers
        assert b"you are n0" in await said(knock(port, "127.0.0.2", ME % b"n0")), "others are not"


async def test_honest_clients_behind_one_address_are_not_slowed_down() -> None:
    async with served(Limits(burst=5.0, per_s=0.1)) as port:
        for number in range(50):
            link = knock(port, data=ME % b"n%d" % number)
            assert b"you are n%d" % number in await said(link)
            link.close()


async def test_one_that_is_known_has_so_many_connections_and_asks_so_fast() -> None:
    async with served() as port:
        links = []
        for _ in range(6):
            links.append(knock(port, data=ME % b"n0"))
            assert b"you are n0" in await said(links[-1])
        assert [await is_open(link) for link in links] == [False] * 3 + [True] * 3
        since = asyncio.get_running_loop().time()
        for _ in range(60):
            links[-1].sendall(ME % b"n0")
            assert b"you are n0" in await said(links[-1])
        assert asyncio.get_running_loop().time() - since > 0.7, (
            "60 requests at 20 a second, of which 34 were left at once"
        )


async def test_who_asks_too_much_by_ever_new_connections_waits_as_on_one() -> None:
    async with served(Limits(requests_per_s=20.0, burst=1000.0)) as port:
        since = asyncio.get_running_loop().time()
        for _ in range(60):
            link = knock(port, data=ME % b"n0")
            assert b"you are n0" in await said(link)
            link.close()
        assert asyncio.get_running_loop().time() - since > 0.7, (
            "60 requests at 20 a second, of which 40 were left at once"
        )


async def test_who_has_left_holds_no_place_when_its_request_comes_to_something() -> None:
    async def late(request: web.Request) -> web.Response:
        assert request.transport is not None
        connection = tcp_listener.connection_of(request.transport)
        assert connection is not None
        arrived.set()
        await left.wait()
        connection.identify("n0")
        done.append(connection.who)
        return web.Response()

    arrived, left, done = asyncio.Event(), asyncio.Event(), list[str]()
    app = web.Application()
    app.router.add_get("/late", late)
    server = WebServer(app, LIMITS)
    await server.open(*tcp_listener.bound_sockets(["127.0.0.1"], 0))
    try:
        link = knock(server.port, data=b"GET /late HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.wait_for(arrived.wait(), 5)
        link.close()
        await asyncio.sleep(0.1)
        left.set()
        await asyncio.sleep(0.1)
        assert (
            done == [""] and server.listener is not None and server.listener.connection_count() == 0
        )
    finally:
        await server.close()


async def test_big_requests_and_answers_count_as_several() -> None:
    async with served(Limits(requests_per_s=20.0)) as port:
        link, since = knock(port, data=ME % b"n0"), asyncio.get_running_loop().time()
        assert b"you are n0" in await said(link)
        for _ in range(6):
            link.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
            left = 1 << 20
            while left > 0:
                left -= len(await said(link))
        assert asyncio.get_running_loop().time() - since > 1.2, (
            "5 MiB are 80 requests more, at 20 a second, 40 at once"
        )


async def test_a_range_of_many_nodes_counts_as_many_requests() -> None:
    names = b"GET /names HTTP/1.1\r\nHost: x\r\n\r\n"
    async with served() as port:
        began = time.monotonic()
        for _ in range(3):
            assert b"of many" in await said(knock(port, data=names))
        assert time.monotonic() - began > 1.0, "39 requests of 20 a second, after 40 at once"


async def test_without_file_descriptors_a_stranger_goes_and_the_log_stays_short(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """asyncio's own server wrote a traceback for each of a thousand attempts a second, and let
    nobody in."""
    async with served(Limits(each=200, strangers=200, per_s=1e6, burst=1e6)) as port:
        there = len(list(Path("/proc/self/fd").iterdir()))
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (there + 60, hard))
        idle = []
        try:
            with contextlib.suppress(OSError):
                while True:
                    idle.append(knock(port))
                    await asyncio.sleep(0.001)
            idle.pop().close()  # one descriptor for us, one for the server
            link = knock(port, data=ME % b"n0")
            assert b"you are n0" in await said(link)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        told = [r for r in caplog.records if r.name == "layercake.tcp_listener"]
        assert 0 < len(told) < 40 and not any(r.exc_info for r in caplog.records)


def test_machines_of_a_network_of_the_heads_own_count_each_for_itself() -> None:
    near = Limits().beside(["10.0.0.1", "fd00:121::1"]).near
    assert tcp_listener.counted_address(("fd00:121::56", 1, 0, 0), near) == "fd00:121::56"
    assert tcp_listener.counted_address(("fd00:122::56", 1, 0, 0), near) == "fd00:122::"
    assert tcp_listener.counted_address(("::ffff:10.0.0.9", 1, 0, 0), near) == "10.0.0.9"


async def test_what_is_open_to_all_is_no_failed_knock_and_its_connection_goes_on() -> None:
    ask = b"GET /open HTTP/1.1\r\nHost: x\r\n\r\n"
    async with served(replace(LIMITS, burst=3.0, per_s=0.01, requests_per_s=1000.0)) as port:
        for _ in range(12):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for _ in range(3):
                writer.write(ask)
                async with asyncio.timeout(30):
                    assert b"200" in await reader.readline()
                    assert await reader.readuntil(b"for everybody")
            writer.write(ME % b"")
            async with asyncio.timeout(30):
                assert b"403" in await reader.readline()
                assert (await reader.read()).endswith(b"no"), "a guess ends it all the same"
            writer.close()


async def test_who_is_known_has_a_share_of_its_address() -> None:
    """A container opened 20 connections a second, and the agent of its node was locked out."""
    async with served(replace(LIMITS, each=64, strangers=64, burst=10.0)) as port:
        assert b"you are n0" in await said(knock(port, data=ME % b"n0"))
        for source in ("127.0.0.1", "127.0.0.2"):
            answers = [await said(knock(port, source, ME % b"")) for _ in range(25)]
            assert b"403" in answers[0]
        assert b"you are n0" in await said(knock(port, data=ME % b"n0"))
        assert await said(knock(port, "127.0.0.2", ME % b"n0")) == b"", "nobody was known there"


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_who_goes_on_and_on_is_dropped_by_the_kernel_for_a_while(host: str) -> None:
    """A thousand connections a second that were accepted and closed took a fifth of the joins."""
    loop = asyncio.get_running_loop()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    me = host if ":" in host else "127.0.0.9"
    listener = tcp_listener.TcpListener(asyncio.Protocol, replace(LIMITS, burst=5.0))
    listener.open(*tcp_listener.bound_sockets([host], 0))

    async def connect(source: str) -> socket.socket:
        made = socket.socket(family)
        _made.append(made)
        made.setblocking(False)
        made.bind((source, 0))
        await loop.sock_connect(made, (host, listener.port))
        return made

    try:
        dropped = None
        for _ in range(200):
            try:
                async with asyncio.timeout(0.5):
                    await connect(me)
            except TimeoutError:
                dropped = loop.create_task(connect(me))
                break
        assert dropped is not None, "it can still be refused one by one"
        if ":" not in host:
            for _ in range(20):
                await connect("127.0.0.8")
        assert not dropped.done(), "others are let in meanwhile"
        await asyncio.wait_for(dropped, patience(20))
    finally:
        listener.close()


@pytest.mark.parametrize(
    "source", ["10.0.0.1", "fd00:1:2:3::", "fd00:1:2:3::7"], ids=["ipv4", "network", "ipv6"]
)
def test_only_packets_of_those_sources_are_dropped(source: str) -> None:
    many = [*(f"10.1.0.{n}" for n in range(30)), *(f"fd00:9:0:{n:x}::" for n in range(1, 20))]
    program = program_without([*many, source, *many])
    ours = {"10.0.0.1", "fd00:1:2:3::7", *({"fd00:1:2:3::9"} if source.endswith("::") else ())}
    same = {one for one in ours if (":" in one) == (":" in source)}
    for packet in ("10.0.0.1", "10.0.0.2", "fd00:1:2:3::7", "fd00:1:2:3::9", "fd00:1:2:4::7"):
        assert run(program, header(packet)) == (0 if packet in same else 0xFFFFFFFF), packet


def header(source: str) -> bytes:
    """The header of a packet from there."""
    if ":" in source:
        return b"\x60" + bytes(7) + socket.inet_pton(socket.AF_INET6, source) + bytes(16)
    return b"\x45" + bytes(11) + socket.inet_aton(source) + bytes(4)


def run(program: bpf.Program, packet: bytes) -> int:
    """What a program of classic BPF returns for a packet, of which the kernel shows the network's
    header at SKF_NET_OFF."""
    value = at = 0
    while True:
        code, yes, no, k = program[at]
        at += 1
        place = k - 0xFFF00000
        match code:
            case 0x20:
                value = int.from_bytes(packet[place : place + 4])
            case 0x30:
                value = packet[place]
            case 0x74:
                value >>= k
            case 0x15:
                at += yes if value == k else no
            case 0x05:
                at += k
            case 0x06:
                return k
            case _:
                raise AssertionError(code)
