"""Quirks of BMCs: proxies in front of real ones that make them slow, have them flap, or refuse a
second session.

IPMI goes by UDP, Redfish by HTTP without TLS.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import socket
from dataclasses import dataclass, field

from powerman.ipmi import rmcp

_NO_SESSION_IS_FREE = 0x01
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_LOGIN_S = 5.0
_CLIENTS_KEPT = 64
_CLOSING_LOOKS = 10


@dataclass
class Manner:
    """How a BMC is to be spoken to now. Tests change it while it runs; as it is made, it is as good
    as any.

    `answer_s`: each answer comes so late. `flaps_s`: it answers for so long, is gone for as long,
    and so on. `sessions`: how many it has at once, 0 for no limit; `refused` counts what was too
    much.
    """

    answer_s: float = 0.0
    flaps_s: float = 0.0
    sessions: int = 0
    refused: int = 0

    def gone(self, now: float) -> bool:
        """Whether it is away at this time of the loop's clock."""
        return self.flaps_s > 0 and int(now / self.flaps_s) % 2 == 1


class _Seen:
    """What a proxy has seen of one client's RMCP+ session: enough to read its packets, and so to
    know when it is closed."""

    def __init__(self, password: bytes) -> None:
        self.owns, self._asked = False, 0.0
        self._shake = rmcp.Handshake(rmcp.SUITES[17], b"", password, b"", b"")
        self._keys: rmcp.SessionKeys | None = None

    def begins(self, now: float) -> None:
        """The client asks for a session."""
        self.owns, self._asked, self._keys = True, now, None

    def holds(self, now: float) -> bool:
        """Whether the client has one. A login that does not go on is forgotten, as by a BMC."""
        return self.owns and (self._keys is not None or now - self._asked < _LOGIN_S)

    def answer(self, data: bytes) -> None:
        """A packet to the client."""
        kind, body, shake = data[5] & 0x3F, data[16:], self._shake
        if kind == rmcp.OPEN_RESPONSE and (len(body) < 36 or body[1]):
            self.owns = False
        elif kind == rmcp.OPEN_RESPONSE:
            shake.suite = rmcp.SUITES[17 if body[16] & 0x3F == rmcp.SUITES[17].auth else 3]
            shake.console_id, shake.bmc_id = body[4:8], body[8:12]
        elif kind == rmcp.RAKP2 and len(body) >= 40 and body[1] == 0:
            shake.bmc_random = body[8:24]
            randoms, digest = shake.console_random + shake.bmc_random, shake.suite.digest
            role = bytes((0x14, len(shake.username))) + shake.username
            key = hmac.digest(shake.password.ljust(20, b"\0"), randoms + role, digest)
            self._keys = rmcp.SessionKeys(
                shake.suite,
                shake.bmc_id,
                shake.console_id,  # as the BMC reads it
                hmac.digest(key, b"\x01" * 20, digest),
                hmac.digest(key, b"\x02" * 20, digest)[:16],
            )

    def closes(self, data: bytes) -> bool:
        """Whether a packet of the client is its last one."""
        kind, body = data[5] & 0x3F, data[16:]
        if kind == rmcp.RAKP1 and len(body) >= 28:
            self._shake.console_random, self._shake.username = body[8:24], body[28 : 28 + body[27]]
        if kind != rmcp.IPMI_MESSAGE or self._keys is None:
            return False
        try:
            message = self._keys.unseal(data)
        except rmcp.Malformed:
            return False
        return (message[1] >> 2, message[5]) == (0x06, 0x3C)


@dataclass
class _Client:
    back: socket.socket
    seen: _Seen


