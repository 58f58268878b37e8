"""What is wrong with the heads of a site and their store, in words for people: what lasts, not what
passes in a moment."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from layercake.heads.site import HeadsShown

LASTS_S = 6.0
"""Seconds after which what is wrong counts: a head that begins, or copies files, is soon well."""
APART_S = 15.0
"""Seconds that clocks may be apart: what a head says of its own may be as old as SAID_S."""
BEHIND = 500
"""Entries that a follower may be behind."""


def troubles_of(shown: HeadsShown, known: Collection[str], now: float) -> Iterator[str]:
    """What is wrong at this moment; `known` are the heads that there should be, `now` is this
    head's clock, seconds since the epoch."""
    if shown.trouble:
        yield shown.trouble
    for member in shown.members:
        if member.trouble:
            yield f"a member of the heads' store is down: {member.trouble}"
        for alarm in member.alarms:
            yield f"the heads' store at {member.endpoint} has the alarm {alarm}"
    there = {one.head: one for one in shown.heads}
    for name in sorted({*known} - there.keys() if not shown.trouble else ()):
        yield f"{name} is away: it cannot take over"
    for one in shown.heads:
        if one.trouble:
            yield f"{one.head}: {one.trouble}"
        if shown.entry - one.entry > BEHIND:
            yield f"{one.head} is far behind the leader"
        if abs(one.at - now) > APART_S:
            yield f"the clock of {one.head} is far off"


class Troubles:
    """What has been wrong for a while. `clock` is steady, `changed` is told when what lasts is
    other than before, with what it is now."""

    def __init__(self, clock: Callable[[], float], changed: Callable[[list[str]], None]) -> None:
        self._clock = clock
        self._changed = changed
        self._since: dict[str, float] = {}
        self.lasting: list[str] = []

    def update(self, now: Collection[str]) -> None:
        """This is wrong now."""
        at = self._clock()
        self._since = {text: self._since.get(text, at) for text in now}
        lasting = [text for text, since in self._since.items() if at - since >= LASTS_S]
        if lasting != self.lasting:
            self.lasting = lasting
            self._changed(lasting)
