"""What keeps nodes from being as they are wanted, by cause: many nodes often have one.

A cause is what is the same for all of its nodes; names, addresses, numbers and hints in what was
said are left out for that. What is shown is what was said of its first node.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from imageapi.spec.state import given_up
from layercake.base.text import grouped
from layercake.features.guard.outage import Whole
from layercake.features.nodes.views import AS_WANTED, Status, status_of, wish_of
from layercake.fleet.guard_state import Verdict, Why
from layercake.fleet.store import Event, Record
from layercake.inventory.ranges import fold
from layercake.kraken.events import EventKind, Severity
from layercake.kraken.variables import UNKNOWN

# Pages of the docs' how-tos.
BMC = "bmc-troubles"
BOOT = "nodes-do-not-come-up"
DARK = "half-the-rack-is-dark"
DISKS = "disks"
ROLLS = "roll-with-care"
RELEASE = "release-a-node"
CONSOLES = "consoles"
HEADS = "second-head"
ALARM_S = 3600.0
"""For how long something that was told once is shown."""
_GRAVE = frozenset({str(Severity.WARNING), str(Severity.ERROR)})
_ADDRESS = re.compile(
    r"\b\d{1,3}(\.\d{1,3}){3}(:\d+)?\b|\[[0-9a-f:]+\](:\d+)?"
    r"|\b(?=[0-9a-f]+:[0-9a-f]*:)[0-9a-f:]{4,39}\b"
)
_QUANTITY = re.compile(
    r"(?<![\w:@/.#-])(?<!HTTP )(?<!code )(?<!status )(?<!error )(?<!register )(?<!port )"
    r"\d+(\.\d+)?(?![\w:@/]|\.\d)"
)
"""A number that says how much or how often, and not what."""
_OWN = "..."
_HINT = re.compile(r" ?\((?:hint|next): [^()]*(?:\([^()]*\)[^()]*)*\)")


class Rank(enum.Enum):
    """What a cause asks of people."""

    PERSON = "person"
    """Nothing goes on without one."""
    WORKING = "working"
    """The head is at it."""
    WAITING = "waiting"
    """It waits, as it is meant to: for its turn, or for the person who has said so."""


_ORDER = tuple(Rank)
_WAITS = {
    Why.FROZEN: Rank.WAITING,
    Why.MAINTENANCE: Rank.WAITING,
    Why.ASKING: Rank.WORKING,
    Why.ALIVE: Rank.WORKING,
    Why.QUEUE: Rank.WAITING,
    Why.UNWRITTEN: Rank.WORKING,
    Why.NOT_LEADING: Rank.WORKING,
}
"""What those ask of people whose next step the guard holds; the others need one."""


class What(NamedTuple):
    """What nodes of one cause have in common: their status, what it asks of people, what is wrong,
    what to do next, the command for that, and the page that has more; of an outage the domains in
    it. In a command {nodes} stands for the nodes, {node} for the first of them."""

    status: str
    rank: Rank
    text: str
    next: str
    command: str
    page: str
    domains: str = ""


class RollOfNodes(msgspec.Struct, frozen=True):
    """A roll that is under way, and which of the nodes it has, as a range."""

    id: int
    image: str
    range: str


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """A cause and its nodes, as a list and as a range. `needs` is what it asks of people: "person",
    "working" (the head is at it) or "waiting" (as it is meant to). `text` is what is wrong, in the
    words of its first node, `next` what to do, `command` how, "" if there is no command for it.
    `domains` are those in an outage, as a range. `longest_s` is for how long the first of them is
    not as wanted; `common` are the groups and networks that all of them are in, and not all others;
    `example` is what is said of its first node, in full. `rolls` have some of them."""

    status: str
    needs: str
    text: str
    next: str
    command: str
    page: str
    nodes: list[str]
    range: str
    domains: str
    longest_s: float
    common: list[str]
    example: str
    rolls: list[RollOfNodes] = []


class Beside(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong beside that nodes are not as wanted. Without nodes it is the head's own.
    `next` is what to do, `command` how, "" if there is no command for it. `age_s` is for how long
    it was not told again, 0 for what is so now; `page` may be ""."""

    text: str
    next: str
    command: str
    page: str
    nodes: list[str]
    range: str
    age_s: float = 0.0


