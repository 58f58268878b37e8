"""Who opens connections by the thousand that come to nothing is dropped by the kernel for a while:
its packets reach no listening socket, and cost the server nothing (to accept and close one takes
about 40 µs of a processor). Classic BPF, Linux's Documentation/networking/filter.rst."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Callable, Iterable

from layercake.base.packets.bpf import Program, attach
from layercake.base.quotas import RateLimiter

_SO_DETACH_FILTER = 27
_NETWORK_HEADER = 0xFFF00000  # SKF_NET_OFF: what a filter of TCP sees begins behind it
_MOST = 64
"""Sources that are dropped at once: a program is small, and looked through for each packet."""
_PER_S = 20.0
_BURST = 50.0
DROPPED_S = 5.0
"""For so long: who only tries again is let in by its retries, as often as its rate allows."""

_LOAD = 0x20
_LOAD_BYTE = 0x30
_SHIFT = 0x74
_EQUALS = 0x15
_GO = 0x05
_TAKE = (0x06, 0, 0, 0xFFFFFFFF)
_DROP = (0x06, 0, 0, 0)


def program_without(sources: Iterable[str]) -> Program:
    """A program for a TCP socket that drops packets from these sources: IPv4 addresses, IPv6
    addresses, or the /64 that ends with zeros (tcp_listener.counted_address)."""
    v4: list[tuple[int, int, int, int]] = [(_LOAD, 0, 0, _NETWORK_HEADER + 12)]
    v6: list[tuple[int, int, int, int]] = []
    for source in sources:
        if ":" not in source:
            v4 += [(_EQUALS, 0, 1, int.from_bytes(socket.inet_aton(source))), _DROP]
            continue
        packed = socket.inet_pton(socket.AF_INET6, source.partition("%")[0])
        size = 16 if any(packed[8:]) else 8
        words = [int.from_bytes(packed[at : at + 4]) for at in range(0, size, 4)]
        for number, word in enumerate(words):
            left = 2 * (len(words) - number) - 1  # lines from behind the comparison to the next one
            v6 += [(_LOAD, 0, 0, _NETWORK_HEADER + 8 + 4 * number), (_EQUALS, 0, left, word)]
        v6.append(_DROP)
    v4.append(_TAKE)
    return [
        (_LOAD_BYTE, 0, 0, _NETWORK_HEADER),
        (_SHIFT, 0, 0, 4),
        (_EQUALS, 1, 0, 4),
        (_GO, 0, 0, len(v4)),
        *v4,
        *v6,
        _TAKE,
    ]


class DroppedSources:
    """Of some listening sockets. `clock` is in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._rate = RateLimiter(_PER_S, _BURST, clock)
        self._until: dict[str, float] = {}

    def refused(self, source: str) -> bool:
        """A connection was refused. Whether its source is dropped from now on, which it was not:
        then `apply`."""
        if source in self._until or self._rate.allow(source):
            return False
        if len(self._until) >= _MOST:
            del self._until[next(iter(self._until))]
        self._until[source] = self._clock() + DROPPED_S
        return True

    def over(self) -> bool:
        """Whether some have been dropped for long enough, and are no more: then `apply`."""
        now = self._clock()
        ended = [source for source, until in self._until.items() if until <= now]
        for source in ended:
            del self._until[source]
        return bool(ended)

    def apply(self, listeners: Iterable[socket.socket]) -> None:
        """Has the kernel drop them. A kernel that does not lets them be refused one by one."""
        for listener in listeners:
            with contextlib.suppress(OSError):
                if self._until:
                    attach(listener, program_without(self._until))
                else:
                    detach(listener)


def detach(made: socket.socket) -> None:
    """Takes a socket's program away, if it has one. Raises OSError."""
    try:
        made.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise
