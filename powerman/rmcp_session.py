"""RMCP+ sessions on asyncio: one connected UDP socket and one short session per use.

Sessions are not kept: BMCs have few, drop idle ones after 30-60 s, and a login costs less than a millisecond of CPU.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from layercake.kraken.errors import OperationFailed, Unreachable
from powerman import rmcp
from powerman.driver import Unsupported, login_refused, unreachable

_FIRST_WAIT_S = 0.5
_BACKOFF = 1.5
TRIES = 4                       # 0.5 + 0.75 + 1.1 + 1.7 s: a BMC that loses three packets in a row still gets through
_BYE_S = 0.3

Parsed = TypeVar("Parsed")


def tries_within(seconds: float) -> int:
    """How often a packet is sent at least to a BMC that is given so long for an operation: for half of that, TRIES at least."""
    return max(TRIES, math.ceil(math.log(1 + seconds / 2, _BACKOFF)))  # the waits are 0.5 * 1.5^n


class SuiteRefused(Unsupported):
    """The BMC does not do this cipher suite; another may do."""


class _Socket(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.inbox: asyncio.Queue[bytes | OSError] = asyncio.Queue(64)

    def datagram_received(self, data: bytes, addr: object) -> None:
        with contextlib.suppress(asyncio.QueueFull):    # a flood is cut; what we wait for is sent again
            self.inbox.put_nowait(data)

    def error_received(self, exc: Exception) -> None:
        if isinstance(exc, OSError):
            with contextlib.suppress(asyncio.QueueFull):
                self.inbox.put_nowait(exc)


class Line:
    """A connected UDP socket to one BMC: sends a request until its answer comes."""

    def __init__(self, where: str, transport: asyncio.DatagramTransport, protocol: _Socket, tries: int) -> None:
        self._where = where
        self._tries = tries
        self._transport = transport
        self._protocol = protocol

    async def ask(self, packet: Callable[[], bytes], parse: Callable[[bytes], Parsed], tries: int | None = None) -> Parsed:
        """Sends `packet()` again and again, with growing waits, until `parse` accepts an answer; what it calls Malformed is not for
        us. Raises Unreachable; WrongPassword comes through."""
        wait, tries = _FIRST_WAIT_S, tries or self._tries
        for _ in range(tries):
            self._transport.sendto(packet())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    return await self._accepted(parse)
            wait *= _BACKOFF
        raise unreachable(self._where, f"no answer to {tries} requests")

    async def _accepted(self, parse: Callable[[bytes], Parsed]) -> Parsed:
        while True:
            data = await self._protocol.inbox.get()
            if isinstance(data, OSError):
                raise unreachable(self._where, data.strerror or str(data))
            try:
                return parse(data)
            except rmcp.WrongPassword:
                raise
            except rmcp.Malformed:
                continue

    def send(self, packet: bytes) -> None:
        """Sends without waiting for anything."""
        self._transport.sendto(packet)


@contextlib.asynccontextmanager
async def connect(address: str, port: int, tries: int = TRIES) -> AsyncIterator[Line]:
    """A line to a BMC; sends nothing yet. Raises Unreachable if the address has no route or the name is not known."""
    where = f"{address}:{port}"
    try:
        transport, protocol = await asyncio.get_running_loop().create_datagram_endpoint(_Socket, remote_addr=(address, port))
    except OSError as error:
        raise unreachable(where, error.strerror or str(error)) from error
    try:
        yield Line(where, transport, protocol, tries)
    finally:
        transport.close()


async def probe(address: str, port: int, tries: int = TRIES) -> rmcp.Capabilities:
    """Asks a BMC what it can do, without a login. Raises Unreachable after about 4 s, at once if its port is closed."""
    async with connect(address, port, tries) as line:
        return await line.ask(rmcp.probe, rmcp.parse_probe)


class Session:
    """An open session: raw IPMI commands."""

    def __init__(self, where: str, line: Line, keys: rmcp.SessionKeys) -> None:
        self._where = where
        self._line = line
        self._keys = keys
        self._sequence = 0
        self._request = 0

    async def command(self, function: int, command: int, data: bytes = b"", tries: int | None = None) -> bytes:
        """Sends one command and returns its data. Raises Unreachable, Unsupported, OperationFailed with the completion code."""
        self._request = request = (self._request + 1) % 64
        body = rmcp.message(function, request, command, data)

        def packet() -> bytes:
            self._sequence += 1     # each packet, a repeated one too, needs a number of its own
            return self._keys.seal(self._sequence, secrets.token_bytes(16), body)

        code, answer = await self._line.ask(
            packet, lambda raw: rmcp.parse_message(self._keys.unseal(raw), function, request, command), tries)
        if code:
            why = rmcp.COMPLETION_TEXT.get(code, "no explanation")
            kind = Unsupported if code in (0xC1, 0xC9, 0xCC) else OperationFailed
            raise kind(f"cannot do IPMI command 0x{function:02x} 0x{command:02x} at {self._where}: "
                       f"the BMC answers 0x{code:02x}, {why}")
        return answer

    async def close(self) -> None:
        """Frees the BMC's session; if it does not answer, it will drop the session by itself."""
        with contextlib.suppress(OperationFailed, Unreachable, TimeoutError):
            async with asyncio.timeout(_BYE_S):
                await self.command(0x06, 0x3C, self._keys.bmc_id, tries=1)


@contextlib.asynccontextmanager
async def login(address: str, port: int, username: str, password: str, suite: rmcp.Suite,
                tries: int = TRIES) -> AsyncIterator[Session]:
    """A session as administrator; each packet is sent so often. Raises Unreachable, LoginRefused, SuiteRefused, OperationFailed."""
    where = f"{address}:{port}"
    shake = rmcp.Handshake(suite, username.encode(), password.encode(), secrets.token_bytes(4), secrets.token_bytes(16))
    async with connect(address, port, tries) as line:
        tag = 0

        async def step(kind: int, request: Callable[[int], bytes], take: Callable[[bytes], Parsed]) -> Parsed:
            nonlocal tag
            tag += 1

            def parse(raw: bytes) -> Parsed | int:
                status, body = rmcp.parse_plain(raw, kind, tag)
                return status if status else take(body)

            answer = await line.ask(lambda: request(tag), parse)
            if isinstance(answer, int):
                raise _refusal(where, username, answer)
            return answer

        try:
            await step(rmcp.OPEN_RESPONSE, shake.open_request, shake.take_open_response)
            await step(rmcp.RAKP2, shake.rakp1, shake.take_rakp2)
            keys = await step(rmcp.RAKP4, shake.rakp3, shake.take_rakp4)
        except rmcp.WrongPassword:
            raise login_refused(where, username) from None
        session = Session(where, line, keys)
        try:
            await session.command(0x06, 0x3B, b"\x04")     # Set Session Privilege Level: administrator
            yield session
        finally:
            await session.close()


def _refusal(where: str, username: str, status: int) -> OperationFailed:
    text = rmcp.STATUS_TEXT.get(status, f"status 0x{status:02x}")
    if status in rmcp.LOGIN_STATUS:
        return login_refused(where, username, text)
    if status in rmcp.SUITE_STATUS:
        return SuiteRefused(f"cannot open an IPMI session with {where}: {text}")
    return OperationFailed(f"cannot open an IPMI session with {where}: {text}")
