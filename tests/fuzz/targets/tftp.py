"""TFTP: a request, and a transfer whose client answers anything; and the server on a real
socket."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pxe.packets.tftp import (
    MAX_BLOCK,
    MAX_WINDOW,
    TftpError,
    negotiate,
    parse_answer,
    parse_request,
)
from pxe.tftp_server import TftpServer
from pxe.tftp_transfer import Phase, Transfer
from tests.fuzz import mutate
from tests.fuzz.harness import Target
from tests.support.gates import Open

FILE = bytes(range(256)) * 40
SPLIT = b"\n--\n"
REQUESTS = [
    b"\0\1undionly.kpxe\0octet\0",
    b"\0\1/snponly.efi\0OCTET\0blksize\x001468\0tsize\x000\0",
    b"\0\1undionly.kpxe\0octet\0blksize\x008\0windowsize\x0064\0timeout\x00255\0",
    b"\0\2undionly.kpxe\0octet\0",
]
ANSWERS = [b"\0\4\0\0", b"\0\4\0\1", b"\0\4\0\2", b"\0\4\0\x0a", b"\0\5\0\1no\0", b"\0\4\xff\xff"]
WORDS = (
    b"blksize\0",
    b"windowsize\0",
    b"timeout\0",
    b"tsize\0",
    b"octet\0",
    b"\0",
    "\u00b2".encode(),
    b"65464",
    SPLIT,
    *ANSWERS,
)


def seeds() -> list[bytes]:
    """Each request with no answers, one, and so on."""
    return [
        b"".join((request, *(SPLIT + answer for answer in ANSWERS[:count])))
        for request in REQUESTS
        for count in range(5)
    ]


@contextlib.contextmanager
def target(directory: Path) -> Iterator[Target]:
    """A request, SPLIT, and the client's answers: the transfer never sends more than was agreed
    on."""

    def take(data: bytes) -> None:
        first, *answers = data.split(SPLIT)
        terms = negotiate(parse_request(first).options, len(FILE))
        assert 8 <= terms.block <= MAX_BLOCK and 1 <= terms.window <= MAX_WINDOW
        transfer, now = Transfer(FILE, terms, 0.0), 0.0
        sent = transfer.begin(now)
        for answer in answers:
            packets = transfer.split(sent)
            assert len(packets) <= terms.window and all(
                len(packet) <= terms.block + 4 or packet[1] == 6 for packet in packets
            )
            if transfer.phase is not Phase.RUNNING:
                return
            now += 1.0
            sent = (
                transfer.timeout(now)
                if not answer
                else transfer.answer(*parse_answer(answer, len(answer)), now)
            )

    yield Target(mutate.data(seeds(), WORDS), take, (TftpError,))


@contextlib.contextmanager
def server(directory: Path) -> Iterator[Target]:
    """The server on loopback: first a datagram to its port, then one to the transfer that it
    began."""
    loop, clock, wrong = asyncio.new_event_loop(), [0.0], list[Any]()
    loop.set_exception_handler(lambda _, context: wrong.append(context))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        address = free.getsockname()
    files = {"undionly.kpxe": FILE, "snponly.efi": b"", "\u00e9": b"x"}
    served = TftpServer(address, files, Open(), Counter(), lambda: clock[0])
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.bind(("127.0.0.1", 0))
    client.setblocking(False)

    async def exchange(data: bytes) -> None:
        first, *answers = data.split(SPLIT)
        client.sendto(first[:1400], address)
        for answer in (*answers[:4], b""):
            for _ in range(3):
                await asyncio.sleep(0)
            peer = None
            with contextlib.suppress(BlockingIOError):
                while True:
                    _, peer = client.recvfrom(2048)
            if peer is not None and answer:
                client.sendto(answer[:1400], peer)

    def take(data: bytes) -> None:
        clock[0] += 0.001
        loop.run_until_complete(exchange(data))
        if wrong:
            raise RuntimeError(f"in the server: {wrong.pop()}")

    async def turn(what: Callable[[], object]) -> None:
        what()

    try:
        loop.run_until_complete(turn(served.open))
        yield Target(mutate.data(seeds(), WORDS), take)
    finally:
        loop.run_until_complete(turn(served.close))
        client.close()
        loop.close()