def of_alarms(
    alarms: Iterable[Event],
    wanted: Container[str] | None,
    now: float,
    kinds: Mapping[str, EventKind],
) -> list[Beside]:
    """Of warnings of security that are not older than `ALARM_S`, the oldest first in `alarms`: the
    last of each kind, with the nodes that any was about. `wanted` are names of nodes, None for all
    and the head itself; `now` is seconds since the epoch."""
    last: dict[str, Event] = {}
    names: dict[str, set[str]] = {}
    for event in alarms:
        if (
            event.at > now - ALARM_S
            and event.severity in _GRAVE
            and (wanted is None or event.node in wanted)
        ):
            last[event.kind] = event
            names.setdefault(event.kind, set()).update({event.node} - {""})
    return [
        Beside(
            text=event.text,
            next="see what was told of it",
            command=f"layercake events --security --kind {event.kind}",
            nodes=sorted(names[event.kind]),
            range=fold(names[event.kind]),
            page=kinds[event.kind].page if event.kind in kinds else "",
            age_s=round(max(0.0, now - event.at), 1),
        )
        for event in sorted(last.values(), key=lambda one: -one.at)
    ]


def of_consoles(logs: str, lost: Iterable[tuple[Record, str]]) -> list[Beside]:
    """Of consoles: why what they say is not written, "" if it is, and those that cannot be had,
    with why; that of most first."""
    found: dict[str, dict[str, str]] = {}
    for record, why in lost:
        found.setdefault(alike(why, record), {})[record.name] = why
    besides = (
        [
            Beside(
                text=f"what consoles say is not written: {logs}",
                next="free some space on the head's disk",
                command="",
                page=CONSOLES,
                nodes=[],
                range="",
            )
        ]
        if logs
        else []
    )
    return besides + [
        Beside(
            text=f"the console cannot be had: {_in_words(its)}",
            next="take it from who has it",
            command=f"layercake console {min(its)} --take",
            page=CONSOLES,
            nodes=sorted(its),
            range=fold(its),
        )
        for its in sorted(found.values(), key=lambda its: -len(its))
    ]


def alike(text: str, record: Record) -> str:
    """What was said of a node without what is its own, which is left out as "...": equal for nodes
    that have one cause."""
    named = text.replace(record.name, _OWN) if len(record.name) > 1 else text
    return _QUANTITY.sub(_OWN, _ADDRESS.sub(_OWN, _HINT.sub("", named)))


def _in_words(texts: Mapping[str, str]) -> str:
    """What was said of nodes with one cause, in the words of the first; `texts` are by name."""
    first = min(texts)
    text = _HINT.sub("", texts[first])
    if len(set(texts.values())) == 1:
        return text
    return f"{text} ({first}; alike of the others)"


def what_of(
    record: Record,
    now: float,
    waits: Verdict | None,
    stopped: str,
    step: str,
    *,
    outage: Whole | None = None,
    frozen: bool = False,
    brief: bool = False,
) -> What | None:
    """What keeps a node from being as wanted; None for one that is. Its status is that of
    `status_of`. `waits` is why the guard holds its next step, `stopped` why it is left alone by a
    person's word, `outage` the one in which it fell silent, and `step` what was seen last of its
    boot, in words. `frozen`: the whole site is.
    `brief`: for viewers, who are not shown what a BMC or a container said."""
    status, text = status_of(record, now, waits, brief=brief)
    if status is Status.UNWELL:
        return What(
            status.value,
            Rank.PERSON,
            text or "a container of it is not well",
            "see what it says",
            "layercake node logs {node}",
            ROLLS,
        )
    if status in AS_WANTED:
        return None
    if status is Status.SILENT:
        return What(
            status.value,
            Rank.PERSON,
            text,
            "look at what they share: power, switch, uplink, relay",
            "layercake outage list",
            DARK,
            fold(outage.domains) if outage is not None else "",
        )
    return (
        _left_alone(record, status, stopped, frozen=frozen, brief=brief)
        or _needs_someone(record, status, text)
        or _held(status, text, waits)
        or _under_way(record, status, step)
        or _no_next_step(record, status, text)
    )


