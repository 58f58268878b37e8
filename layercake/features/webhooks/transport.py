"""What a way to tell somebody is made of (POST requests, mail), for who keeps the queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from layercake.fleet.store import Event


class Transport(Protocol):
    """A way. It is told as `alerts`, or each event as it is. Events are gathered for `gather_s`
    after the first, and `at_once` of them are told together."""

    @property
    def alerts(self) -> bool: ...
    @property
    def gather_s(self) -> float: ...
    @property
    def at_once(self) -> int: ...

    async def send(self, batch: Sequence[Event], left_out: int, number: str) -> str:
        """Tells of these events, and how many were left out; `number` is the same when they are
        told again. Returns why the receiver will never take some of it, "" if it took all. Raises
        LayercakeError where it may be tried again."""
