"""The store: what is wanted of each node, what was discovered, revisions, and the last events of
each node.

All of it is in memory; `database` writes what changed. Everything runs on the event loop, so there
are no locks.
"""

from __future__ import annotations

import dataclasses
import heapq
import operator
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import msgspec

from layercake.base.clock import Clock
from layercake.base.tally import EventBudget, Tally
from layercake.base.text import clean, count_of
from layercake.fleet import events
from layercake.fleet.boots import Boots
from layercake.fleet.guard_state import GuardState
from layercake.inventory.ranges import expand
from layercake.inventory.schema import Node, groups_of
from layercake.kraken.converge import NodeState
from layercake.kraken.errors import NotFound
from layercake.kraken.events import EventKind, Severity
from layercake.kraken.facts import Remembered
from layercake.kraken.planner import Planner
from layercake.kraken.variables import Layout
from layercake.kraken.wire import first_revision

HISTORY_ALL = 5000
"""How many of the newest events are in memory; what a node's history is beyond them the database
knows (200 kept events of each node were 102 kB)."""
ERRORS_KEPT = 3
ALARMS = 5000
"""How many events of security there is room for, apart from all others."""
UNWRITTEN = 20_000
"""How many events wait for a disk that cannot be written; the oldest are lost for it then."""
_OF_IMAGES = ("image.", "container.")
"""What the kinds of a node's own events about its images begin with."""
SEVERITIES = tuple(str(s) for s in Severity)


class Event(msgspec.Struct, frozen=True):
    """Something that happened. `at` is seconds since the epoch; `node` is a name, "" for the head
    itself. `security`: it is one of those that no others can push out of the history."""

    id: int
    at: float
    node: str
    kind: str
    severity: str
    text: str
    data: dict[str, Any] = {}
    security: bool = False


@dataclass(frozen=True, slots=True)
class Session:
    """The bond with a joined node. The key never leaves the head but in the answer to the join.
    `layout` is how the node packs its variables, for as long as it is up: that of its join. A head
    that is started with other modules has another. None: the same. `mutual`: the node shows a
    certificate of this session with each request, and the head one to the node. `quoted`: the
    node's TPM has shown that the machine is the node, and that it has booted what was recorded."""

    number: int
    key: bytes = field(repr=False)
    boot_id: str
    joined: float
    layout: Layout | None = field(compare=False, repr=False, default=None)
    mutual: bool = False
    quoted: bool = False


class Trust(msgspec.Struct, frozen=True):
    """The certificates of a session: the number of the one that the node shall have and when that
    was said (by the head's clock), and what the node last told: the one that it has, and the mark
    of the authorities that it trusts."""

    certificate: int = 1
    at: float = 0.0
    has: int = 0
    authorities: str = ""


class NetworkCard(msgspec.Struct, frozen=True):
    """A network card, as the node says: its interface and MAC address, or for one without a driver
    `id` (vendor:device) and the modules for it that are `absent` in its boot set."""

    slot: str = ""
    name: str = ""
    mac: str = ""
    driver: str = ""
    id: str = ""
    absent: tuple[str, ...] = ()


class NodeClock(msgspec.Struct, frozen=True):
    """A node's clock, as the node says: the time server that keeps it, and how far off it was found
    last, in milliseconds; positive is ahead."""

    server: str
    off_ms: float


class Leg(msgspec.Struct, frozen=True):
    """A leg of a bond: up, no carrier, no partner (802.3ad), apart (it could not be made a leg) or
    missing."""

    name: str
    state: str


class Interface(msgspec.Struct, frozen=True):
    """An interface that the inventory names, as the node says it is: `kind` is card, bond or vlan,
    `state` up, down, no carrier or missing. Viewers are not shown its `trouble`, "" for none."""

    name: str
    kind: str = ""
    state: str = ""
    mac: str = ""
    mtu: int = 0
    addresses: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    legs: tuple[Leg, ...] = ()
    trouble: str = ""


class BootTimes(msgspec.Struct, frozen=True):
    """How long the last boots of a node took, in seconds, the newest last: from power-on to the
    join, and how much of that until its firmware was first seen."""

    whole: tuple[float, ...] = ()
    firmware: tuple[float, ...] = ()


