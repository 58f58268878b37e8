"""The loop that sends big files from threads: whole, to readers of any pace, and to nobody whose
connection has ended."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from layercake.moduleapi.event_loop import sendfile
from layercake.moduleapi.event_loop.sendfile import WORTH_BYTES, SendfileLoop
from layercake.moduleapi.service import FakeLink
from pxe.nodes import Node
from pxe.settings import Settings
from tests.boot.test_http import serving
from tests.support.clock import FakeClock

SIZE = 8 * WORTH_BYTES + 5
BY = pytest.mark.parametrize("threads", [0, 1])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "minos.img"
    path.write_bytes(os.urandom(SIZE))
    return path


def run(threads: int, main: Callable[[SendfileLoop], Coroutine[Any, Any, None]]) -> None:
    loop = SendfileLoop(threads)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(asyncio.wait_for(main(loop), 60))


def connection() -> tuple[socket.socket, socket.socket]:
    """Its two ends; less is under way between them than a file has."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 17)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 17)
    ours.setblocking(False)
    theirs.setblocking(False)
    return ours, theirs


async def send(sock: socket.socket, path: Path, offset: int = 0) -> int:
    with path.open("rb") as file:
        return await asyncio.get_running_loop().sock_sendfile(
            sock, file, offset, SIZE - offset, fallback=False
        )


async def receive(sock: socket.socket, size: int = SIZE) -> bytes:
    """All of it, or what comes until the other side ends it."""
    got = bytearray()
    while len(got) < size and (
        data := await asyncio.get_running_loop().sock_recv(sock, WORTH_BYTES)
    ):
        got += data
    return bytes(got)


@BY
@pytest.mark.parametrize("offset", [0, 12345])
def test_a_file_arrives_whole(file: Path, threads: int, offset: int) -> None:
    async def main(loop: SendfileLoop) -> None:
        ours, theirs = connection()
        with ours, theirs:
            sending = loop.create_task(send(ours, file, offset))
            await loop.sock_recv(theirs, 1)
            assert loop.free_threads == 0
            assert await receive(theirs, SIZE - offset - 1) == file.read_bytes()[offset + 1 :]
            assert await sending == SIZE - offset
            assert loop.free_threads == threads and not ours.getblocking()

    run(threads, main)


def test_when_no_thread_is_free_the_loop_sends(file: Path) -> None:
    async def main(loop: SendfileLoop) -> None:
        slow, never_read = connection()
        ours, theirs = connection()
        with slow, never_read, ours, theirs:
            waiting = loop.create_task(send(slow, file))
            sending = loop.create_task(send(ours, file))
            assert await receive(theirs) == file.read_bytes()
            assert await sending == SIZE and not waiting.done()
            waiting.cancel()

    run(1, main)


def test_a_reader_that_takes_nothing_keeps_no_thread_and_gets_all_in_the_end(file: Path) -> None:
    async def main(loop: SendfileLoop) -> None:
        ours, theirs = connection()
        with ours, theirs:
            sending = loop.create_task(send(ours, file))
            await loop.sock_recv(theirs, 1)
            while not loop.free_threads:
                await asyncio.sleep(0.01)
            assert not sending.done()
            assert await receive(theirs, SIZE - 1) == file.read_bytes()[1:]
            assert await sending == SIZE

    run(1, main)


def test_a_reader_that_takes_little_keeps_no_thread(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sendfile, "SLOWEST", 1e12)
    monkeypatch.setattr(sendfile, "STALL_S", 0)  # the kernel waits for ever then

    async def main(loop: SendfileLoop) -> None:
        ours, theirs = connection()
        with ours, theirs:
            sending = loop.create_task(send(ours, file))
            got = b""
            while not loop.free_threads or not got:
                got += await loop.sock_recv(theirs, 1 << 16)
            assert not sending.done(), "it had not come to the end of the file"
            assert got + await receive(theirs, SIZE - len(got)) == file.read_bytes()
            assert await sending == SIZE

    run(1, main)


@BY
def test_whoever_is_sent_away_gets_no_more(
    file: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setattr(sendfile, "STALL_S", 1000.0)

    async def main(loop: SendfileLoop) -> None:
        ours, theirs = connection()
        with theirs:
            with ours:
                sending = loop.create_task(send(ours, file))
                await loop.sock_recv(theirs, 1)
                sending.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await sending
            while loop.free_threads < threads:
                await asyncio.sleep(0.01)
            assert len(await receive(theirs)) < SIZE - 1

    run(threads, main)


def test_a_connection_that_was_closed_meanwhile_is_left(file: Path) -> None:
    """Its number may be another connection's: that gets none of the file."""

    async def main(loop: SendfileLoop) -> None:
        ours, theirs = connection()
        with theirs:
            sending = loop.create_task(send(ours, file))
            await loop.sock_recv(theirs, 1)
            number = ours.fileno()
            ours.close()
            other, silent = connection()
            with other, silent:
                os.dup2(other.fileno(), number)
                receiving = loop.create_task(receive(theirs))
                with pytest.raises(OSError):
                    await sending
                for sock in (other, silent):
                    with pytest.raises(BlockingIOError):
                        sock.recv(1)
            os.close(number)
            assert len(await receiving) < SIZE - 1

    run(1, main)


@BY
def test_a_file_that_becomes_shorter_ends_its_transfer(file: Path, threads: int) -> None:
    async def main(loop: SendfileLoop) -> None:
        ours, theirs = connection()
        with theirs:
            with ours:
                sending = loop.create_task(send(ours, file))
                await loop.sock_recv(theirs, 1)
                with file.open("r+b") as shorter:
                    shorter.truncate(SIZE // 2)
                receiving = loop.create_task(receive(theirs))
                with pytest.raises(ConnectionAbortedError, match="it has only"):
                    await sending
            assert len(await receiving) == SIZE // 2 - 1
            assert loop.free_threads == threads

    run(threads, main)


@BY
@pytest.mark.parametrize(
    ("becomes", "told"), [("", "boot.initrd-sent"), ("shorter", "boot.transfer-broken")]
)
def test_boot_files_are_sent_by_it(
    settings: Settings,
    node: Node,
    files: dict[str, Any],
    link: FakeLink,
    clock: FakeClock,
    unused_tcp_port: int,
    threads: int,
    becomes: str,
    told: str,
) -> None:
    """Of a file that became shorter the node had waited for the rest, and it counted as sent."""
    image = Path(files["boot_dir"], "minos.img")
    os.truncate(image, 100 << 20)

    async def main(loop: SendfileLoop) -> None:
        async with serving(settings, node, files, link, clock, unused_tcp_port):
            reader, writer = await asyncio.open_connection("127.0.0.1", unused_tcp_port)
            writer.write(b"GET /boot/minos.img HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"Content-Length: 104857600" in head and loop.free_threads == 0
            if becomes == "shorter":
                os.truncate(image, 60 << 20)
            size = 0
            while data := await reader.read(WORTH_BYTES):
                size += len(data)
            assert size == image.stat().st_size
            writer.close()
            assert [event[1] for event in link.events] == [told]

    run(threads, main)


def test_little_is_not_worth_a_thread(file: Path) -> None:
    async def main(loop: SendfileLoop) -> None:
        ours, theirs = connection()
        with ours, theirs:
            sending = loop.create_task(send(ours, file, SIZE - WORTH_BYTES + 1))
            await loop.sock_recv(theirs, 1)
            assert loop.free_threads == 1
            await receive(theirs, WORTH_BYTES - 2)
            await sending

    run(1, main)
