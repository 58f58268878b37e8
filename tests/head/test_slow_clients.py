"""A client that follows the events and reads a few bytes is cut off, and harms nobody."""

from __future__ import annotations

import asyncio
import contextlib
import json
import select
import socket

import pytest

from layercake.features.events import routes
from layercake.fleet import events
from tests.support.api import served
from tests.support.world import World

EVENTS = 8000


async def test_a_client_that_reads_next_to_nothing_is_cut_off_and_others_get_all(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "STUCK_S", 3.0)  # the good one is read by the same loop
    async with served(world.head, local=True) as client, client.ws_connect("/v1/events/ws") as good:
        slow = socket.socket(socket.AF_UNIX)
        slow.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(slow, client.connector.path)
        await loop.sock_sendall(
            slow,
            b"GET /v1/events/ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: "
            b"websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        )
        assert (await loop.sock_recv(slow, 12)).startswith(b"HTTP/1.1 101")
        got = 0
        for number in range(EVENTS):
            world.head.store.event(None, events.NODE_EVENT, f"{number} " + "x" * 1900)
            if number % 500 == 499:
                while got <= number:
                    got += len(json.loads((await good.receive(timeout=60)).data)["events"])
        poll, read = select.poll(), 0
        poll.register(slow, 0)
        async with asyncio.timeout(60):
            while not poll.poll(0):  # until the head has hung up
                await asyncio.sleep(0.01)
        with contextlib.suppress(ConnectionError):
            while data := await asyncio.wait_for(loop.sock_recv(slow, 1 << 20), 60):
                read += len(data)
        slow.close()
        assert got == EVENTS
        assert read < EVENTS * 1900


async def test_who_reads_one_byte_at_a_time_is_in_nobodys_way(world: World) -> None:
    """A list of some megabytes, of which one byte is taken between two requests of somebody
    else."""
    for number in range(3000):
        world.head.store.event(None, events.NODE_EVENT, f"{number} " + "x" * 900)
    async with served(world.head, local=True) as client:
        loop = asyncio.get_running_loop()
        slow = [socket.socket(socket.AF_UNIX) for _ in range(5)]
        try:
            for one in slow:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                one.setblocking(False)
                await loop.sock_connect(one, client.connector.path)
                await loop.sock_sendall(
                    one, b"GET /v1/events?limit=5000 HTTP/1.1\r\nHost: x\r\n\r\n"
                )
            for turn in range(50):
                for one in slow:
                    assert await loop.sock_recv(one, 1)
                async with (
                    asyncio.timeout(30),
                    client.get("/v1/nodes" if turn % 2 else "/v1/status") as answer,
                ):
                    assert answer.status == 200
            world.head.store.event(world.node("n1"), events.NODE_EVENT, "others are told")
            async with client.get("/v1/events?node=n1") as answer:
                assert [e["text"] for e in (await answer.json())["events"]][-1] == "others are told"
        finally:
            for one in slow:
                one.close()