class WantedImage(msgspec.Struct, frozen=True):
    """An image that a node shall run."""

    name: str
    digest: str
    size: int
    container: dict[str, Any]


class Hold(msgspec.Struct, frozen=True):
    """A node is being released: why it is held, for people, and what is wanted of it meanwhile, up
    (in minOS, without images) or off. `images` are those that it shall run again after that;
    `stuck`: that does not come by itself, a person has to do something."""

    why: str
    state: str = "up"
    images: tuple[WantedImage, ...] = ()
    stuck: bool = False


# Of nodes of which nothing is known: 300 bytes less each.
_CARE = GuardState()
_BOOTS = Boots()
_TRUST = Trust()
_TIMES = BootTimes()


@dataclass(slots=True)
class Record:
    """One node: its inventory entry, its place in the state graph, and its bond with its agent.

    `wanted` and `stage` move `cfg_revision`; `acked` is the newest revision that the node said it
    acts on, `running` the images it ran when it was last ACTIVE at an acknowledged revision.
    `last_seen` is the time of its last valid datagram, `address` where that came from. `stage` is
    what it shall have ready beside what it runs, `staged` the digests of it that it has said are,
    `stage_error` why it could not. `unhealthy` is what its newest health check said, "" if it is
    well. `containers` is how its containers are (imageapi.node.imageset.plan.view), `api_port`
    where its own API listens, 0 if it has none. `care` is what the guard minds of it, `trust` its
    certificates, `boots` which kernel, minOS and agent it has and shall have, `cards` its network
    cards, `interfaces` those that the inventory names, and `clock` its clock. `applied` names the
    images that an inventory gave it: others than the node's are those of `image roll` since.
    `errors` are the newest that it told of its images. `held`: no image is started on it
    (layercake.features.releases), which is not written. `remembered`: how it was before this head
    began, where it was not seen since.
    """

    row: int
    node: Node
    planner: Planner
    machine: NodeState
    wanted: tuple[WantedImage, ...] = ()
    applied: tuple[str, ...] = ()
    cfg_revision: int = 1
    dsc_revision: int = 1
    acked: int = 0
    running: tuple[WantedImage, ...] = ()
    stage: tuple[WantedImage, ...] = ()
    staged: frozenset[str] = frozenset()
    stage_error: str = ""
    unhealthy: str = ""
    containers: tuple[dict[str, Any], ...] = ()
    api_port: int = 0
    care: GuardState = _CARE
    boots: Boots = _BOOTS
    session: Session | None = None
    trust: Trust = _TRUST
    cards: tuple[NetworkCard, ...] = ()
    clock: NodeClock | None = None
    interfaces: tuple[Interface, ...] = ()
    boot_times: BootTimes = _TIMES
    last_seen: float | None = None
    address: tuple[str, int] | None = None
    changed_at: float = 0.0
    errors: tuple[Event, ...] = ()
    held: Hold | None = None
    remembered: Remembered | None = None

    def copy(self) -> Record:
        """Another record of the same facts. (dataclasses.replace takes four times as long.)"""
        return Record(*_FACTS(self))

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.name

    def value(self, variable: str) -> str:
        """The discovered value of a variable."""
        return self.planner.layout.get(self.machine.state, variable)

    def values(self) -> dict[str, str]:
        """All discovered values."""
        return self.planner.layout.unpack(self.machine.state)

    @property
    def claimed(self) -> tuple[WantedImage, ...]:
        """The images that it shall run: now, or when it is held no more."""
        return self.wanted if self.held is None else self.held.images

    @property
    def meant(self) -> str:
        """What is wanted of it now, up or off, also by an order or a release."""
        state = self.node.state if self.held is None else self.held.state
        return state if self.care.order is None else "off"

    @property
    def goal_values(self) -> dict[str, str]:
        """The wanted values; variables that do not matter are left out."""
        return self.planner.layout.wanted(self.machine.goal)


def _keep_error(record: Record, event: Event) -> None:
    if event.severity == Severity.ERROR and event.kind.startswith(_OF_IMAGES):
        record.errors = (*record.errors, event)[-ERRORS_KEPT:]


_FACTS = operator.attrgetter(*(field.name for field in dataclasses.fields(Record)))


