"""The console of a MiniBmc: Serial over LAN from the BMC's side, with the ways in which real ones
are bad at it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

NACK = 0x40
UNAVAILABLE = 0x20
ENDED = 0x10
OVERRUN = 0x08
BREAK = 0x10
AGAIN_S = 0.3
ACTIVE, NOTHING, INSTANCE = 0x80, 0xC1, b"\x01\x01"


@dataclass
class MiniSol:
    """`piece` bytes a packet. `loses`: each so-many-th packet to the head is lost, 0 for none.
    `refuses`: so many packets of ours it cannot take at first. `hangs`: it acknowledges nothing
    that is typed. `holder` is who has it: a user's number, 0 for nobody. `typed` is what arrived,
    `breaks` how many breaks."""

    piece: int = 120
    loses: int = 0
    refuses: int = 0
    hangs: bool = False
    holder: int = 0
    typed: bytearray = field(default_factory=bytearray)
    breaks: int = 0
    owner: bytes = b""  # the session that has it
    send: Callable[[bytes], None] | None = None
    sent: int = 0
    _queue: bytearray = field(default_factory=bytearray)
    _waiting: bytes = b""
    _sequence: int = 0
    _last: int = 0
    _timer: asyncio.TimerHandle | None = None

    def activate(
        self, session: bytes, send: Callable[[bytes], None], port: int
    ) -> tuple[int, bytes]:
        """Activate Payload, by a session; it goes on at the same port."""
        if self.holder or (self.owner and self.owner != session):
            return ACTIVE, b""
        self.owner = session
        self.send = send
        self._sequence = 0
        self._last = 0
        self._waiting = b""
        self._next()
        return 0, bytes(4) + b"\xd0\x00\xd0\x00" + port.to_bytes(2, "little") + b"\xff\xff"

    def deactivate(self) -> tuple[int, bytes]:
        """Deactivate Payload: whoever has it loses it."""
        self.holder, self.owner, self.send = 0, b"", None
        self.stop()
        return 0, b""

    def instance(self) -> tuple[int, bytes]:
        """Get Payload Instance Info."""
        return 0, (b"\x77\x77\x77\x77" if self.holder else self.owner or bytes(4)) + bytes(8)

    def write(self, data: bytes) -> None:
        """The machine writes."""
        self._queue += data
        self._next()

    @property
    def idle(self) -> bool:
        """Whether all that the machine wrote has been acknowledged."""
        return not self._queue and not self._waiting

    def end(self) -> None:
        """The BMC ends it, and says so."""
        if self.send is not None:
            self.send(bytes((0, 0, 0, ENDED)))
        self.deactivate()

    def stop(self) -> None:
        """Sends nothing more."""
        if self._timer is not None:
            self._timer.cancel()
        self._queue[:0] = self._waiting[4:]
        self._waiting = b""

    def heard(self, payload: bytes) -> None:
        """A packet of the head's."""
        sequence, acked, _, status = payload[:4]
        if acked == self._sequence and self._waiting:
            self._waiting = b""
            if self._timer is not None:
                self._timer.cancel()
            self._next()
        if sequence and not self.hangs and self.send is not None:
            data = payload[4:]
            if self.refuses > 0:
                self.refuses -= 1
                self.send(bytes((0, sequence, 0, NACK | UNAVAILABLE)))
                return
            if sequence != self._last:
                self._last = sequence
                self.typed += data
                self.breaks += bool(status & BREAK)
            self.send(bytes((0, sequence, len(data), 0)))

    def _next(self) -> None:
        if self.send is None or self._waiting or not self._queue:
            return
        self._sequence = self._sequence % 15 + 1
        data = bytes(self._queue[: self.piece])
        del self._queue[: self.piece]
        self._waiting = bytes((self._sequence, 0, 0, 0)) + data
        self._out()

    def _out(self) -> None:
        if self.send is None or not self._waiting:
            return
        self.sent += 1
        if not self.loses or self.sent % self.loses:
            self.send(self._waiting)
        self._timer = asyncio.get_running_loop().call_later(AGAIN_S, self._out)
