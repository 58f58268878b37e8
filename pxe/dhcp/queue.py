"""Packets that wait for their answer, when more come than can be answered. Pure.

Who has waited for long has asked again already, or has gone: so the newest is answered first, and
what is older than a client waits is not answered at all. A DHCPREQUEST goes before a DHCPDISCOVER:
otherwise half of the exchanges that were begun would not be finished, and begin once more. Of one
client's packets of a kind only the newest waits.
"""

from __future__ import annotations

from collections import Counter, OrderedDict

from pxe.packets.dhcp import MAGIC, MessageType

LATE_S = 4.0
"""Seconds after which a client asks again (RFC 2131 section 4.1)."""
MOST = 8192
"""Packets that wait."""
_TYPED = 236
_TYPE_FIRST = MAGIC + b"\x35\x01"
_CLIENT = slice(24, 34)
_TYPE = slice(242, 243)
"""Where the addresses of relay and client are, and the type of message where its option comes
first, as it does of all clients."""
_REQUEST = bytes((MessageType.REQUEST,))


class Queue:
    """Packets and when they came. `counters` has what was dropped: of clients that asked again
    ("dhcp.repeated"), that came too long ago ("dhcp.late"), and that were too many
    ("dhcp.crowded")."""

    def __init__(self, counters: Counter[str]) -> None:
        self._counters = counters
        self._requests: OrderedDict[bytes, tuple[bytes, float]] = OrderedDict()
        self._others: OrderedDict[bytes, tuple[bytes, float]] = OrderedDict()
        self._odd = 0

    def __len__(self) -> int:
        return len(self._requests) + len(self._others)

    def push(self, data: bytes, now: float) -> None:
        """A packet has come."""
        kind = data[_TYPE]
        if data.startswith(_TYPE_FIRST, _TYPED):
            key = data[_CLIENT] + kind
        else:
            self._odd += 1
            key = self._odd.to_bytes(8, "big")
        waiting = self._requests if kind == _REQUEST else self._others
        if waiting.pop(key, None) is not None:
            self._counters["dhcp.repeated"] += 1
        waiting[key] = (data, now)
        if len(waiting) > MOST:
            waiting.popitem(last=False)
            self._counters["dhcp.crowded"] += 1

    def pop(self, now: float) -> bytes | None:
        """The next to be answered, None if there is none."""
        for waiting in (self._requests, self._others):
            if not waiting:
                continue
            data, came = waiting.popitem()[1]
            if now - came < LATE_S:
                return data
            self._counters["dhcp.late"] += 1 + len(waiting)
            waiting.clear()  # the others came before it
        return None