class Store:
    """The records by node id and by name, and the events; tells listeners, keeps what to write."""

    def __init__(self, clock: Clock, wall: Clock | None = None) -> None:
        self._clock = clock
        self.wall = wall or clock
        """What people's clocks say, for what they read: it may step, so it decides nothing."""
        self._by_id: dict[str, Record] = {}
        self._by_name: dict[str, Record] = {}
        self._in_order: list[Record] = []
        self._names: tuple[Set[str], Mapping[str, Set[str]]] | None = None
        self.revision = 1
        self.epoch = secrets.randbits(63)
        self.events: deque[Event] = deque(maxlen=HISTORY_ALL)
        self.alarms: deque[Event] = deque(maxlen=ALARMS)
        self._tally = Tally()
        self.budget = EventBudget(clock)
        self.dirty: set[str] = set()
        self.new_events: deque[Event] = deque()
        self.writing: list[Event] = []  # that are on their way to the disk
        self.lost_events = 0  # that could not wait any longer
        self.documents: dict[str, Callable[[], bytes]] = {}
        """To be written, by key; b"" deletes one."""
        self._next_event = 1
        self._next_row = 1
        self._listeners: list[Callable[[Event], None]] = []
        self._watchers: list[Callable[[str], None]] = []
        self._adopted: list[Callable[[Record], None]] = []

    def __iter__(self) -> Iterator[Record]:
        return iter(self._by_id.values())

    @property
    def newest_event(self) -> int:
        """The id of the newest event; what comes later has a higher one, whatever clocks say."""
        return self._next_event - 1

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def names(self) -> list[str]:
        """All node names, sorted; a list of its own for whoever asks."""
        return [record.node.name for record in self.in_order]

    @property
    def in_order(self) -> Sequence[Record]:
        """All records, sorted by name."""
        if len(self._in_order) != len(self._by_name):
            self._in_order = [self._by_name[name] for name in sorted(self._by_name)]
        return self._in_order

    def find(self, node_id: str) -> Record | None:
        """The record of a node id, if there is one."""
        return self._by_id.get(node_id)

    def lookup(self, name: str) -> Record | None:
        """The record of a node's name, if there is one."""
        return self._by_name.get(name)

    def named(self, name: str) -> Record:
        """The record of a node. Raises NotFound if there is none."""
        if (found := self._by_name.get(name)) is None:
            why = f"cannot find node {name!r}: it is not in the inventory"
            raise NotFound(why, hint="see `layercake node list`")
        return found

    def select(self, text: str) -> list[Record]:
        """The records that a node range names. Raises InputError as `ranges.expand`."""
        return [self.named(name) for name in expand(text, *self.names_and_groups())]

    def names_and_groups(self) -> tuple[Set[str], Mapping[str, Set[str]]]:
        """All names, and each group's, for ranges: found out anew after `entry_changed`."""
        if self._names is None:
            nodes = {record.name: record.node for record in self}
            groups = {group: frozenset(names) for group, names in groups_of(nodes).items()}
            self._names = (frozenset(nodes), groups)
        return self._names

    def entry_changed(self) -> None:
        """A node came, went, or is in other groups."""
        self._in_order = []
        self._names = None

    def make(self, node: Node, planner: Planner, machine: NodeState) -> Record:
        """A new record for a node. It is in the store when it was adopted."""
        self._next_row += 1
        since = self._clock()
        number = self._next_row - 1
        return Record(number, node, planner, machine, changed_at=since, applied=node.images)

    def adopt(self, record: Record) -> None:
        """Takes a record in: one that was read from the database, or one that is in it from now
        on."""
        self._by_id[record.node.id] = record
        self._by_name[record.node.name] = record
        self.entry_changed()
        self._next_row = max(self._next_row, record.row + 1)
        for adopted in self._adopted:
            adopted(record)

    def on_adopted(self, adopted: Callable[[Record], None]) -> None:
        """Calls `adopted` with each record that is taken in."""
        self._adopted.append(adopted)

    def rename(self, record: Record, node: Node) -> None:
        """Gives a record an entry by another name."""
        self._by_name[node.name] = self._by_name.pop(record.name)
        record.node = node
        self.entry_changed()

    def remove(self, record: Record) -> None:
        """Forgets a node."""
        self._by_id.pop(record.node.id, None)
        self._by_name.pop(record.node.name, None)
        self.entry_changed()
        self.mark(record)

    def revise(self, record: Record) -> None:
        """What a node is told is new. Revisions of a head are above all that one before it gave."""
        record.cfg_revision = max(record.cfg_revision + 1, first_revision(self.epoch))

    def mark(self, record: Record) -> None:
        """The record changed: it is to be written, and who watches is told."""
        self.dirty.add(record.node.id)
        self.announce(record)

    def announce(self, record: Record) -> None:
        """Who watches is told that the record changed; what is written of it is as it was."""
        for watcher in self._watchers:
            watcher(record.node.id)

    def watch(self, watcher: Callable[[str], None]) -> None:
        """Calls `watcher` with the id of each node that changes or is removed. It is called often,
        and must only take a note."""
        self._watchers.append(watcher)

    def listen(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Calls `listener` with each new event until the returned function is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    @property
    def listening(self) -> int:
        """How many listen."""
        return len(self._listeners)

    def event(
        self,
        record: Record | None,
        kind: EventKind,
        text: str,
        *,
        severity: str | None = None,
        data: Mapping[str, Any] | None = None,
        at: float | None = None,
    ) -> None:
        """Adds an event to a node's history, or to the head's own when record is None. Without a
        severity, or with one that there is not, it has its kind's. One of security that repeats
        itself is counted, and told later; so are those beyond what a node may add (EventBudget)."""
        if kind.security:
            key = (kind, record.node.id if record is not None else "")
            if not self._tally.admit(key, (data or {}).get("address", ""), text, self._clock()):
                return
        elif record is not None and not self.budget.admit(record.node.id, kind.name):
            return
        self._add(record, kind, text, severity, data, at)

    def count(self) -> None:
        """Tells what was counted of events of security, and how many of nodes were left out, when
        it is time."""
        for key, times, different, seconds, last in self._tally.due(self._clock()):
            kind, node = key if isinstance(key, tuple) else (events.REPEATED, "")
            addresses = count_of(different, "address", "addresses")
            text = f"{times} more in {seconds:.0f} s, from {addresses}; the last: {last}"
            data = {"count": times, "addresses": different, "seconds": round(seconds)}
            self._add(self.find(node), kind, text, None, data, None)
        for node, count, kinds in self.budget.due():
            if (record := self.find(node)) is not None:
                text = f"{count_of(count, 'event')} of the node left out, of {kinds}: too many"
                self._add(record, events.NODE_FLOODS, text, None, {"count": count}, None)

    def _add(
        self,
        record: Record | None,
        kind: EventKind,
        text: str,
        severity: str | None,
        data: Mapping[str, Any] | None,
        at: float | None,
    ) -> None:
        level = severity if severity in SEVERITIES else str(kind.severity)
        name = record.name if record is not None else ""
        event = Event(
            self._next_event,
            at or self.wall(),
            name,
            kind.name,
            level,
            clean(text[:2000]),
            dict(data or {}),
            kind.security,
        )
        self._next_event += 1
        if record is not None:
            _keep_error(record, event)
        (self.alarms if kind.security else self.events).append(event)
        self.new_events.append(event)
        self.bound()
        for listener in list(self._listeners):
            listener(event)

    def bound(self) -> None:
        """Keeps what waits to be written within bounds; events of security go last."""
        while len(self.new_events) > UNWRITTEN:
            oldest = next((at for at, one in enumerate(self.new_events) if not one.security), 0)
            del self.new_events[oldest]
            self.lost_events += 1

    def recent(self, name: str) -> list[Event]:
        """The events of a node that are in memory, oldest first."""
        return [
            e for e in heapq.merge(self.events, self.alarms, key=lambda e: e.id) if e.node == name
        ]

    def load_events(self, found: Iterable[Event]) -> None:
        """Takes events in as they were read from the database, oldest first. Numbers go on well
        above them: a head that was killed may have handed out some that it had not written, and who
        asks for what came since must not miss others of the same numbers."""
        for event in found:
            self._next_event = max(self._next_event, event.id + 1 + UNWRITTEN)
            (self.alarms if event.security else self.events).append(event)
            if (record := self._by_name.get(event.node)) is not None:
                _keep_error(record, event)
