"""Boards that were replaced: a machine that no inventory knows is where a node is to be, or has its
serial number. A person is told which; with `replace: auto`, and for a node that had no card yet, it
is taken for the node, unless something speaks against that.

A machine's own word is not enough: its serial number is on its lid, and that the node's BMC says
the same number shows that the number is right, and not who has said it. Somebody else has to say so
too: the switch or relay that its DHCP came by, or a person. A port of a switch is what the machine
says that it heard by LLDP; that is enough only where the inventory says `replace: auto`.

Of what claims a place at DHCP alone nothing else is known yet, so it is kept here for a while, and
is bounded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from layercake.features.machines import events
from layercake.features.machines.module import Whereabouts
from layercake.features.machines.table import Machine, same_hardware, wanted_places
from layercake.fleet.store import Record, Store
from layercake.kraken.errors import LayercakeError
from layercake.moduleapi.strangers import HEARD, option82

log = logging.getLogger("layercake.machines")
QUIET_S = 180.0
"""A node whose own card was heard so short a time ago is still there: what claims its place is
another machine."""
CLAIMS_S = 900.0
"""Who claimed a place so short a time ago still does."""
_MOST = 8
"""Machines of which is kept that they claim one node; one more than one is too many in any case."""


@dataclass(slots=True)
class Claimant:
    """A machine that asked for something to boot where a node is to be. `why_not`: why it was not
    taken for the node."""

    where: str
    at: float
    why_not: str = ""


async def nobody_takes(record: Record, macs: list[str], by: str) -> None:
    """Where nobody makes the cards of a machine those of a node."""


class Known(Protocol):
    """What is known of machines (keeper.Machines)."""

    def node_by(self, mac: str) -> Record | None:
        """The node that has a MAC address."""

    def claimants(self, record: Record) -> list[Machine]:
        """The strangers that have reported that they are where a node is to be."""

    def rivals(self, machine: Machine) -> list[Machine]:
        """The other machines that have a claim of this one's."""

    def is_shared(self, mac: str, machine: Machine) -> bool:
        """Whether another machine has a MAC address of this one's too."""

    def owners(self, machine: Machine) -> list[Record]:
        """The nodes whose place or serial number a machine has, by the inventory."""

    def name_of(self, machine: Machine) -> str:
        """What people call a machine."""

    async def distrust_key(self, mac: str) -> None:
        """No person has taken a stranger in. Raises OperationFailed."""