def _left_alone(
    record: Record, status: Status, stopped: str, *, frozen: bool, brief: bool
) -> What | None:
    """Why nothing is done to the node at all, by a person's word."""
    if record.held is not None:
        stuck = record.held.stuck
        return What(
            status.value,
            Rank.PERSON if stuck else Rank.WAITING,
            "it is being released" if brief else record.held.why,
            "see what it waits for" if stuck else "see how far it is",
            "layercake node release --show {nodes}",
            RELEASE,
        )
    if stopped and status is not Status.WORKING:
        return What(
            status.value,
            Rank.WAITING,
            "a person has said that nothing is done to it" if brief else stopped,
            "when that is over, end it",
            "layercake thaw" if frozen else _end_of_stop(record),
            DARK,
        )
    return None


def _end_of_stop(record: Record) -> str:
    """What ends a person's word that nothing is done to a node, on a site that is not frozen: there
    no node can be thawed alone. One that has none of its own was thawed a moment ago."""
    if record.care.freeze is not None:
        return "layercake thaw {nodes}"
    if record.care.maintenance is not None:
        return "layercake node maintenance end {nodes}"
    return "layercake thaw"


def _needs_someone(record: Record, status: Status, text: str) -> What | None:
    """What a person has to do or to decide."""
    name = status.value
    if status is Status.QUARANTINED:
        return What(
            name,
            Rank.PERSON,
            text,
            "mend it, and have it tried again",
            "layercake node clear {nodes}",
            _page(record),
        )
    if status is Status.ASKING:
        return What(name, Rank.PERSON, wish_of(record), "do what is asked", "", BOOT)
    disk = record.value("disk")
    if disk in ("FOREIGN", "ERROR"):
        return What(
            name,
            Rank.PERSON,
            f"its disks: {disk}",
            "see what is on them",
            "layercake machine disks {node}",
            DISKS,
        )
    return None


def _held(status: Status, text: str, waits: Verdict | None) -> What | None:
    """What the guard, or the head itself, waits for."""
    if status is not Status.HELD:
        return None
    why = waits.why if waits is not None else Why.UNWRITTEN
    rank = _WAITS.get(why, Rank.PERSON)
    if why is Why.QUEUE:  # for whom it waits differs from one to the next
        return What(
            status.value,
            rank,
            f"{text.partition(' waits')[0]} waits for its turn: so many nodes boot at once",
            "wait; how many do is a setting",
            "",
            DARK,
        )
    if why is Why.NOT_LEADING:
        return What(status.value, rank, text, "see how the heads are", "layercake heads", HEADS)
    return What(
        status.value, rank, text, "see what speaks for it", "layercake node explain {node}", DARK
    )


def _under_way(record: Record, status: Status, step: str) -> What | None:
    """The mutation under way; of a boot, how far that has come."""
    name = status.value
    active = record.machine.active
    if active is None:
        return None
    explain = "layercake node explain {node}"
    if record.value("boot") != "WAIT":
        return What(
            name, Rank.WORKING, f"{active.mutation} is under way", "see more of it", explain, BOOT
        )
    if not step:
        return What(
            name,
            Rank.WORKING,
            "it is waited for: nothing was heard of its firmware since it was switched on",
            "if it stays so: cable, VLAN, relay, boot order of the firmware, the MAC address in "
            "the inventory",
            explain,
            BOOT,
        )
    return What(
        name,
        Rank.WORKING,
        f"it is waited for; what was seen last: {step}",
        "if it stays so: its console, and the table of steps on that page",
        "layercake console {node}",
        BOOT,
    )


