"""What queries ask of a node (query.Facts), out of its record; and since when nodes are not as
wanted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType

from layercake.base.clock import Clock
from layercake.features.machines.module import Whereabouts
from layercake.features.nodes.lists.query import LABEL, PLACE, TEXTS
from layercake.features.nodes.views import status_of, stops
from layercake.fleet.guard_state import Verdict
from layercake.fleet.store import Record, Store
from layercake.fleet.wishes import wishes


class Unmet:
    """Since when the goal of a node is not met. What was so before the head started is so since its
    start. `over` hears for how many seconds one was not, once it is."""

    def __init__(
        self, store: Store, clock: Clock, over: Callable[[float], None] = lambda seconds: None
    ) -> None:
        self._store = store
        self._over = over
        self._clock = clock
        self._began = clock()
        self._since: dict[str, float] = {}
        store.watch(self._watch)

    def _watch(self, node: str) -> None:
        record = self._store.find(node)
        if record is None or record.machine.goal.met(record.machine.state):
            since = self._since.pop(node, None)
            if since is not None and record is not None:
                self._over(max(0.0, self._clock() - since))
        else:
            self._since.setdefault(node, self._clock())

    def seconds(self, record: Record) -> float | None:
        """For how long a node is not as wanted; None for one that is."""
        if record.machine.goal.met(record.machine.state):
            return None
        return max(0.0, self._clock() - self._since.get(record.node.id, self._began))


ValuesOf = Mapping[str, Callable[[Record], Sequence[str | int]]]
"""The values of nodes by names that features add (kernel.feature.NodeField)."""


class RecordFacts:
    """One node at a time: `record` is set before it is asked. `why` is why the guard holds a node's
    next step, `more` gives the values of names that features add."""

    def __init__(
        self,
        record: Record,
        now: float,
        unmet: Unmet,
        why: Callable[[Record], Verdict | None],
        more: ValuesOf = MappingProxyType({}),
    ) -> None:
        self.record = record
        self._now = now
        self._unmet = unmet
        self._why = why
        self._more = more

    def text(self, name: str) -> str:
        """The value of a variable, of one of TEXTS, or of a label."""
        if name.startswith(LABEL):
            return wishes(self.record.node).labels.get(name.removeprefix(LABEL), "")
        if name not in TEXTS:
            return self.record.value(name)
        if name == "status":
            return status_of(self.record, self._now, self._why(self.record))[0].value
        node = self.record.node
        if name in ("boot-set", "agent"):
            boots = self.record.boots
            return boots.runs if name == "boot-set" else boots.agent_runs
        if name == "serial" or name.startswith(PLACE):
            said = _whereabouts(node.parts.get("machines"), name)
            if said or name != "serial":
                return said
            return next(map(str, self._values("system-serial")), "")
        return str(getattr(node, "state" if name == "wanted" else name.removeprefix("trait:")))

    def several(self, name: str) -> Collection[str]:
        """The values of one of SEVERAL, or of a text that features add."""
        record = self.record
        if name in self._more:
            return [str(value) for value in self._values(name)]
        if name == "images":
            running = record.running if record.value("run") == "SYNC" else ()
            return {image.name for image in (*record.wanted, *running)}
        if name == "stopped":
            return stops(record)
        return record.node.groups if name == "group" else record.node.macs

    def amounts(self, name: str) -> Collection[float]:
        """The numbers of a name that is an amount."""
        return [value for value in self._values(name) if not isinstance(value, str)]

    def _values(self, name: str) -> Sequence[str | int]:
        values = self._more.get(name)
        return () if values is None else values(self.record)

    def seconds(self, name: str) -> float | None:
        """One of TIMES."""
        record = self.record
        if name == "unconverged":
            return self._unmet.seconds(record)
        if name == "seen":
            return None if record.last_seen is None else max(0.0, self._now - record.last_seen)
        return max(0.0, self._now - record.changed_at)


def _whereabouts(part: object, name: str) -> str:
    """The serial number, or a word of the place, that the inventory says."""
    if not isinstance(part, Whereabouts):
        return ""
    return (
        (part.serial or "")
        if name == "serial"
        else str(getattr(part.place, name.removeprefix(PLACE), ""))
        if part.place
        else ""
    )
