"""What keeps nodes from being as they are wanted, by cause: many nodes often have one.

A cause is what is the same for all of its nodes; names, addresses and seconds in what was said are
left out for that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping
from typing import NamedTuple

import msgspec

from imageapi.spec.state import given_up
from layercake.features.guard.outage import Outage
from layercake.features.nodes.views import Status, status_of, wish_of
from layercake.fleet.guard_state import Verdict
from layercake.fleet.store import Event, Record
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
ALARM_S = 3600.0
"""For how long something that was told once is shown."""
_GRAVE = frozenset({str(Severity.WARNING), str(Severity.ERROR)})
_ADDRESS = re.compile(
    r"\b\d{1,3}(\.\d{1,3}){3}(:\d+)?\b|\[[0-9a-f:]+\](:\d+)?"
    r"|\b(?=[0-9a-f]+:[0-9a-f]*:)[0-9a-f:]{4,39}\b"
)
_COUNT = re.compile(r"\b\d+(\.\d+)?(?= ?(s|ms|seconds|attempts?|times)\b)")


class What(NamedTuple):
    """What nodes of one cause have in common: their status, what is wrong, what to do next, and the
    page that has more. In `next`, NODES is for all of them, and NODE for one of them."""

    status: str
    text: str
    next: str
    page: str


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """A cause and its nodes. `longest_s` is for how long the first of them is not as wanted;
    `common` are the groups and networks that all of them are in, and not all others; `example` is
    what is said of its first node, in full."""

    status: str
    text: str
    next: str
    page: str
    nodes: list[str]
    longest_s: float
    common: list[str]
    example: str


class Beside(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong beside that nodes are not as wanted. Without nodes it is the head's own.
    `age_s` is for how long it was not told again, 0 for what is so now; `page` may be ""."""

    text: str
    next: str
    page: str
    nodes: list[str]
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
            next=f"layercake events --security --kind {event.kind}",
            nodes=sorted(names[event.kind]),
            page=kinds[event.kind].page if event.kind in kinds else "",
            age_s=round(max(0.0, now - event.at), 1),
        )
        for event in sorted(last.values(), key=lambda one: -one.at)
    ]


def of_consoles(logs: str, lost: Iterable[tuple[Record, str]]) -> list[Beside]:
    """Of consoles: why what they say is not written, "" if it is, and those that cannot be had,
    with why; that of most first."""
    found: dict[str, list[str]] = {}
    for record, why in lost:
        found.setdefault(plain(why, record), []).append(record.name)
    besides = (
        [
            Beside(
                text=f"what consoles say is not written: {logs}",
                next="free some space on the head's disk",
                page=CONSOLES,
                nodes=[],
            )
        ]
        if logs
        else []
    )
    return besides + [
        Beside(
            text=f"the console cannot be had: {text}",
            next="layercake console NODE --take",
            page=CONSOLES,
            nodes=sorted(names),
        )
        for text, names in sorted(found.items(), key=lambda item: -len(item[1]))
    ]


def plain(text: str, record: Record) -> str:
    """What was said of a node without what is its own."""
    return _COUNT.sub(
        "N",
        _ADDRESS.sub(
            "ADDRESS", text.replace(record.name, "NODE") if len(record.name) > 1 else text
        ),
    )


def in_outages(outages: Iterable[Outage]) -> dict[str, str]:
    """{the id of a node that fell silent in an outage: where that is}; the smallest place that it
    is in."""
    ordered = sorted(outages, key=lambda outage: (outage.domain != "", -outage.members))
    return {key: outage.where for outage in ordered for key in outage.silent}


def what_of(
    record: Record,
    now: float,
    waits: Verdict | None,
    stopped: str,
    step: str,
    *,
    outage: str = "",
    brief: bool = False,
) -> What | None:
    """What keeps a node from being as wanted; None for one that is. `waits` is why the guard holds
    its next step, `stopped` why it is left alone by a person's word, `outage` where many fell
    silent with it, and `step` what was seen last of its boot, in words. `brief`: for viewers, who
    are not shown what a BMC or a container said."""
    status, text = status_of(record, now, waits, brief=brief)
    if status in (Status.CONVERGED, Status.MAINTENANCE):
        if not record.unhealthy or brief:
            return None
        return What("unwell", plain(record.unhealthy, record), "layercake node logs NODE", ROLLS)
    return (
        _left_alone(record, status, stopped, outage, brief=brief)
        or _needs_someone(record, status, text)
        or _under_way(record, status, step)
        or _no_next_step(record, status, text)
    )


