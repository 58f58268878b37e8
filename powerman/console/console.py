"""One node's console: its bytes go to the log and to who reads, and what is typed goes to the
machine. On the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import enum
from collections.abc import Callable
from dataclasses import dataclass

from layercake.kraken.backoff import backoff
from layercake.kraken.errors import LayercakeError, OperationFailed, Unreachable
from powerman.console.lines import Lines
from powerman.console.logs import ConsoleLogs
from powerman.console.readers import Readers
from powerman.driver import (
    ConsoleSource,
    ConsoleStream,
    LoginRefused,
    NoSession,
    Taken,
    Unsupported,
)

PIECE = 64 << 10
"""Bytes that one answer to a reader has at most."""


class State(enum.Enum):
    """How a console is."""

    OFF = "off"  # the inventory or the settings say so
    NONE = "none"  # there is none to be had: no BMC, or one without
    IDLE = "idle"  # opened when somebody wants it
    WAITING = "waiting"  # for its BMC to answer
    OPENING = "opening"
    OPEN = "open"
    TAKEN = "taken"  # somebody else has it
    FAILED = "failed"


def again_s(error: LayercakeError | None, failures: int) -> float:
    """Seconds until it is tried again, after so many failures in a row, the one of this `error`
    with them. What does not change by itself is asked seldom; others' sessions are left alone for
    long."""
    if isinstance(error, Unsupported):
        return 3600.0
    if isinstance(error, LoginRefused):
        return 600.0
    if isinstance(error, NoSession):
        return backoff(failures, 30.0, 600.0)
    if isinstance(error, Taken):
        return backoff(failures, 15.0, 600.0)
    return backoff(failures, 3.0, 300.0)


@dataclass(frozen=True, slots=True)
class Piece:
    """What a reader gets: bytes, the position behind them, how many are missing before them, and
    how the console is."""

    data: bytes
    position: int
    lost: int
    state: str
    why: str
    writer: str
    readers: list[str]
    writes: bool


class Console:
    """See the module's docstring. `name` is the node's, `changed` is called with what is to be told
    when its state changes."""

    def __init__(
        self,
        name: str,
        logs: ConsoleLogs,
        now: Callable[[], float],
        wall: Callable[[], float],
        changed: Callable[[Console, LayercakeError | None], None],
    ) -> None:
        self.name = name
        self.state = State.IDLE
        self.why = ""
        self.by = ""
        self.since = now()
        self.readers = Readers()
        self.lines = Lines()
        self.poked = asyncio.Event()  # somebody wants it now
        self._taking = False
        self._logs = logs
        self._now = now
        self._wall = wall
        self._changed = changed
        self._stream: ConsoleStream | None = None
        self._news = asyncio.Event()
        self._version = 0
        self._told: dict[str, int] = {}

    @property
    def age_s(self) -> float:
        """For how long it has been as it is."""
        return round(self._now() - self.since, 1)

    # -- what comes (see Listener)

    def received(self, data: bytes) -> None:
        """The machine wrote this."""
        self.readers.add_output(data)
        if text := self.lines.add(data, self._wall()):
            self._logs.add(self.name, text)
        self._news.set()

    def lost(self, why: str) -> None:
        """Bytes were lost here."""
        self._logs.add(self.name, self.lines.note(why, self._wall()))

    # -- the stream

    async def once(self, source: ConsoleSource) -> None:
        """Opens it and keeps it until it ends. Raises why it could not be opened, or has ended."""
        taking = self._taking
        self._taking = False
        self.be(State.OPENING)
        self._stream = await source.open(self, take=taking)
        try:
            self.be(State.OPEN)
            await self._stream.run()
        finally:
            stream = self._stream
            self._stream = None
            if text := self.lines.end():
                self._logs.add(self.name, text)
            await stream.close()

    def be(self, state: State, error: LayercakeError | None = None) -> None:
        """It is so now, because of an error."""
        if state is State.OPEN or (error is not None and self.state is State.OPEN):
            self._logs.add(
                self.name,
                self.lines.note(
                    "the console is open" if error is None else error.message, self._wall()
                ),
            )
        if state is not self.state:
            self.since = self._now()
        self.state = state
        self.why = error.message if error else ""
        self.by = error.by if isinstance(error, Taken) else ""
        self._changed(self, error)
        self.news()

    def failed(self, error: LayercakeError) -> None:
        """It could not be opened, or has ended."""
        self.be(
            State.TAKEN
            if isinstance(error, Taken)
            else State.NONE
            if isinstance(error, Unsupported)
            else State.FAILED,
            error,
        )

    # -- who reads and writes

    def attach(self, who: str, *, write: bool, take: bool) -> tuple[str, int]:
        """A new reader's id, and the position of what is kept. With `take` it gets the keyboard,
        and the console is taken from another session, if one has it. Raises Refused."""
        reader = self.readers.attach(who, self._now(), write=write, take=take)
        self._request_open(take)
        self.news()
        return reader, max(0, self.readers.end - PIECE)

    def take_keyboard(self, reader: str) -> None:
        """Gives a reader the keyboard, and the console. Raises NotFound."""
        self.readers.take_keyboard(reader, self._now())
        self._request_open(True)
        self.news()

    def detach(self, reader: str) -> None:
        """One leaves."""
        self.readers.detach(reader)
        self._told.pop(reader, None)
        self.news()

    async def follow(self, reader: str, position: int, wait_s: float) -> Piece:
        """What came since a position, or what has changed; waits for it. Raises NotFound for a
        reader that was away."""
        until = self._now() + wait_s
        while True:
            self.readers.mark_present(reader, self._now())
            data, end, lost = self.readers.since(position, PIECE)
            left = until - self._now()
            if data or lost or self._told.get(reader) != self._version or left <= 0:
                self._told[reader] = self._version
                return Piece(
                    data,
                    end,
                    lost if position >= 0 else 0,
                    self.state.value,
                    self.why,
                    self.readers.writing,
                    self.readers.names,
                    self.readers.writer == reader,
                )
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._news.wait()

    def write(self, reader: str, data: bytes, *, send_break: bool = False) -> int:
        """Types; how many bytes were taken. Raises Refused without the keyboard, Unreachable while
        the console is not open."""
        self.readers.may_write(reader, self._now())
        if self._stream is None:
            why = f" ({self.why})" if self.why else ""
            raise Unreachable(f"cannot write to the console of {self.name}: it is not open{why}")
        if send_break:
            self._stream.send_break()
        return self._stream.write(data)

    def expire(self) -> None:
        """Forgets readers that are gone, and ends a line that waits for its end for too long."""
        if self.readers.any and self.readers.drop_absent(self._now()):
            self.news()
        if self.lines.waiting and (text := self.lines.idle(self._wall())):
            self._logs.add(self.name, text)

    def news(self) -> None:
        """Readers are told how it is."""
        self._version += 1
        self._told = {
            reader: state for reader, state in self._told.items() if self.readers.knows(reader)
        }
        self._news.set()

    def _request_open(self, take: bool) -> None:
        if take and self.state is not State.OPEN:
            self._taking = True
        if self.state is not State.OPEN:
            self.poked.set()


def no_console(name: str, state: State) -> OperationFailed:
    """Why there is nothing to attach to."""
    why = (
        "it is off, by the inventory or by config.yaml"
        if state is State.OFF
        else "it has no BMC, or one without a console"
    )
    return Unsupported(f"cannot open the console of {name}: {why}")