class Replacing:
    """Decides. `ask` calls a module, `wall` gives seconds since the epoch, `keeps` says why a
    node's machine cannot have been replaced, or is to be left alone by a person's word; "" if
    nothing says so. `take` makes MAC addresses those of a node, by somebody's word, or raises
    LayercakeError."""

    def __init__(
        self,
        store: Store,
        known: Known,
        ask: Callable[[str, Mapping[str, Any]], Awaitable[Any]],
        wall: Callable[[], float],
        keeps: Callable[[Record], str],
        take: Callable[[Record, list[str], str], Awaitable[None]],
    ) -> None:
        self._store = store
        self._known = known
        self._ask = ask
        self._wall = wall
        self._claims: dict[str, dict[str, Claimant]] = {}
        self._told: dict[tuple[str, str], str] = {}
        self._done: dict[str, float] = {}
        self._under_way: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.keeps = keeps
        self._take = take

    def asked(self, record: Record, data: Mapping[str, Any]) -> None:
        """The boot service says that a machine asks from where a node is to be. Of a node with
        `replace: auto` it is looked at."""
        mac = str(data.get("mac", ""))[:17]
        now = self._wall()
        words = [str(data.get(word, ""))[:200] for word in ("relay", "circuit", "remote")]
        found = self._fresh(record)
        if mac not in found and len(found) >= _MOST:
            return
        new = mac not in found
        one = found.setdefault(mac, Claimant(option82(*words), now))
        one.where = option82(*words)
        one.at = now
        self._claims[record.node.id] = found
        if automatic(record):
            self._begin(
                self._consider(record, [mac], one.where, [], float(data.get("own_s") or 0.0))
            )
        elif new:
            self._store.event(
                record,
                events.CLAIMED,
                f"{_asks(mac, one)} (hint: if its board was replaced, `layercake node set "
                f"{record.name} mac={mac}`)",
                data={"mac": mac},
            )

    def _begin(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settled(self) -> None:
        """Waits until what was begun is done."""
        while self._tasks:
            await asyncio.gather(*self._tasks)

    async def reported(self, machine: Machine) -> None:
        """A stranger has reported, or waits: it may be a node's new board."""
        owners = self._known.owners(machine)
        for record in owners:
            if automatic(record):
                others = [other.name for other in owners if other is not record]
                others += [
                    self._known.name_of(one)
                    for one in self._known.rivals(machine)
                    if one.key != f"node/{record.node.id}" and not same_hardware(one, machine)
                ]
                try:
                    own = await self._own_s(record)
                except LayercakeError as error:
                    self._refused(
                        record,
                        machine.mac,
                        f"it is not known when its own cards were heard: {error.message}",
                    )
                    continue
                macs = [machine.mac]
                if len(record.node.macs) > 1:
                    macs += [
                        mac
                        for mac in machine.macs
                        if mac != machine.mac and not self._known.is_shared(mac, machine)
                    ]
                await self._consider(
                    record,
                    macs,
                    "what it reports",
                    others,
                    own,
                    set(machine.macs),
                    _own_word(record, machine),
                )

    async def _own_s(self, record: Record) -> float:
        """For how many seconds the boot service has heard nothing of a node's own cards. Raises
        LayercakeError."""
        heard = await self._ask(HEARD, {"macs": list(record.node.macs)[:64]})
        return min((float(one["seconds_ago"]) for one in heard.values()), default=0.0)

    async def _consider(
        self,
        record: Record,
        macs: list[str],
        where: str,
        others: Iterable[str],
        own_s: float,
        same: Collection[str] = (),
        unproven: str = "",
    ) -> None:
        """Takes a machine for a node, or says why not. `unproven`: why nobody but itself says that
        it is the node's."""
        node = record.node.id
        mac = macs[0]
        if node in self._under_way or self._known.node_by(mac) is not None:
            return
        why = self._against(record, macs, others, own_s, same)
        if why or unproven:
            self._refused(record, mac, why or unproven, disputed=bool(why))
            return
        self._under_way.add(node)
        try:
            await self._took(record, macs, where)
        finally:
            self._under_way.discard(node)

    def _against(
        self,
        record: Record,
        macs: list[str],
        others: Iterable[str],
        own_s: float,
        same: Collection[str],
    ) -> str:
        """What speaks against a machine being a node's, "" for nothing."""
        node = record.node.id
        mac = macs[0]
        mine = {*macs, *same}
        also = [
            *others,
            *(one for one in self._fresh(record) if one not in mine),
            *(
                one.mac
                for one in self._known.claimants(record)
                if not (mac in one.macs and (one.mac in mine or not same))
            ),
        ]
        if also:
            return f"{', '.join(dict.fromkeys(also))[:300]} claim the same"
        if why := self.keeps(record):
            return why
        silent_s = min(own_s, self._wall() - self._done.get(node, float("-inf")))
        if record.node.macs and silent_s < QUIET_S:
            return "its own card was heard a short while ago"
        return ""

    async def _took(self, record: Record, macs: list[str], where: str) -> None:
        was = ", ".join(record.node.macs)
        mac = macs[0]
        try:
            why = (
                "replace: auto (its board was replaced"
                if was
                else "its place (a machine was found there"
            )
            await self._known.distrust_key(mac)
            await self._take(record, macs, f"{why}, by {where})")
        except LayercakeError as error:
            self._refused(record, mac, str(error))
            return
        except (
            Exception
        ):  # a mistake of the head's own: people see that it was not taken, and where to look
            log.exception("%s could not be taken for %s", mac, record.name)
            self._refused(record, mac, "the head could not take it: its log says why")
            return
        self._done[record.node.id] = self._wall()
        self._claims.pop(record.node.id, None)
        if not was:
            self._store.event(
                record,
                events.FOUND,
                f"{mac} is this node from now on, by {where}",
                data={"mac": mac},
            )
            return
        self._store.event(
            record,
            events.REPLACED,
            f"{mac} is this node now, by {where}; it was {was} (hint: write it into the inventory)",
            data={"mac": mac, "was": was},
        )

    def why_not(self, record: Record, mac: str) -> str:
        """Why a machine was not taken for a node, "" if it was, or nobody has looked."""
        return self._told.get((record.node.id, mac), "")

    def _refused(self, record: Record, mac: str, why: str, *, disputed: bool = True) -> None:
        one = self._fresh(record).get(mac)
        if one is not None:
            one.why_not = why
        key = (record.node.id, mac)
        if self._told.pop(key, None) != why:
            text = f"{mac} claims to be this node, and is not taken for it: {why}"
            if not disputed:
                text += f" (hint: if it is, `layercake node set {record.name} mac={mac}`)"
            kind = events.DISPUTED if disputed else events.CLAIMED
            self._store.event(record, kind, text, data={"mac": mac})
        self._told[key] = why
        while len(self._told) > 4096:
            del self._told[next(iter(self._told))]

    def _fresh(self, record: Record) -> dict[str, Claimant]:
        """Who has claimed a node's place a short while ago, by MAC address; who is a node by now
        does not."""
        since = self._wall() - CLAIMS_S
        found = self._claims.get(record.node.id, {})
        for mac in [
            mac
            for mac, one in found.items()
            if one.at < since or self._known.node_by(mac) is not None
        ]:
            del found[mac]
        return found

    def forget(self, record: Record) -> None:
        """A node is gone."""
        self._claims.pop(record.node.id, None)
        self._done.pop(record.node.id, None)

    def lines(self, record: Record) -> list[tuple[str, str]]:
        """Who claims a node's place at DHCP, by MAC address, for people."""
        return [
            (
                mac,
                f"{_asks(mac, one)}; "
                + (
                    f"it is not taken for the node: {one.why_not}"
                    if one.why_not
                    else f"(hint: layercake node set {record.name} mac={mac})"
                ),
            )
            for mac, one in self._fresh(record).items()
        ]


def _own_word(record: Record, machine: Machine) -> str:
    """Why nobody but a machine itself says that it is a node's, "" if somebody else does."""
    marks = set(machine.claims)
    kinds = {one.kind for one in wanted_places(record) if (one.kind, one.value) in marks}
    if "option 82" in kinds or ("port" in kinds and replaces(record)):
        return ""
    told = "its serial number" if "port" not in kinds else "the port that it has heard by LLDP"
    return f"nobody but the machine itself says so, by {told}"


def _asks(mac: str, one: Claimant) -> str:
    return (
        f"{mac}, which no inventory knows, asks for something to boot from {one.where}, where "
        "this node is to be"
    )


def automatic(record: Record) -> bool:
    """Whether a new board is taken for the node without a person's word: the first one of a node
    without `mac` is."""
    return not record.node.macs or replaces(record)


def replaces(record: Record) -> bool:
    """Whether a node's entry says `replace: auto`."""
    part = record.node.parts.get("machines")
    return isinstance(part, Whereabouts) and part.replace == "auto"