@dataclass
class UdpProxy(asyncio.DatagramProtocol):
    """In front of one IPMI BMC."""

    manner: Manner
    target: tuple[str, int]
    password: bytes
    _clients: dict[tuple[str, int], _Client] = field(default_factory=dict)

    async def open(self, address: tuple[str, int]) -> None:
        """Begins to listen."""
        self._loop = asyncio.get_running_loop()
        self._front, _ = await self._loop.create_datagram_endpoint(lambda: self, local_addr=address)

    def close(self) -> None:
        """Ends it."""
        self._front.close()
        while self._clients:
            self._drop(next(iter(self._clients)))

    def _drop(self, client: tuple[str, int]) -> None:
        back = self._clients.pop(client).back
        self._loop.remove_reader(back)
        back.close()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """A packet from a client goes on to the BMC."""
        if self.manner.gone(self._loop.time()):
            return
        known = self._clients.get(addr) or self._new(addr)
        rmcp_plus = len(data) > 16 and data[4] == 6
        now = self._loop.time()
        if rmcp_plus and data[5] & 0x3F == rmcp.OPEN_REQUEST and not known.seen.holds(now):
            if (
                self.manner.sessions
                and sum(c.seen.holds(now) for c in self._clients.values()) >= self.manner.sessions
            ):
                self.manner.refused += 1
                refusal = bytes((data[16], _NO_SESSION_IS_FREE, 0, 0)) + data[20:24]
                self._front.sendto(rmcp.plain(rmcp.OPEN_RESPONSE, refusal), addr)
                return
            known.seen.begins(now)
        if rmcp_plus and known.seen.closes(data):
            known.seen.owns = False
        with contextlib.suppress(OSError):
            known.back.send(data)

    def _new(self, addr: tuple[str, int]) -> _Client:
        if len(self._clients) >= _CLIENTS_KEPT:
            self._drop(next(iter(self._clients)))
        back = socket.socket(type=socket.SOCK_DGRAM)
        back.setblocking(False)
        back.connect(self.target)
        known = self._clients[addr] = _Client(back, _Seen(self.password))
        self._loop.add_reader(back, self._answered, addr, known)
        return known

    def _answered(self, addr: tuple[str, int], known: _Client) -> None:
        try:
            data = known.back.recv(4096)
        except OSError:
            return
        if len(data) > 16 and data[4] == 6:
            known.seen.answer(data)
        if not self.manner.gone(self._loop.time()):
            self._loop.call_later(self.manner.answer_s, self._say, data, addr)

    def _say(self, data: bytes, addr: tuple[str, int]) -> None:
        if not self._front.is_closing():
            self._front.sendto(data, addr)


@dataclass
class TcpProxy:
    """In front of one Redfish BMC. A session is a connection."""

    manner: Manner
    target: tuple[str, int]
    _open: set[asyncio.Task[None]] = field(default_factory=set)

    async def start(self, address: tuple[str, int]) -> None:
        """Begins to listen."""
        self._server = await asyncio.start_server(self._taken, *address)

    async def close(self) -> None:
        """Ends it, and what goes through it."""
        self._server.close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _taken(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        for _ in range(_CLOSING_LOOKS):  # one whose answer was read is about to go
            full = 0 < self.manner.sessions <= len(self._open)
            if not full:
                break
            await asyncio.sleep(0.05)
        self._open.add(task)
        try:
            if full:
                self.manner.refused += 1
                await reader.read(1)
                writer.write(_BUSY)
            else:
                await self._through(reader, writer)
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            self._open.discard(task)
            writer.close()

    async def _through(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.manner.gone(asyncio.get_running_loop().time()):
            raise ConnectionResetError
        back_reader, back_writer = await asyncio.open_connection(*self.target)
        pumps = {
            asyncio.create_task(self._pump(reader, back_writer, late=False)),
            asyncio.create_task(self._pump(back_reader, writer, late=True)),
        }
        try:
            done, _ = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in pumps:
                task.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            back_writer.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, late: bool
    ) -> None:
        """Hands bytes on; `late`: each answer as late as the manner says. An answer may come in
        pieces."""
        loop = asyncio.get_running_loop()
        while data := await reader.read(65536):
            if self.manner.gone(loop.time()):
                raise ConnectionResetError
            if late and data.startswith(b"HTTP/"):
                await asyncio.sleep(self.manner.answer_s)
            writer.write(data)
            await writer.drain()
