"""How many slots each owner may hold, and how often each key may do something: what every open
socket asks of strangers. Pure.

A newcomer always gets a slot, and the oldest holder goes for it: first of the same owner, then of
the owner with the most. So idle ones never keep others out, and who does his work at once is never
the oldest.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Holder = TypeVar("Holder")


class SlotPool(Generic[Holder]):
    """At most `each` slots for one owner and `most` in all. `stays` says of a holder that it shall
    not be the one to go."""

    def __init__(
        self, each: int, most: int, stays: Callable[[Holder], bool] = lambda holder: False
    ) -> None:
        self._each = each
        self._most = most
        self._stays = stays
        self._of: dict[str, dict[Holder, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, owner: str, holder: Holder) -> Holder | None:
        """Gives the holder a slot. Returns who has to go for it: it holds no slot any more."""
        held = self._of.setdefault(owner, {})
        held[holder] = None
        self._count += 1
        if len(held) > self._each:
            return self._oldest(owner)
        return self.evict() if self._count > self._most else None

    def evict(self) -> Holder | None:
        """Removes and returns the oldest holder of the owner with the most; None without any."""
        return (
            self._oldest(max(self._of, key=lambda owner: len(self._of[owner])))
            if self._of
            else None
        )

    def _oldest(self, owner: str) -> Holder:
        held = self._of[owner]
        holder = next((g for g in held if not self._stays(g)), None)
        if holder is None:
            holder = next(reversed(held))  # all are at work: the newest has done the least of it
        self.remove(owner, holder)
        return holder

    def remove(self, owner: str, holder: Holder) -> None:
        """The holder is gone; one that holds no slot is fine."""
        held = self._of.get(owner, {})
        if holder in held:
            del held[holder]
            self._count -= 1
            if not held:
                del self._of[owner]

    def held_by(self, owner: str) -> list[Holder]:
        """The holders of an owner's slots."""
        return list(self._of.get(owner, ()))

    def holders(self) -> list[Holder]:
        """All holders."""
        return [holder for held in self._of.values() for holder in held]


class RateLimiter:
    """How often each key may do something: `burst` times at once, then `per_s` times a second.
    `clock` is in seconds."""

    KEYS = 10_000
    """Keys that are remembered; the one unheard of for longest is forgotten first, and has its
    burst again."""

    def __init__(self, per_s: float, burst: float, clock: Callable[[], float]) -> None:
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._left)

    def charge(self, key: str, cost: float = 1.0) -> float:
        """Spends, and says for how many seconds the key is ahead of its pace: 0.0 if it is not."""
        now = self._clock()
        left, at = self._left.pop(key, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._per_s) - cost
        self._left[key] = (left, now)
        if len(self._left) > self.KEYS:
            self._left.popitem(last=False)
        return max(0.0, -left / self._per_s)

    def allow(self, key: str) -> bool:
        """Spends, if the key is not ahead of its pace; whether it was not."""
        if self.charge(key) > 0.0:
            self.refund(key)
            return False
        return True

    def refund(self, key: str, cost: float = 1.0) -> None:
        """Gives back what was spent."""
        left, at = self._left.get(key, (self._burst, self._clock()))
        self._left[key] = (min(self._burst, left + cost), at)
