"""What people's programs send to the API: changes of a node's entry, and frames of WebSockets."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from layercake.kraken.errors import LayercakeError
from tests.fuzz import mutate
from tests.fuzz.harness import Target
from tests.fuzz.targets.joined import settle
from tests.fuzz.world import running
from tests.support.api import served, token

ENTRIES: list[dict[str, Any]] = [
    {"set": {"state": "off", "labels": {"a": "b"}}, "unset": []},
    {"set": {"bmc.address": "10.9.0.1", "bmc.driver": "ipmi"}, "unset": ["bmc.password"]},
    {"set": {"files": {"/etc/motd": {"content": "x", "mode": "0644"}}}, "unset": []},
    {"set": {"uinit": {"a": {"run": ["true"], "order": 5}}}, "unset": ["labels"]},
    {"set": {"disks": {"d": {"match": {"bytes": "100G"}}}, "kernel_args": "a=b"}, "unset": []},
    {"set": {"mac": ["52:54:00:00:00:10"], "ip": "10.1.0.10"}, "unset": ["console"]},
]


@contextlib.contextmanager
def entry(directory: Path) -> Iterator[Target]:
    """The body of a PATCH of a node, by the API itself."""
    with running(directory) as (loop, world):
        stack = contextlib.AsyncExitStack()
        api = loop.run_until_complete(stack.enter_async_context(served(world.head, local=False)))
        everywhere = loop.run_until_complete(token(world.head, "root", "admin"))
        headers = {**everywhere, "Content-Type": "application/json"}

        async def patch_entry(data: bytes) -> None:
            url = api.make_url("/v1/nodes/n0")
            async with api.session.patch(url, data=data, headers=headers) as answer:
                assert answer.status in (200, 400, 403, 404, 409, 413), await answer.text()
                json.loads(await answer.read())

        try:
            yield Target(
                mutate.documents(ENTRIES),
                lambda data: loop.run_until_complete(patch_entry(data)),
                (LayercakeError,),
                settle=lambda: loop.run_until_complete(settle(world)),
                slowest_s=2.0,
                peak_mb=192.0,
            )
        finally:
            loop.run_until_complete(stack.aclose())


def frame(opcode: int, payload: bytes, *, first: int = 0x80, masked: bool = True) -> bytes:
    """A frame of RFC 6455, section 5.2."""
    mask = os.urandom(4) if masked else b""
    size = len(payload)
    head = bytes([first | opcode])
    if size < 126:
        head += bytes([masked << 7 | size])
    else:
        head += bytes([masked << 7 | 126]) + struct.pack(">H", size)
    body = bytes(b ^ mask[i % 4] for i, b in enumerate(payload)) if masked else payload
    return head + mask + body


FRAMES = [
    frame(1, b"{}"),
    frame(2, b"\0" * 300),
    frame(9, b"ping"),
    frame(8, b"\x03\xe8bye"),
    frame(1, b"a", first=0) + frame(0, b"b"),
    frame(1, b"x", first=0xC0),
    frame(1, b"x", masked=False),
    frame(10, b""),
]


@contextlib.contextmanager
def frames(directory: Path) -> Iterator[Target]:
    """Frames on the WebSocket of events: the head answers others afterwards."""
    with running(directory) as (loop, world):
        stack = contextlib.AsyncExitStack()
        api = loop.run_until_complete(stack.enter_async_context(served(world.head, local=False)))
        everywhere = loop.run_until_complete(token(world.head, "root", "admin"))

        async def send_frames(data: bytes) -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", api.server.port)
            try:
                key = base64.b64encode(b"0123456789abcdef").decode()
                writer.write(
                    "GET /v1/events/ws HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\n"
                    f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
                    "Sec-WebSocket-Version: 13\r\n"
                    f"Authorization: {everywhere['Authorization']}\r\n\r\n".encode()
                )
                answer = await reader.readuntil(b"\r\n\r\n")
                assert b" 101 " in answer and b"deflate" not in answer.lower(), answer
                writer.write(data + frame(8, b"\x03\xe8"))
                with contextlib.suppress(ConnectionError):
                    writer.write_eof()
                    await reader.read()
            finally:
                writer.transport.abort()
            url = api.make_url("/v1/nodes/n0")
            async with api.session.get(url, headers=everywhere) as well:
                assert well.status == 200

        try:
            yield Target(
                mutate.data(FRAMES, (b"\x81\xfe\xff\xff", b"\x82\xff" + b"\x7f" * 8, b"\xc1\x80")),
                lambda data: loop.run_until_complete(send_frames(data)),
                settle=lambda: loop.run_until_complete(settle(world)),
                slowest_s=2.0,
                peak_mb=128.0,
            )
        finally:
            loop.run_until_complete(stack.aclose())