def _left_alone(
    record: Record, status: Status, stopped: str, outage: str, *, brief: bool
) -> What | None:
    """Why nothing is done to the node at all: by a person's word, or in an outage."""
    if record.held is not None:
        why = "it is being released" if brief else plain(record.held.why, record)
        return What(status.value, why, "layercake node release --show NODES", RELEASE)
    if stopped:
        why = "a person has said that nothing is done to it" if brief else stopped
        return What("stopped", why, _end_of_stop(record), DARK)
    if outage:
        return What(
            status.value,
            f"an outage: nodes of {outage} fell silent together, and nothing is done to them until "
            "they are back",
            "what they share: power, switch, uplink, relay; layercake outage list",
            DARK,
        )
    return None


def _end_of_stop(record: Record) -> str:
    """What ends a person's word that nothing is done to a node. One that has none of its own is on
    a site that is frozen."""
    if record.care.freeze is not None:
        return "layercake thaw NODES"
    return "layercake node maintenance end NODES" if record.care.maintenance else "layercake thaw"


def _needs_someone(record: Record, status: Status, text: str) -> What | None:
    """What a person has to do or to decide, or the guard."""
    name = status.value
    if status is Status.QUARANTINED:
        return What(
            name, plain(text, record), "mend it, then layercake node clear NODES", _page(record)
        )
    if status is Status.HELD:
        return What(
            name, plain(text, record), "layercake outage list, layercake node explain NODE", DARK
        )
    if status is Status.ASKING:
        return What(name, plain(wish_of(record), record), "do what is asked", BOOT)
    disk = record.value("disk")
    if disk in ("FOREIGN", "ERROR"):
        return What(name, f"its disks: {disk}", "layercake machine disks NODE", DISKS)
    return None


def _under_way(record: Record, status: Status, step: str) -> What | None:
    """The mutation under way; of a boot, how far that has come."""
    name = status.value
    active = record.machine.active
    if active is None:
        return None
    if record.value("boot") != "WAIT":
        return What(name, f"{active.mutation} is under way", "layercake node explain NODE", BOOT)
    if not step:
        return What(
            name,
            "it is waited for: nothing was heard of its firmware since it was switched on",
            "cable, VLAN, relay, boot order of the firmware, the MAC address in the inventory",
            BOOT,
        )
    return What(
        name,
        f"it is waited for; what was seen last: {step}",
        "its console, and the table of steps on that page",
        BOOT,
    )


def _no_next_step(record: Record, status: Status, text: str) -> What:
    """Nothing is under way: there is no chain, or what else the status says."""
    if status is not Status.BLOCKED:
        why = plain(text, record) or "it is on its way"
        return What(status.value, why, "layercake node explain NODE", _page(record))
    known = ", ".join(f"{k}={v}" for k, v in record.values().items() if v != UNKNOWN)
    return What(
        status.value,
        f"nothing leads from here to what is wanted: {known}",
        "layercake node explain NODE",
        BOOT,
    )


def _page(record: Record) -> str:
    """Where to read on, by the step that fails."""
    step = (
        record.machine.quarantine.mutation
        if record.machine.quarantine is not None
        else record.machine.asked or ""
    )
    if step.startswith("power"):
        return BMC
    if step.startswith("image") or any(given_up(c["last_error"]) for c in record.containers):
        return ROLLS
    return DISKS if step.startswith("disk") else BOOT


class Gathered:
    """Nodes by their causes, one after the other."""

    def __init__(self) -> None:
        self._found: dict[What, list[tuple[Record, float]]] = {}
        self.well = 0
        self.stopped: list[
            str
        ] = []  # those that are as wanted, and that a person keeps the head from
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
            self._found.setdefault(what, []).append((record, unmet_s or 0.0))

    def causes(self, example: Callable[[Record], str]) -> list[Cause]:
        """Those that most nodes have come first."""
        found = [self._cause(what, its, example) for what, its in self._found.items()]
        return sorted(found, key=lambda one: (-len(one.nodes), one.text))

    def _cause(
        self, what: What, its: list[tuple[Record, float]], example: Callable[[Record], str]
    ) -> Cause:
        shared = (
            set(_facets(its[0][0])).intersection(*(_facets(record) for record, _ in its[1:]))
            if len(its) > 1
            else set()
        )
        return Cause(
            **what._asdict(),
            nodes=sorted(record.name for record, _ in its),
            longest_s=round(max(s for _, s in its), 1),
            common=sorted(facet for facet in shared if self._facets[facet] < self._all),
            example=example(min((record for record, _ in its), key=lambda record: record.name)),
        )


def _facets(record: Record) -> Iterable[str]:
    node = record.node
    return (
        *(f"group {group}" for group in node.groups),
        *((f"network {node.network}",) if node.network else ()),
        *((f"profile {node.profile}",) if node.profile else ()),
    )
