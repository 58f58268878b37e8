"""A console in this terminal: keys go to the machine, and what it writes comes here as it is. A key
of its own leaves it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import termios
import tty
from collections.abc import Iterator, Mapping
from typing import Any

from layercake.client.output import clean
from layercake.client.websocket import WebSocket

ESCAPE = 0x1D  # ctrl-]
HELP = (
    "ctrl-] and then: q leaves, b sends a break, t takes the keyboard, w says who is here, "
    "ctrl-] sends itself"
)
_AT_ONCE = 1024


class Keys:
    """What is typed, apart from the escape key and the one after it. Pure."""

    def __init__(self) -> None:
        self._escaped = False

    def split(self, data: bytes) -> Iterator[bytes | str]:
        """Pieces for the machine, and commands: "q", "b", "t", "w", or "?" for any other key."""
        start = 0
        for at, byte in enumerate(data):
            if self._escaped:
                self._escaped = False
                start = at if byte == ESCAPE else at + 1
                if byte != ESCAPE:
                    yield chr(byte) if chr(byte) in "qbtw" else "?"
            elif byte == ESCAPE:
                if data[start:at]:
                    yield data[start:at]
                start = at + 1
                self._escaped = True
        if data[start:] and not self._escaped:
            yield data[start:]


@contextlib.contextmanager
def raw() -> Iterator[None]:
    """The terminal passes on each key, until the end of the block."""
    handle = sys.stdin.fileno()
    before = termios.tcgetattr(handle)
    try:
        tty.setraw(handle)
        yield
    finally:
        termios.tcsetattr(handle, termios.TCSADRAIN, before)


class Session:
    """A console that is attached to. `name` is the node's; `writing`: with keys."""

    def __init__(self, socket: WebSocket, name: str, writing: bool) -> None:
        self._socket = socket
        self._name = name
        self._writing = writing
        self._keys = Keys()
        self._how = dict[str, Any]()
        self._left = asyncio.Event()

    async def run(self) -> None:
        """Until the person leaves, or the head ends it."""
        loop = asyncio.get_running_loop()
        handle = sys.stdin.fileno()
        typed: asyncio.Queue[bytes] = asyncio.Queue()

        def readable() -> None:
            typed.put_nowait(os.read(handle, _AT_ONCE))

        loop.add_reader(handle, readable)
        tasks = [
            asyncio.ensure_future(self._show()),
            asyncio.ensure_future(self._type(typed)),
            asyncio.ensure_future(self._left.wait()),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            loop.remove_reader(handle)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _show(self) -> None:
        async for told in self._socket.messages():
            if isinstance(told, bytes):
                sys.stdout.buffer.write(told)
                sys.stdout.buffer.flush()
            else:
                self._apply_status(told)
        self._print_notice("the head has ended it")

    async def _type(self, typed: asyncio.Queue[bytes]) -> None:
        while True:
            for piece in self._keys.split(await typed.get()):
                if isinstance(piece, bytes):
                    await self._socket.send(piece)
                elif piece == "q":
                    self._left.set()
                elif piece == "w":
                    self._print_notice(how_text(self._how, self._writing))
                elif piece == "?":
                    self._print_notice(HELP)
                else:
                    await self._socket.send_json({"b": {"break": True}, "t": {"take": True}}[piece])

    def _apply_status(self, how: Mapping[str, Any]) -> None:
        if "error" in how:
            self._print_notice(str(how["error"]))
            return
        if how["lost"]:
            self._print_notice(
                f"{how['lost']} bytes before this are not shown: they came faster than they were "
                "read"
            )
        before = self._how
        self._how = dict(how)
        if how_text(before, self._writing) != how_text(self._how, self._writing):
            self._print_notice(how_text(self._how, self._writing))

    def _print_notice(self, text: str) -> None:
        sys.stdout.write(f"\r\n[{self._name}: {clean(text)}]\r\n")
        sys.stdout.flush()


def how_text(how: Mapping[str, Any], writing: bool) -> str:
    """How a console is, for people."""
    if not how:
        return ""
    others = len(how["readers"]) - 1
    who = (
        "you have the keyboard"
        if how["writes"]
        else f"{how['writer']} has the keyboard"
        if how["writer"]
        else "nobody types"
    )
    if writing and not how["writes"] and how["writer"]:
        who += ", ctrl-] t takes it"
    state = how["state"] + (f" ({how['why']})" if how["why"] else "")
    return f"{state}; {who}; " + (
        "nobody else reads"
        if others < 1
        else f"{others} {'other reads' if others == 1 else 'others read'}"
    )
