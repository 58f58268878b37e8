"""DNS by TCP: RFC 7766. Each message has its length before it; several may be asked at a
stretch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

from layercake.base.tcp_listener import (
    Connection,
    Limits,
    TcpListener,
    bound_sockets,
    connection_of,
)
from pxe.packets.dns import HEADER, DnsError

LIMITS = Limits(
    each=8, strangers=256, known=16, most=1024, prove_s=5.0, answer_s=15.0, stall_s=15.0
)
"""Nodes ask by TCP when an answer is long, or came too often by UDP; a connection each, and
shortly."""
IDLE_S = 10.0
"""How long a connection may have nothing to ask (section 6.2.3)."""
_QUEUE = 65_537 + 2
"""Bytes that are read ahead: the longest message."""
Answer = Callable[[bytes, str], Awaitable[bytes]]


class StreamServer:
    """Listens. `answer` gives the answer to a message of a client, or raises DnsError to end the
    connection."""

    def __init__(
        self, answer: Answer, client: Callable[[str], bool], clock: Callable[[], float]
    ) -> None:
        self._answer = answer
        self._client = client
        self._clock = clock
        self._listener: TcpListener | None = None
        self._there: set[_Conversation] = set()

    def open(self, address: tuple[str, int], floating: Collection[str] = ()) -> None:
        """Listens; the machine may get an address later that is `floating`. Raises OSError."""
        listener = TcpListener(
            lambda: _Conversation(self._answer, self._client, self._there),
            LIMITS.beside([address[0]]),
        )
        listener.open(*bound_sockets([address[0]], address[1], floating))
        self._listener = listener

    def close(self) -> None:
        """Ends all connections."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for conversation in list(self._there):
            conversation.end()


class _Conversation(asyncio.Protocol):
    """One connection: its messages are answered one after the other."""

    def __init__(
        self, answer: Answer, client: Callable[[str], bool], there: set[_Conversation]
    ) -> None:
        self._answer = answer
        self._client = client
        self._there = there
        self._transport: asyncio.Transport | None = None
        self._connection: Connection | None = None
        self._buffer = bytearray()
        self._task: asyncio.Task[None] | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._room = asyncio.Event()
        self._ending = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody has come."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 (for the type checker)
        self._transport = transport
        self._connection = connection_of(transport)
        self._there.add(self)
        self._room.set()
        self._rest()

    def data_received(self, data: bytes) -> None:
        """Part of a message, or several."""
        self._buffer += data
        if len(self._buffer) > _QUEUE and self._transport is not None:
            self._transport.pause_reading()
        self._go_on()

    def eof_received(self) -> bool:
        """The client asks no more; what it has asked is answered still."""
        self._ending = True
        return self._task is not None

    def pause_writing(self) -> None:
        """The client takes less than is sent."""
        self._room.clear()

    def resume_writing(self) -> None:
        """It has caught up."""
        self._room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._there.discard(self)
        for timer in (self._idle, self._task):
            if timer is not None:
                timer.cancel()

    def end(self) -> None:
        """Ends the connection."""
        if self._transport is not None:
            self._transport.abort()

    def _rest(self) -> None:
        """Starts the time that it may have nothing to ask."""
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(IDLE_S, self.end)

    def _message(self) -> bytes | None:
        """The next whole message."""
        size = int.from_bytes(self._buffer[:2], "big")
        if len(self._buffer) < 2 + size or len(self._buffer) < 2:
            return None
        message = bytes(self._buffer[2 : 2 + size])
        del self._buffer[: 2 + size]
        return message

    def _go_on(self) -> None:
        if self._task is None and (message := self._message()) is not None:
            self._task = asyncio.get_running_loop().create_task(self._work(message))

    async def _work(self, message: bytes | None) -> None:
        """Answers what is there."""
        connection = self._connection
        transport = self._transport
        assert connection is not None and transport is not None  # noqa: S101 (for the type checker)
        try:
            while message is not None:
                if self._client(connection.address) and len(message) >= HEADER.size:
                    connection.identify(connection.address)
                async with connection.serving():
                    reply = await self._answer(message, connection.address)
                transport.write(len(reply).to_bytes(2, "big") + reply)
                await self._room.wait()
                self._rest()
                message = self._message()
            transport.resume_reading()
        except DnsError:
            self.end()
        finally:
            self._task = None
        if self._ending:
            transport.close()
