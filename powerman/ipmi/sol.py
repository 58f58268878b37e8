"""Serial over LAN: its packets, and when what is sent. Pure: the clock is an argument, in seconds
of any steady clock.

Source: IPMI 2.0 rev 1.1, section 15 (15.9 the packet, 15.11 acknowledging and retrying), and 24 for
what activates it. Each side has one packet on its way at a time and sends it again until it is
acknowledged; a number from 1 to 15 tells a new one from the same once more.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from powerman.ipmi.rmcp import Malformed

NACK = 0x40
# What the BMC says in its fourth byte (table 15-2) ...
ENDED = 0x10
OVERRUN = 0x08
BROKE = 0x04
# ... and what we ask in ours.
BREAK = 0x10

WAITS_S = (0.5, 0.5, 1.0, 1.0, 2.0, 2.0)
"""How long an acknowledgement is waited for, after each sending. When all are over, it takes
nothing any more."""
HELD_S = 0.5
"""How long nothing is sent to a BMC that could not take what it got."""
QUEUE = 8192
"""Bytes that may wait to be sent: a long paste. More is not taken."""
_HEAD = 4
_BIGGEST = 200
_LEAST = 16


class Packet(NamedTuple):
    """One packet. `sequence` 0 carries nothing; `acked` 0 acknowledges nothing, else `accepted`
    bytes of that packet were taken."""

    sequence: int
    acked: int
    accepted: int
    status: int
    data: bytes


def encode(packet: Packet) -> bytes:
    """A packet as bytes."""
    return bytes(packet[:4]) + packet.data


def decode(payload: bytes) -> Packet:
    """The packet in a payload. Raises Malformed if it is too short."""
    if len(payload) < _HEAD:
        raise Malformed("SOL packet")
    return Packet(payload[0] & 0x0F, payload[1] & 0x0F, payload[2], payload[3], payload[_HEAD:])


class Activated(NamedTuple):
    """The answer to Activate Payload (section 24.1): how many bytes a packet to the BMC may have,
    its head with it."""

    room: int


def parse_activated(data: bytes) -> Activated:
    """Raises Malformed if it is too short. What it says of sizes is kept within what is sensible:
    some say 0."""
    if len(data) < 8:
        raise Malformed("answer to Activate Payload")
    room = int(struct.unpack_from("<H", data, 4)[0])
    return Activated(max(_LEAST, min(room or _BIGGEST, _BIGGEST)))


@dataclass(slots=True)
class Received:
    """What came of a packet: what the machine wrote, what to send, what is to be told (`lost`), and
    whether it was the last."""

    data: bytes = b""
    send: bytes = b""
    lost: str = ""
    ended: bool = False


@dataclass(slots=True)
class _Sent:
    sequence: int
    data: bytes
    status: int
    again_at: float
    tries: int = 1


class Sol:
    """One side of a console, ours. `room`: as Activated."""

    def __init__(self, room: int) -> None:
        self._most = room - _HEAD
        self._queue = bytearray()
        self._breaks = 0
        self._sent: _Sent | None = None
        self._next = 1
        self._held_until = 0.0
        self._seen = (
            0,
            0,
        )  # the last packet of the BMC's: its number, and how many bytes of it are known

    @property
    def stuck(self) -> bool:
        """Whether what is written is not taken any more, in all the time that there is for it."""
        return self._sent is not None and self._sent.tries > len(WAITS_S)

    @property
    def again_at(self) -> float | None:
        """When `due` has something to do, None while nothing is on its way."""
        if self._sent is not None:
            return self._sent.again_at
        return self._held_until if self._queue or self._breaks else None

    def write(self, data: bytes) -> int:
        """Takes what is to be sent; how many bytes there was room for."""
        taken = data[: max(0, QUEUE - len(self._queue))]
        self._queue += taken
        return len(taken)

    def send_break(self) -> None:
        """A break is sent before what is written later."""
        self._breaks += 1

    def due(self, now: float) -> bytes:
        """What is to be sent now, b"" for nothing: something new, or the same once more."""
        if self._sent is None:
            return self._new(now)
        if now < self._sent.again_at or self.stuck:
            return b""
        wait = WAITS_S[min(self._sent.tries, len(WAITS_S) - 1)]
        self._sent.tries += 1
        self._sent.again_at = now + wait
        return b"" if self.stuck else self._packet(self._sent)

    def receive(self, payload: bytes, now: float) -> Received:
        """Takes a packet of the BMC's. Raises Malformed."""
        packet = decode(payload)
        received = Received()
        received.ended = bool(packet.status & ENDED)
        if packet.status & OVERRUN:
            received.lost = "the BMC was too slow, and has lost what came here"
        elif packet.status & BROKE:
            received.lost = "a break came here"
        if packet.acked and self._sent is not None and packet.acked == self._sent.sequence:
            self._acknowledged(self._sent, packet, now)
        if packet.sequence:
            number, known = self._seen
            received.data = packet.data[known:] if packet.sequence == number else packet.data
            self._seen = (
                packet.sequence,
                max(len(packet.data), known if packet.sequence == number else 0),
            )
            received.send = encode(Packet(0, packet.sequence, min(len(packet.data), 255), 0, b""))
        return received

    def _acknowledged(self, sent: _Sent, packet: Packet, now: float) -> None:
        rest = sent.data[packet.accepted :]
        self._sent = None
        self._queue[:0] = rest
        if packet.status & NACK:
            self._held_until = now + HELD_S
            if sent.status & BREAK:
                self._breaks += 1

    def _new(self, now: float) -> bytes:
        if now < self._held_until or not (self._queue or self._breaks):
            return b""
        if self._breaks:
            data = b""
            status = BREAK
            self._breaks = self._breaks - 1
        else:
            data = bytes(self._queue[: self._most])
            status = 0
            del self._queue[: self._most]
        self._sent = _Sent(self._next, data, status, now + WAITS_S[0])
        self._next = self._next % 15 + 1
        return self._packet(self._sent)

    def _packet(self, sent: _Sent) -> bytes:
        return encode(Packet(sent.sequence, 0, 0, sent.status, sent.data))
