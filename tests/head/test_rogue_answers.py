"""A node that is somebody else's by now answers the head: what it says is bounded, in size and in
time."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from layercake.agents import pki
from layercake.agents.client import read_answer
from layercake.agents.pki import Authority
from layercake.kraken.errors import InputError, OperationFailed, Unreachable
from tests.support.world import World

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def rogue(world: World, answer: Answer) -> AsyncIterator[None]:
    """n0 serves its API with its own certificate, and says what it likes."""
    directory = world.directory / "pki"
    pki.create(directory, "127.0.0.1")
    world.attach("n0")
    world.send(world.hello("n0"))
    record = world.node("n0")
    assert record.session is not None
    tls = Authority(directory).issue(record.node.id, record.session.number)
    assert tls is not None
    (world.directory / "node.pem").write_text(tls["key"] + tls["cert"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(world.directory / "node.pem")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            await answer(reader, writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    record.api_port = server.sockets[0].getsockname()[1]
    try:
        yield
    finally:
        server.close()
        await server.wait_closed()


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def test_an_error_of_400_mb_does_not_land_in_memory(world: World) -> None:
    sent = 0

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(
            b"HTTP/1.1 500 no\r\nContent-Type: application/json\r\nContent-Length: "
            b'419430400\r\n\r\n{"error": "'
        )
        while sent < 400:
            writer.write(b"x" * (1 << 20))
            await writer.drain()
            sent += 1

    async with rogue(world, endless):
        before = peak_mb()
        with pytest.raises(OperationFailed, match="it answers 500"):
            async with world.head.kernel.node_link.open(world.node("n0"), "GET", "/v1/status"):
                pass
    assert peak_mb() - before < 40 and sent < 40


async def test_what_is_packed_is_not_unpacked_here(world: World) -> None:
    async def bomb(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: "
            b"4\r\n\r\n\x1f\x8b\x08\x00"
        )
        await writer.drain()

    async with (
        rogue(world, bomb),
        world.head.kernel.node_link.open(world.node("n0"), "GET", "/v1/status") as answer,
    ):
        assert await answer.read() == b"\x1f\x8b\x08\x00"


@pytest.mark.parametrize(
    "start", [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 500 no\r\nContent-Length: 9\r\n\r\n{"]
)
async def test_a_node_that_does_not_come_to_the_point_is_given_up(
    world: World, start: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("layercake.agents.client.ANSWER_S", 0.3)

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        while True:
            await asyncio.sleep(0.05)
            writer.write(b"a")
            await writer.drain()

    async with rogue(world, slow):
        with pytest.raises((Unreachable, OperationFailed), match="n0"):
            async with (
                asyncio.timeout(10),
                world.head.kernel.node_link.open(world.node("n0"), "GET", "/v1/status"),
            ):
                pass


@pytest.mark.parametrize(
    "said",
    [
        b"[1]",
        b'{"error": {"a": 1}}',
        b'{"error": "\\ud800"}',
        b"[" * 60000,
        b'{"hint": 3}',
        b"\xff",
    ],
)
async def test_an_error_may_be_any_nonsense(world: World, said: bytes) -> None:
    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 500 no\r\nContent-Length: %d\r\n\r\n%b" % (len(said), said))
        await writer.drain()

    async with rogue(world, nonsense):
        with pytest.raises(OperationFailed) as caught:
            async with world.head.kernel.node_link.open(world.node("n0"), "GET", "/v1/status"):
                pass
    assert caught.value.message.encode()


@pytest.mark.parametrize("announced", [b"", b"Connection: close\r\n"])
async def test_a_good_answer_is_one_also_if_the_node_ends_the_connection_with_it(
    world: World, announced: bytes
) -> None:
    async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n" + announced + b"Content-Length: 2\r\n\r\n{}")
        writer.close()
        await writer.wait_closed()

    async with rogue(world, closing):
        for _ in range(5):
            async with world.head.kernel.node_link.open(
                world.node("n0"), "GET", "/v1/status"
            ) as answer:
                assert await answer.read() == b"{}"
                await asyncio.sleep(0.02)


async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A good answer that never comes to its end."""
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"1\r\n \r\n")
        await writer.drain()
        await asyncio.sleep(0.02)


async def test_a_good_answer_has_its_time_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("layercake.agents.client.ANSWER_S", 0.5)
    record = world.node("n0")
    async with rogue(world, drip), world.head.kernel.node_link.open(record, "GET", "/x") as answer:
        with pytest.raises(Unreachable, match="n0"):
            async with asyncio.timeout(10):
                await read_answer(record, answer, 1 << 20)


async def test_an_answer_in_pieces_is_read_to_its_end(world: World) -> None:
    async def pieces(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n")
        for _ in range(3):
            writer.write(b"x" * 10)
            await writer.drain()
            await asyncio.sleep(0.02)

    record = world.node("n0")
    async with rogue(world, pieces), world.head.kernel.node_link.open(record, "GET", "/x") as got:
        assert await read_answer(record, got, 25) == b"x" * 25
    async with rogue(world, pieces), world.head.kernel.node_link.open(record, "GET", "/x") as got:
        assert await read_answer(record, got, 99) == b"x" * 30


async def test_a_command_that_does_not_end_in_its_time_is_given_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node kills it; one that is somebody else's says a byte now and then for ever."""
    monkeypatch.setattr("layercake.features.nodes.operations.SPARE_S", 0.3)
    async with rogue(world, drip):
        with pytest.raises(Unreachable, match="cannot say how it ended on n0"):
            async with (
                asyncio.timeout(10),
                world.ops.nodes.execute("n0", ["true"], "", 0.2, "me") as parts,
            ):
                async for _ in parts:
                    pass
    assert "node.exec-ended" in world.kinds("n0")


@pytest.mark.parametrize("command", [[], ["a\0b"], ["x" * 200_000], [""] * 200_000])
async def test_what_is_no_command_reaches_no_node(world: World, command: list[str]) -> None:
    world.attach("n0")
    with pytest.raises(InputError, match="cannot run a command"):
        async with world.ops.nodes.execute("n0", command, "", 1.0, "me"):
            pass
