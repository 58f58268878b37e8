"""One TFTP transfer as a state machine: what to send next. Pure; the socket and the clock belong to
tftp_server.

A file is cut into DATA packets once for all who fetch it: they stand one behind another in pieces,
and what a client gets next is a part of one. It is not copied before the kernel does so.
"""

from __future__ import annotations

import enum
import mmap
from functools import lru_cache

from pxe.packets.tftp import MAX_WINDOW, Op, Terms, build_data, build_oack

_ACK = int(Op.ACK)
_ERROR = int(Op.ERROR)
_PIECE = 48
"""Blocks after which the next piece begins. Each has the first MAX_WINDOW of the next one too: a
window is always in one piece."""
_MOST_PIECES = 256
"""Pieces that are kept: 24 MB in the largest blocks."""
Datagrams = bytes | memoryview
"""Packets one behind another, each of the same size but for the last (Transfer.split), or none."""

SILENT_S = 60.0
"""Seconds without an answer after which a client that had begun is given up."""
FRESH_S = 10.0
"""The same of one that has answered nothing yet: its request may have come from somebody else, and
its own retry begins anew."""
_BACKOFF_S = 4.0
"""What was not answered is sent again after the agreed time, then twice that, and so on, up to
this."""
LIFE_S = 120.0
"""Seconds that any transfer may take, however small the file is."""
SLOWEST = 1_000.0
"""Bytes a second: a transfer may also take as long as its file does at this pace. A busy machine
that acknowledges each 512 bytes was seen at 9,000."""


class Phase(enum.Enum):
    """Where a transfer is."""

    RUNNING = "running"
    DONE = "done"
    ABORTED = "the client stopped it"
    SILENT = "the client fell silent"
    GONE = "the client's port is closed"


_RUNNING = Phase.RUNNING
_NOTHING = memoryview(b"")


def _cut(data: bytes | mmap.mmap, block: int, first: int) -> memoryview:
    """The packets of the blocks from `first` on, counted from 0."""
    last = min(first + _PIECE + MAX_WINDOW, len(data) // block + 1)
    return memoryview(
        b"".join([build_data(n + 1, data[n * block : (n + 1) * block]) for n in range(first, last)])
    )


_piece = lru_cache(maxsize=_MOST_PIECES)(_cut)


class Transfer:
    """Sends `data` in windows of blocks (RFC 7440). `acked` counts whole blocks, so it does not
    wrap as their numbers do."""

    def __init__(self, data: bytes | mmap.mmap, terms: Terms, now: float) -> None:
        self._data = data
        self._life = LIFE_S + len(data) / SLOWEST
        self._terms = terms
        self._blocks = len(data) // terms.block + 1  # the last block is short, if need be empty
        self._oack = build_oack(terms.acknowledged) if terms.acknowledged else b""
        self._acked = -1 if self._oack else 0
        self._most = terms.window
        self._packet_bytes = terms.block + 4
        self._window_bytes = self._packet_bytes * terms.window
        self._piece = _NOTHING
        self._piece_at = -_PIECE
        self._wait = self._timeout = terms.timeout
        self._sent_at = self._heard_at = now
        self.started = now
        self.phase = Phase.RUNNING

    @property
    def fresh(self) -> bool:
        """Whether the client has acknowledged nothing yet."""
        return self._acked <= 0

    @property
    def sent(self) -> int:
        """The bytes that the client has acknowledged."""
        return min(max(0, self._acked) * self._terms.block, len(self._data))

    @property
    def out(self) -> bool:
        """Whether the client has acknowledged some of it, and all the rest was sent at least
        once."""
        return self._acked > 0 and self._acked + self._most >= self._blocks

    def due(self, now: float) -> bool:
        """Whether the client has been silent for so long that something must be sent again, or has
        taken too long in all."""
        return now - self._sent_at >= self._wait or self._over(now)

    def _over(self, now: float) -> bool:
        silent = FRESH_S if self.fresh else SILENT_S
        return (
            now - self._heard_at >= max(silent, 2 * self._terms.timeout)
            or now - self.started >= self._life
        )

    def begin(self, now: float) -> Datagrams:
        """The first packets, also when the client asks a second time."""
        self._sent_at = now
        return self._oack if self._acked < 0 else self._window()

    def split(self, datagrams: Datagrams) -> list[Datagrams]:
        """What is sent next, packet by packet."""
        size = self._packet_bytes if self._acked >= 0 else len(datagrams)
        return [datagrams[at : at + size] for at in range(0, len(datagrams), size or 1)]

    def _window(self) -> Datagrams:
        """The blocks that follow what was acknowledged."""
        ahead = self._acked - self._piece_at
        if not 0 <= ahead < _PIECE:
            self._piece_at = self._acked // _PIECE * _PIECE
            # A small file may be one node's own, with its token in it: that is not kept.
            piece = _piece if self._blocks > _PIECE else _cut
            self._piece = piece(self._data, self._terms.block, self._piece_at)
            ahead = self._acked - self._piece_at
        at = ahead * self._packet_bytes
        return self._piece[at : at + self._window_bytes]

    def answer(self, op: int, number: int, now: float) -> Datagrams:
        """The client sent ACK or ERROR. An ACK outside the window is old and answered by nothing:
        answering duplicates would double every packet from there on (the Sorcerer's Apprentice bug,
        RFC 1123 section 4.2.3.1)."""
        if op != _ACK or self.phase is not _RUNNING:
            if op == _ERROR:
                self.phase = Phase.ABORTED
            return b""
        acked = self._acked
        ahead = (number - acked) & 0xFFFF
        if acked < 0:
            if number != 0:
                return b""
        elif ahead > self._most or (ahead == 0 and self._most == 1) or acked + ahead > self._blocks:
            return b""
        self._acked = acked = acked + ahead
        self._wait = self._timeout
        self._sent_at = self._heard_at = now
        if acked >= self._blocks:
            self.phase = Phase.DONE
            return b""
        return self._window()

    def timeout(self, now: float) -> Datagrams:
        """Sends again what was not acknowledged, less and less often, while the transfer lives."""
        self._wait = max(self._terms.timeout, min(2 * self._wait, _BACKOFF_S))
        if self._over(now):
            self.phase = Phase.SILENT
            return b""
        return self.begin(now)
