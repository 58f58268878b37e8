"""How often a client gets the same answer by UDP: response rate limiting. A source address is
easily made up, and whose it is would get what we answer. Who is told to ask by TCP (a slip) and is
really there does so. Pure."""

from __future__ import annotations

import enum
import ipaddress
from collections.abc import Callable, Hashable


class Verdict(enum.Enum):
    """What becomes of an answer."""

    SEND = "send"
    SLIP = "slip"
    DROP = "drop"


_SEND = Verdict.SEND  # looked up for each answer


class Limiter:
    """`rate` answers a second that are alike, 0 for any number; of those beyond it every second
    slips. `clock` is in seconds."""

    KEYS = 50_000
    """What is counted in a second. Beyond it, more of what is new is dropped: nothing but made-up
    addresses gets there."""

    def __init__(self, rate: int, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._clock = clock
        self._until = 0.0
        self._counts: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def may(self, about: Hashable, rate: int | None = None) -> Verdict:
        """Counts one more answer. `about` is the client and what makes answers alike; `rate`
        another one than the usual."""
        most = self._rate if rate is None else rate
        if not self._rate:
            return Verdict.SEND
        now = self._clock()
        if now >= self._until:
            self._until = now + 1
            self._counts = {}
        counts = self._counts
        count = counts.get(about, 0) + 1
        if count == 1 and len(counts) >= self.KEYS:
            return Verdict.DROP
        counts[about] = count
        if count <= most:
            return _SEND
        return Verdict.SLIP if (count - most) % 2 else Verdict.DROP


def prefix(address: str) -> str:
    """The /24 that an IPv4 address is in, or the /64 of one of IPv6: strangers are counted
    together."""
    if ":" in address:
        return str(ipaddress.IPv6Network((address.partition("%")[0], 64), strict=False))
    return address.rpartition(".")[0]
