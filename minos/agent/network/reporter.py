"""What the head is told of the interfaces, each thing once, and of what is repeated once a
minute."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from layercake.base.text import count_of
from minos.agent.head_link.outbox import EventSink
from minos.agent.network.views import UP, View, differences
from minos.events import LEG_DOWN, LEG_UP, NETWORK, NETWORK_CHANGED, NETWORK_FAILED

EVERY_S = 60.0
"""How often it is told at most that others change an interface."""
GRACE_S = 5.0
"""How long a leg is down before that is told: a card and its switch take a few seconds to agree."""
VIEWS_S = 1.0


class InterfaceReporter:
    """`clock` gives seconds."""

    def __init__(self, event: EventSink, clock: Callable[[], float]) -> None:
        self._event = event
        self._clock = clock
        self._last: dict[str, View] = {}
        self._told: list[View] | None = None
        self._told_at = -VIEWS_S
        self._failures: dict[str, str] = {}
        self._changes: dict[str, tuple[list[str], View, View, int]] = {}
        self._changed_at: dict[str, float] = {}
        self._down_since: dict[str, float] = {}
        self._late = False
        self.legs: dict[str, str] = {}
        """How legs are, as it was told; those that are well are left out."""

    @property
    def pending(self) -> bool:
        """Whether there is something to tell a little later."""
        return bool(self._changes or self._down_since or self._late)

    def remember(self, views: Any, legs: Any) -> None:
        """What an earlier agent has written down."""
        self._last = {
            str(view["name"]): view
            for view in views
            if isinstance(view, Mapping) and "name" in view
        }
        self.legs = (
            {str(leg): str(state) for leg, state in legs.items()}
            if isinstance(legs, Mapping)
            else {}
        )

    def again(self) -> None:
        """The head does not know how the interfaces are."""
        self._told = None

    def drift(self, touched: Collection[str], began: Collection[View]) -> None:
        """Interfaces were not as they had been set, `began` is how they were found. What had
        trouble before is no news."""
        for now in began:
            name = str(now["name"])
            was = self._last.get(name)
            if name not in touched or was is None or was.get("trouble"):
                continue
            reported, first, _, count = self._changes.get(name, ([], was, now, 0))
            self._changes[name] = ([*reported, *differences(was, now)][:20], first, now, count + 1)

    def all(self, shown: list[View], troubles: Mapping[str, str]) -> bool:
        """Tells what is new; whether that is something to write down."""
        before = self._last
        legs = dict(self.legs)
        self._last = {str(view["name"]): view for view in shown}
        self._tell_changes()
        for name, why in troubles.items():
            if self._failures.get(name) != why:
                self._event(NETWORK_FAILED, f"{name}: {why}", interface=name)
        self._failures = dict(troubles)
        self._tell_legs(shown)
        self._late = False
        if shown != self._told:
            self._late = self._clock() < self._told_at + VIEWS_S
            if not self._late:
                self._told = shown
                self._told_at = self._clock()
                self._event(NETWORK, count_of(len(shown), "interface"), interfaces=shown)
        return before != self._last or legs != self.legs

    def _tell_changes(self) -> None:
        now = self._clock()
        for name, (told, was, found, count) in list(self._changes.items()):
            if now >= self._changed_at.get(name, now - EVERY_S) + EVERY_S:
                del self._changes[name]
                self._changed_at[name] = now
                often = f", {count} times" if count > 1 else ""
                what = "; ".join(dict.fromkeys(told)) or "its settings"
                self._event(
                    NETWORK_CHANGED,
                    f"{name} was changed by others{often}, and was set again: {what}",
                    interface=name,
                    was=dict(was),
                    found=dict(found),
                    times=count,
                )

    def _tell_legs(self, shown: list[View]) -> None:
        now = self._clock()
        states = {
            f"{leg['name']} of {view['name']}": str(leg["state"])
            for view in shown
            for leg in view["legs"]
        }
        self._down_since = {
            leg: at for leg, at in self._down_since.items() if states.get(leg, UP) != UP
        }
        self.legs = {leg: state for leg, state in self.legs.items() if leg in states}
        for leg, state in states.items():
            if state == UP and leg in self.legs:
                del self.legs[leg]
                self._event(LEG_UP, f"{leg} is up again", leg=leg)
            elif (
                state != UP
                and leg not in self.legs
                and now >= self._down_since.setdefault(leg, now) + GRACE_S
            ):
                del self._down_since[leg]
                self.legs[leg] = state
                self._event(LEG_DOWN, f"{leg}: {state}", leg=leg, state=state)