def _no_next_step(record: Record, status: Status, text: str) -> What:
    """Nothing is under way: there is no chain, or what else the status says."""
    explain = "layercake node explain {node}"
    if status is not Status.BLOCKED:
        why = text or "it is on its way"
        return What(status.value, Rank.WORKING, why, "see more of it", explain, _page(record))
    known = ", ".join(f"{k}={v}" for k, v in record.values().items() if v != UNKNOWN)
    return What(
        status.value,
        Rank.PERSON,
        f"nothing leads from here to what is wanted: {known}",
        "see what is missing",
        explain,
        BOOT,
    )


def _page(record: Record) -> str:
    """Where to read on, by the step that fails."""
    step = (
        record.machine.quarantine.mutation
        if record.machine.quarantine is not None
        else record.machine.asked or next(iter(record.machine.attempts), "")
    )
    if step.startswith("power"):
        return BMC
    if step.startswith("image") or any(given_up(c["last_error"]) for c in record.containers):
        return ROLLS
    return DISKS if step.startswith("disk") else BOOT


class Gathered:
    """Nodes by their causes, one after the other."""

    def __init__(self) -> None:
        self._found: dict[What, list[tuple[Record, float, str]]] = {}
        self.well = 0
        self.stopped: list[str] = []
        """Those that are as wanted, and that a person keeps the head from."""
        self._facets: dict[str, int] = {}
        self._all = 0

    def add(
        self, record: Record, what: What | None, unmet_s: float | None, *, stopped: bool = False
    ) -> None:
        """A node with what keeps it, None for one that is as wanted, for how long it is not, and
        whether it is left alone."""
        self._all += 1
        for facet in _facets(record):
            self._facets[facet] = self._facets.get(facet, 0) + 1
        if what is None:
            self.well += 1
            if stopped:
                self.stopped.append(record.name)
        else:
            key = what._replace(text=alike(what.text, record))
            self._found.setdefault(key, []).append((record, unmet_s or 0.0, what.text))

    def causes(
        self,
        example: Callable[[Record], str],
        roll_of: Callable[[Record], Mapping[str, Any] | None],
    ) -> list[Cause]:
        """Those that need a person come first, and of those the ones that most nodes have."""
        found = [
            msgspec.structs.replace(
                self._cause(what, its, example), rolls=_rolls((one[0] for one in its), roll_of)
            )
            for what, its in self._found.items()
        ]
        place = {rank.value: number for number, rank in enumerate(_ORDER)}
        return sorted(found, key=lambda one: (place[one.needs], -len(one.nodes), one.text))

    def _cause(
        self, what: What, its: list[tuple[Record, float, str]], example: Callable[[Record], str]
    ) -> Cause:
        shared = (
            set(_facets(its[0][0])).intersection(*(_facets(record) for record, *_ in its[1:]))
            if len(its) > 1
            else set()
        )
        names = sorted(record.name for record, *_ in its)
        nodes = fold(names)
        return Cause(
            status=what.status,
            needs=what.rank.value,
            text=_in_words({record.name: text for record, _, text in its}),
            next=what.next,
            command=what.command.format(nodes=nodes, node=names[0]),
            page=what.page,
            nodes=names,
            range=nodes,
            domains=what.domains,
            longest_s=round(max(seconds for _, seconds, _ in its), 1),
            common=sorted(facet for facet in shared if self._facets[facet] < self._all),
            example=example(min((record for record, *_ in its), key=lambda record: record.name)),
        )


def _rolls(
    records: Iterable[Record], roll_of: Callable[[Record], Mapping[str, Any] | None]
) -> list[RollOfNodes]:
    """The rolls that have some of the nodes."""
    found = grouped(
        ((roll["id"], roll["image"]), record.name)
        for record in records
        if (roll := roll_of(record)) is not None
    )
    return [RollOfNodes(*roll, fold(names)) for roll, names in sorted(found.items())]


def _facets(record: Record) -> Iterable[str]:
    node = record.node
    return (
        *(f"group {group}" for group in node.groups),
        *((f"network {node.network}",) if node.network else ()),
        *((f"profile {node.profile}",) if node.profile else ()),
    )
