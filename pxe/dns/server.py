"""The DNS socket for UDP, and the answers by both UDP and TCP. Nothing that a query holds can raise
out of it.

What was asked before, byte by byte but for its number, is answered out of a table that is thrown
away with each change of the zone: a cluster asks the same few things all the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from layercake.base.datagrams import DatagramServer
from layercake.kraken.errors import OperationFailed
from pxe.dns.decision import Outcome, decide, not_yet, refusal
from pxe.dns.forwarder import Forwarder
from pxe.dns.limit import Limiter, Verdict, prefix
from pxe.dns.names import Names
from pxe.dns.stream import StreamServer
from pxe.notes import Recorder
from pxe.packets import dns
from pxe.packets.dns import DnsError, Query, Rcode
from pxe.settings import Settings

_SIZE = 4096
_READY = 16_384
"""Answers that are kept ready: what exists only, so that nobody fills it with names that he makes
up."""
_ERRORS_PER_S = 10
"""How often a second a network of strangers is told no, whatever the setting for clients."""
_ANSWERED = "dns.answered"
_MALFORMED = "dns.malformed"
_LIMITED = "dns.limited"
_FOREIGN = "dns.foreign"
_SEND = Verdict.SEND  # looked up for each datagram


class DnsServer:
    """Receives, has `decide` decide, answers or has others asked."""

    def __init__(
        self,
        settings: Settings,
        names: Names,
        forwarder: Forwarder,
        recorder: Recorder,
        clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._names = names
        self._forwarder = forwarder
        self._recorder = recorder
        self._counters = recorder.counters
        self._zone = names.zone
        self._serial = -1
        self._asked = names.asked
        self._limiter = Limiter(settings.names.rate, clock)
        self._ready: dict[bytes, tuple[bytes, tuple[bytes, int]]] = {}
        self._sendto: Callable[[bytes, Any], int] = lambda data, source: 0  # until it is open
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = DatagramServer(
            self.handle,
            size=_SIZE,
            failed=lambda error: recorder.failed("receive", "DNS", settings.interface, error),
        )
        self._streams = StreamServer(self.answer, names.client, clock)

    def open(self) -> None:
        """Starts to answer. Raises OperationFailed."""
        where = (self._settings.address, self._settings.names.port)
        try:
            self._server.open(where, *self._settings.bind_options)
            if self._server.socket is not None:
                self._sendto = self._server.socket.sendto
            floating = [one.address for one in self._settings.floating]
            self._streams.open(where, floating)
        except OSError as error:
            self.close()
            raise OperationFailed(
                f"cannot answer DNS on {where[0]} port {where[1]}: {error.strerror}",
                hint="another DNS server on this machine has the port: `ss -lnup` says which",
            ) from error

    def close(self) -> None:
        """Stops; what others were asked for is forgotten."""
        self._server.close()
        self._streams.close()
        for task in self._tasks:
            task.cancel()
        self._forwarder.close()

    def handle(self, data: bytes, source: tuple[str, int]) -> None:
        """One datagram. Up to the first answer it is counted in microseconds."""
        client = source[0]
        if self._serial != self._zone.serial:
            self._serial = self._zone.serial
            self._ready.clear()
        ready = self._ready.get(data[2:])
        if ready is not None and self._asked.get(client):
            tail, alike = ready
            if (verdict := self._limiter.may((client, alike))) is _SEND:
                self._counters[_ANSWERED] += 1
                try:
                    self._sendto(data[:2] + tail, source)
                except OSError as error:
                    self._unsent(error)
            else:
                self._limited(data, source, verdict)
            return
        try:
            self._slow(data, source)
        except DnsError as error:
            self._counters[_MALFORMED] += 1
            if (
                error.rcode is not None
                and self._limiter.may(prefix(client), _ERRORS_PER_S) is _SEND
            ):
                self._send(dns.error(data, error.rcode), source)

    def _limited(self, data: bytes, source: tuple[str, int], verdict: Verdict) -> None:
        self._counters[_LIMITED] += 1
        if verdict is Verdict.SLIP:
            self._send(dns.truncated(dns.parse(data)), source)

    def _slow(self, data: bytes, source: tuple[str, int]) -> None:
        """A query that has no answer ready."""
        query = dns.parse(data)
        client = source[0]
        if not self._names.client(client):
            self._counters[_FOREIGN] += 1
            if self._limiter.may(prefix(client), _ERRORS_PER_S) is _SEND:
                self._send(self._stranger(query), source)
            return
        forwards = self._forwarder.serves(client)
        decision = decide(query, self._names.zone, forwards=forwards, told=self._names.told())
        outcome = decision.outcome
        self._counters[f"dns.{outcome.value}"] += 1
        alike = (query.key, query.type)
        about = (client, alike if outcome in (Outcome.ANSWERED, Outcome.FORWARD) else outcome)
        if (verdict := self._limiter.may(about)) is not _SEND:
            self._limited(data, source, verdict)
        elif outcome is not Outcome.FORWARD:
            if outcome is Outcome.ANSWERED:
                if len(self._ready) >= _READY:
                    self._ready.clear()
                self._ready[data[2:]] = (decision.reply[2:], alike)
            self._send(decision.reply, source)
        elif (known := self._forwarder.known(query)) is not None:
            self._send(known, source)
        else:
            self._later(query, source)

    def _stranger(self, query: Query) -> bytes:
        """What somebody gets who is no client of ours, as far as is known."""
        return refusal(query) if self._names.told() else not_yet(query)

    def _later(self, query: Query, source: tuple[str, int]) -> None:
        """Has others asked, unless too much is asked of them already."""
        if self._forwarder.full(source[0]):
            self._send(dns.reply(query, Rcode.SERVFAIL, flags=dns.RA), source)
            return

        async def resolve() -> None:
            self._send(await self._forwarder.resolve(query, source[0]), source)

        task = asyncio.get_running_loop().create_task(resolve())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def answer(self, data: bytes, client: str) -> bytes:
        """The answer to a query by TCP, where its source is true. Raises DnsError for what gets
        none."""
        self._counters["dns.tcp"] += 1
        try:
            query = dns.parse(data)
        except DnsError as error:
            self._counters[_MALFORMED] += 1
            if error.rcode is None:
                raise
            return dns.error(data, error.rcode)
        if not self._names.client(client):
            self._counters[_FOREIGN] += 1
            return self._stranger(query)
        decision = decide(
            query,
            self._names.zone,
            forwards=self._forwarder.serves(client),
            room=dns.TCP_MOST,
            told=self._names.told(),
        )
        if decision.outcome is not Outcome.FORWARD:
            return decision.reply
        known = self._forwarder.known(query, dns.TCP_MOST)
        return (
            known
            if known is not None
            else await self._forwarder.resolve(query, client, dns.TCP_MOST)
        )

    def _send(self, reply: bytes, source: Any) -> None:
        if self._server.socket is not None and reply:
            try:
                self._sendto(reply, source)
            except OSError as error:
                self._unsent(error)

    def _unsent(self, error: OSError) -> None:
        if isinstance(error, BlockingIOError):
            self._counters["dns.send-full"] += (
                1  # as if the network had lost it: the client asks again
            )
        else:
            self._recorder.failed("send", "DNS", self._settings.interface, error)
