"""Who may hold how many places, and how often somebody may knock: what every open socket asks of
strangers. Pure.

A newcomer always gets a place; who has held his for longest goes: first of those of the same owner,
then of the owner with the most. So idle ones never keep others out, and who does his work at once
is never the oldest.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Guest = TypeVar("Guest")


class Places(Generic[Guest]):
    """At most `each` places for one owner and `most` in all. `stays` says of a guest that it shall
    not be the one to go."""

    def __init__(
        self, each: int, most: int, stays: Callable[[Guest], bool] = lambda guest: False
    ) -> None:
        self._each = each
        self._most = most
        self._stays = stays
        self._of: dict[str, dict[Guest, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def of(self, owner: str) -> int:
        """How many places an owner holds."""
        return len(self._of.get(owner, ()))

    def take(self, owner: str, guest: Guest) -> Guest | None:
        """Gives the guest a place. Returns who has to go for it: it holds no place any more."""
        held = self._of.setdefault(owner, {})
        held[guest] = None
        self._count += 1
        if len(held) > self._each:
            return self._oldest(owner)
        return self.shed() if self._count > self._most else None

    def shed(self) -> Guest | None:
        """Takes the oldest place of the owner with the most. None if there is none to take."""
        return (
            self._oldest(max(self._of, key=lambda owner: len(self._of[owner])))
            if self._of
            else None
        )

    def _oldest(self, owner: str) -> Guest:
        held = self._of[owner]
        guest = next((g for g in held if not self._stays(g)), None)
        if guest is None:
            guest = next(reversed(held))  # all are at work: the newest has done the least of it
        self.leave(owner, guest)
        return guest

    def leave(self, owner: str, guest: Guest) -> None:
        """The guest is gone; one that holds no place is fine."""
        held = self._of.get(owner, {})
        if guest in held:
            del held[guest]
            self._count -= 1
            if not held:
                del self._of[owner]

    def held(self, owner: str) -> list[Guest]:
        """Who hold the places of an owner."""
        return list(self._of.get(owner, ()))

    def guests(self) -> list[Guest]:
        """All who hold a place."""
        return [guest for held in self._of.values() for guest in held]


class Pace:
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

    def wait(self, key: str, cost: float = 1.0) -> float:
        """Spends, and says for how many seconds the key is ahead of its pace: 0.0 if it is not."""
        now = self._clock()
        left, at = self._left.pop(key, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._per_s) - cost
        self._left[key] = (left, now)
        if len(self._left) > self.KEYS:
            self._left.popitem(last=False)
        return max(0.0, -left / self._per_s)

    def may(self, key: str) -> bool:
        """Spends, if the key is not ahead of its pace; whether it was not."""
        if self.wait(key) > 0.0:
            self.refund(key)
            return False
        return True

    def refund(self, key: str) -> None:
        """Gives back what was spent once."""
        left, at = self._left.get(key, (self._burst, self._clock()))
        self._left[key] = (min(self._burst, left + 1.0), at)
