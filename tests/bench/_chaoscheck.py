"""What `chaos` holds against the heads: what they told their clients, which commands the BMCs got
from whom, and who might switch power when."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from layercake.base.clock import boottime
from layercake.base.lease import Lease

GRACE_S = 0.5
"""A command was asked for so long before it is noted, at most."""
HARM = ("off", "soft", "cycle", "reset", "on")
SENDS = {"power-on": {"on"}, "power-off": {"off", "soft"}, "power-reset": {"off", "soft"}}
"""Which commands an attempt at a mutation sends to a BMC."""
CHAIN = {*SENDS, "boot-arm", "boot-wait"}
"""The mutations of a power cycle: when one of them fails, the head starts the machine anew."""


@dataclass
class Register:
    """A value that one client changes, one time after the other. `may` is what it may be now, the
    refused are what it must never be."""

    name: str
    may: set[str] = field(default_factory=lambda: {""})
    refused: set[str] = field(default_factory=set)


@dataclass
class Order:
    """A power cycle of a node, acknowledged or perhaps accepted."""

    node: str
    at: float


@dataclass(frozen=True)
class Attempt:
    """An attempt at a mutation of a node that began, or that failed, as the head that made it has
    noted among its events; `at` is in seconds since the epoch."""

    node: str
    mutation: str
    at: float
    failed: bool


class Checker:
    """Counts what must not be. `heads` are their data directories by name; `bmcs` are the nodes by
    their BMC."""

    def __init__(self, heads: Mapping[str, Path], bmcs: Mapping[str, str]) -> None:
        self._heads = dict(heads)
        self._bmcs = bmcs
        self.registers: dict[str, Register] = {}
        self.orders: list[Order] = []
        self.watching = False
        self.counts: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.said: list[str] = []
        self.began = time.time()
        """When this round began, in seconds since the epoch."""
        self._sent: dict[str, dict[str, list[float]]] = {}
        self._carried_out: Counter[tuple[str, str]] = Counter()
        self._refused: set[tuple[str, str]] = set()
        self.released: dict[str, str] = {}
        """Nodes that were to be released in this round, and what was answered."""
        self.boards: set[str] = set()
        """Nodes whose boards were replaced in this round."""
        self._releases: dict[str, set[str]] = defaultdict(set)

    def watch(self, head: str, directory: Path) -> None:
        """A further head is there."""
        self._heads[head] = directory

    def fault(self, kind: str, text: str) -> None:
        """Something that must not be."""
        self.faults[kind] += 1
        self.said.append(f"{kind}: {text}")

    # -- changes

    def register(self, name: str) -> Register:
        """The register of this name."""
        return self.registers.setdefault(name, Register(name))

    def answered(self, name: str, value: str, outcome: str, head: str, began: float) -> None:
        """What became of a change: "acknowledged", "refused", or "unknown"."""
        self.counts[outcome] += 1
        register = self.register(name)
        if outcome == "acknowledged":
            register.may = {value}
            self._alone(head, began)
        elif outcome == "unknown":
            register.may.add(value)
        else:
            register.refused.add(value)

    def _alone(self, head: str, began: float) -> None:
        """No other head had the lease for all the time in which this one accepted a change."""
        for other, path in self._heads.items():
            begins, ends = self._times(path)
            if other != head and began < ends and begins < began and boottime() < ends:
                self.fault("two_at_once", f"{head} accepts a change while {other} has the lease")

    def seen(self, values: Mapping[str, str]) -> None:
        """What the registers are, when no change is under way."""
        for name, register in self.registers.items():
            value = values.get(name, "")
            if value in register.may:
                register.may = {value}
            elif value in register.refused:
                self.fault("refused_done", f"{name} is {value}, which was refused")
                register.may = {value}
            else:
                self.fault("lost", f"{name} is {value!r}, and may be {sorted(register.may)}")
                register.may = {value}

    # -- commands

    def carried_out(self, node: str, command: str) -> None:
        """A node has carried a command out."""
        self._carried_out[node, command] += 1

    def commanded(self, node: str, command: str, outcome: str) -> None:
        """What became of a command that a client has given once."""
        self.counts[f"commands {outcome}"] += 1
        times = self._carried_out[node, command]
        if outcome == "acknowledged" and not times:
            self.fault("lost", f"{node} has not done {command}")
        if outcome == "refused":
            self._refused.add((node, command))

    def _end_commands(self) -> None:
        for one in self._refused:
            if self._carried_out[one]:
                self.fault("refused_done", f"{one[0]} has done {one[1]}, which was refused")
        for (node, command), times in self._carried_out.items():
            if times > 1:
                self.fault("done_twice", f"{node} has done {command} {times} times")
        self._refused.clear()
        self._carried_out.clear()

    # -- releases

    def release(self, node: str, outcome: str) -> None:
        """What became of the order to release a node, given once in this round."""
        self.counts[f"releases {outcome}"] += 1
        self.released[node] = outcome

    def has_released(self, node: str, releases: Sequence[str]) -> None:
        """The releases of a node that there are, by their identifiers, the newest first; a head
        keeps the last ones."""
        new = {*releases} - self._releases[node]
        outcome = self.released[node]
        if self._releases[node].isdisjoint(releases) and self._releases[node]:
            self.fault("lost", f"the releases of {node} of before")
        if not new and outcome == "acknowledged":
            self.fault("lost", f"{node} was not released")
        if new and outcome == "refused":
            self.fault("refused_done", f"{node} was released, which was refused")
        if len(new) > 1:
            self.fault("done_twice", f"{node} was released {len(new)} times")
        self._releases[node] |= new

    # -- power

    def begin_round(self) -> None:
        """Orders and commands are counted anew."""
        self.watching = True
        self.began = time.time()
        self.orders.clear()
        self.released.clear()
        self.boards.clear()
        self._sent.clear()

    def command(self, head: str, what: str, bmc: str) -> None:
        """A head's powerman sends this to a BMC."""
        if what not in HARM or not self.watching:
            return
        node = self._bmcs.get(bmc, bmc)
        now = boottime()
        self.counts["power commands"] += 1
        self._sent.setdefault(node, defaultdict(list))[what].append(time.time())
        begins, ends = self._times(self._heads[head])
        if not begins <= now <= ends + GRACE_S:
            self.fault("two_at_once", f"{head} sends {what} to {node} without a lease")
        for other, path in self._heads.items():
            begins, ends = self._times(path)
            if other != head and begins <= now < ends:
                self.fault("two_at_once", f"{head} sends {what} to {node}; {other} has the lease")

    @staticmethod
    def _times(path: Path) -> tuple[float, float]:
        try:
            return Lease(path).times()
        except (OSError, ValueError):  # it has never run
            return 0.0, 0.0

    def end_round(self, attempts: Iterable[Attempt] = ()) -> None:
        """No order was carried out twice, and nothing else was done. A command is sent again only
        where the attempt that it was part of has failed, and another one has begun since. A node
        that is released runs nothing, and a step of that may be carried out again by another
        head; one that loses its power for a new board is healed."""
        self._end_commands()
        ordered = Counter(order.node for order in self.orders)
        of_node: dict[str, list[Attempt]] = defaultdict(list)
        for attempt in sorted(attempts, key=lambda one: one.at):
            of_node[attempt.node].append(attempt)
        for node, sent in self._sent.items():
            if node in self.boards or self.released.get(node, "refused") != "refused":
                continue
            if not ordered[node]:
                counts = {what: len(times) for what, times in sent.items()}
                self.fault("touched", f"{node}, which nobody asked for: {counts}")
                continue
            for what, times in sent.items():
                again = [_begun_anew(what, *pair, of_node[node]) for pair in pairwise(times)]
                self.counts["commands of a further attempt"] += again.count(True)
                if again.count(False) >= ordered[node]:
                    text = f"{node}: {len(times)} times {what} for {ordered[node]} orders"
                    self.fault("done_twice", f"{text}, {again.count(True)} after a failure")


def _begun_anew(what: str, first: float, second: float, attempts: Iterable[Attempt]) -> bool:
    """Whether an attempt of the node's failed between two moments, and one that sends this command
    has begun after it."""
    failed = False
    for one in attempts:
        if not first <= one.at <= second:
            continue
        if one.failed:
            failed = failed or one.mutation in CHAIN
        elif failed and what in SENDS.get(one.mutation, ()):
            return True
    return False
