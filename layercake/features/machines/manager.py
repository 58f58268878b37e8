"""The machines that have reported: nodes, and strangers, which no inventory knows. What is small of
each is in memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from layercake.base.text import grouped
from layercake.features.machines import events
from layercake.features.machines.hardware import report
from layercake.features.machines.hardware.drift import differences
from layercake.features.machines.hardware.report import Report
from layercake.features.machines.replacing import Replacing, automatic, nobody_takes
from layercake.features.machines.table import (
    Changed,
    Machine,
    Reports,
    Rows,
    bmc_marks,
    key_of_node,
    key_of_stranger,
    same_hardware,
    summary,
    wanted_places,
    write_machine,
)
from layercake.fleet.store import Record, Store
from layercake.fleet.transaction import Transaction
from layercake.kraken.errors import LayercakeError, NotFound
from layercake.moduleapi.strangers import DISCOVERED, HEARD, Tickets

log = logging.getLogger("layercake.machines")
MOST_STRANGERS = 20_000
AGAIN_S = 30.0
"""Seconds between two times that a stranger speaks that has nothing new."""
A_SECOND = 20.0
"""So many strangers speak in a second at most."""
LAST_S = 45.0
"""So long before the end of its ticket a stranger is told to go off."""
WAIT = "wait"
REBOOT = "reboot"
OFF = "off"
_OLD_S = 7200.0
"""A stranger that was heard so long ago claims nothing any more."""


class Machines:
    """`ask` calls a module, `wall` gives seconds since the epoch."""

    def __init__(
        self,
        store: Store,
        rows: Rows,
        tickets: Tickets,
        ask: Callable[[str, Mapping[str, Any]], Awaitable[Any]],
        wall: Callable[[], float],
        *,
        drifted: Callable[[Record, tuple[str, ...]], None] = lambda record, lines: None,
        keeps: Callable[[Record], str] = lambda record: "",
        take: Callable[[Record, list[str], str], Awaitable[None]] = nobody_takes,
    ) -> None:
        self._store = store
        self._rows = rows
        self._tickets = tickets
        self._ask = ask
        self._wall = wall
        self._all: dict[str, Machine] = {}
        self._gone: frozenset[str] = frozenset()
        self._writing = asyncio.Lock()
        """What is kept of machines is so until it is in their rows, too."""
        self._strangers: set[str] = set()
        self._by_claim: dict[tuple[str, str], set[str]] = {}
        self._nodes: tuple[int, int, dict[str, Record], dict[tuple[str, str], Record]] = (
            -1,
            -1,
            {},
            {},
        )
        self.replacing = Replacing(store, self, ask, wall, keeps, take)
        self._drifted = drifted

    def load(self) -> None:
        """Reads what was kept."""
        own = {key_of_node(record) for record in self._store}
        for machine in self._rows.all():
            if machine.key.startswith("node/") and machine.key not in own:
                self._gone |= {machine.key}
            else:
                self._remember(machine)
        for record in self._store:
            if (known := self.of(record)) is not None:
                self._drifted(record, known.drift)

    def _remember(self, machine: Machine) -> None:
        """Has a machine in memory, in the place of what was known of it."""
        self._drop(machine.key)
        self._all[machine.key] = machine
        if machine.key.startswith("mac/"):
            self._strangers.add(machine.key)
        for claim in machine.claims:
            self._by_claim.setdefault(claim, set()).add(machine.key)

    def _drop(self, key: str) -> Machine | None:
        found = self._all.pop(key, None)
        self._strangers.discard(key)
        for claim in found.claims if found is not None else ():
            self._by_claim[claim].discard(key)
            if not self._by_claim[claim]:
                del self._by_claim[claim]
        return found

    # -- what is known

    def strangers(self) -> list[Machine]:
        """Those that no inventory knows, the newest first. One whose card is a node's by now is
        none."""
        return sorted(
            (
                one
                for one in map(self._all.__getitem__, self._strangers)
                if self.node_by(one.mac) is None
            ),
            key=lambda one: -one.seen,
        )

    def of(self, record: Record) -> Machine | None:
        """A node's machine, as it was at its last survey."""
        return self._all.get(key_of_node(record))

    def find(self, name: str) -> Machine:
        """The machine of a node, or that with a MAC address. Raises NotFound."""
        record = next((r for r in self._store if r.name == name), None)
        found = (
            self.of(record)
            if record is not None
            else self._all.get(key_of_stranger(name.lower().replace("-", ":")))
        )
        if found is None:
            raise NotFound(
                f"cannot find machine {name[:64]!r}: nothing was heard of it",
                hint="a node's name or a MAC address is expected; see `layercake machine list`",
            )
        return found

    async def reports(self, *machines: Machine) -> list[Reports]:
        """What each of them has reported."""
        return await self._rows.reports(*(machine.key for machine in machines))

    def by_bmc(self) -> dict[str, list[Machine]]:
        """All machines by the address of their BMC, as they say it themselves, and by their UUID.
        A mark that many have by their make stands for none; one that two have, for both."""
        by_mark: dict[str, list[Machine]] = {}
        for one in self._all.values():
            if one.key.startswith("mac/") and self.node_by(one.mac) is not None:
                continue
            for mark in bmc_marks(one):
                others = by_mark.setdefault(mark, [])
                if not any(same_hardware(one, other) for other in others):
                    others.append(one)
        return by_mark

    def node_by(self, mac: str) -> Record | None:
        """The node that has a MAC address in the inventory."""
        return self._index()[0].get(mac)

    def _index(self) -> tuple[dict[str, Record], dict[tuple[str, str], Record]]:
        """Nodes by their MAC addresses, and by what the inventory recognises them by. Made anew
        when that is another one."""
        mark = (len(self._store), self._store.revision)
        if self._nodes[:2] != mark:
            self._nodes = (
                *mark,
                {mac: record for record in self._store for mac in record.node.macs},
                {
                    (claim.kind, claim.value): record
                    for record in self._store
                    for claim in wanted_places(record)
                },
            )
        return self._nodes[2:]

    def alive(self, machine: Machine) -> bool:
        """Whether a stranger was on a short while ago."""
        return machine.seen > self._wall() - 3 * AGAIN_S - len(self._strangers) / A_SECOND

    def waits(self, mac: str) -> bool:
        """Whether a stranger with this MAC address has booted from this head, and waits to be taken
        in."""
        found = self._all.get(key_of_stranger(mac))
        return found is not None and self.alive(found)

    def endorsement(self, record: Record) -> str:
        """The endorsement key that a node's machine had when it was a stranger and a person took it
        in, "" if that is not known."""
        found = (self._all.get(key_of_stranger(mac)) for mac in record.node.macs)
        return next((one.tpm_ek for one in found if one is not None and one.tpm_ek), "")

    async def distrust_key(self, mac: str) -> None:
        """No person has taken a stranger in: its TPM's endorsement key is its own word alone."""
        if (one := self._all.get(key_of_stranger(mac))) is not None:
            one = replace(one, tpm_ek="")
            async with self._writing:
                await self._rows.write(Changed(one))
                self._remember(one)

    def rivals(self, machine: Machine) -> list[Machine]:
        """The other machines that have a claim of this one's: two with one serial number, two at
        one port."""
        since = self._wall() - _OLD_S
        keys = {key for claim in machine.claims for key in self._by_claim.get(claim, ())}
        others = (self._all[key] for key in sorted(keys - {machine.key}))
        return [
            one
            for one in others
            if not same_hardware(one, machine) and (one.seen > since or one.key.startswith("node/"))
        ]

    def is_shared(self, mac: str, machine: Machine) -> bool:
        """Whether another machine has a MAC address of this one's too: then it is nobody's."""
        return any(
            mac in one.macs and one.key != machine.key and not same_hardware(one, machine)
            for one in self._all.values()
        )

    def claimants(self, record: Record) -> list[Machine]:
        """The strangers that are where a node is to be, or have its serial number, by the inventory
        or by its last survey."""
        own = self.of(record)
        marks = {(one.kind, one.value) for one in wanted_places(record)} | set(
            own.claims if own is not None else ()
        )
        keys = {key for mark in marks for key in self._by_claim.get(mark, ())} & self._strangers
        since = self._wall() - _OLD_S
        found = (self._all[key] for key in sorted(keys))
        return [one for one in found if one.seen > since and self.node_by(one.mac) is None]

    # -- what comes in

    async def stranger(self, body: Any, address: str) -> dict[str, Any]:
        """A stranger speaks: what it is told to do, and after how many seconds it speaks again.
        Raises Refused and InputError."""
        said = {
            key: body.get(key) if isinstance(body, dict) else None
            for key in ("ticket", "mac", "boot_id")
        }
        words = {
            key: value if isinstance(value, str) and len(value) <= 200 else ""
            for key, value in said.items()
        }
        mac = words["mac"].lower()
        left = self._tickets.check(words["ticket"], mac, address)
        now = self._wall()
        key = key_of_stranger(mac)
        before = self._all.get(key)
        if isinstance(body.get("report"), dict):
            await self._stranger_reports(key, mac, address, report.read(body["report"]), left)
        elif before is not None:
            self._remember(replace(before, seen=now, alive_until=now + left))
        if (machine := self._all.get(key)) is not None:
            await self.replacing.reported(machine)
        if self.node_by(mac) is not None:
            return {"then": REBOOT, "again_s": AGAIN_S}
        again = max(AGAIN_S, len(self._strangers) / A_SECOND)
        return {
            "then": OFF if left < LAST_S else WAIT,
            "again_s": min(again, max(1.0, left - LAST_S / 2)),
        }

    async def _stranger_reports(
        self, key: str, mac: str, address: str, found: Report, left: float
    ) -> None:
        before = self._all.get(key)
        now = self._wall()
        said = await self._option_82((mac,), before)
        ek = (
            found.tpm_ek
            if self.node_by(mac) is None
            else before.tpm_ek
            if before is not None
            else ""
        )
        machine = replace(
            summary(key, mac, address, found, before, now, said), alive_until=now + left, tpm_ek=ek
        )
        await self._make_room(key)
        async with self._writing:
            await self._rows.write(Changed(machine, msgspec.json.encode(found)))
            self._remember(machine)
        try:
            await self._ask(DISCOVERED, {"mac": mac})
        except LayercakeError as error:
            log.info("the boot service was not told that %s has reported: %s", mac, error)
        if before is None:
            what = " ".join(filter(None, (machine.vendor, machine.product))) or "a machine"
            self._store.event(
                None,
                events.DISCOVERED,
                f"{mac} at {address}: {what}, {machine.cpus} processors, {machine.memory >> 20} MB",
                data={"mac": mac, "ip": address},
            )
        if before is None or before.claims != machine.claims:
            self._look_at_claims(machine)

    async def _option_82(self, macs: Sequence[str], before: Machine | None) -> tuple[str, str, str]:
        """What option 82 said last of one of the cards, as the boot service has heard it; what was
        known before if it has not."""
        try:
            found = (await self._ask(HEARD, {"macs": list(macs)[:64]})).values()
        except LayercakeError as error:
            log.info(
                "the boot service does not say where %s was heard: %s",
                macs[0] if macs else "a machine",
                error,
            )
            found = ()
        said = [
            (one["seconds_ago"], (one["relay"], one["circuit"], one["remote"]))
            for one in found
            if one["circuit"]
        ]
        return min(said)[1] if said else before.relayed if before is not None else ("", "", "")

    def owners(self, machine: Machine) -> list[Record]:
        """The nodes whose place or serial number a machine has, by the inventory."""
        by_claim = self._index()[1]
        found = {
            one.node.id: one for mark in machine.claims if (one := by_claim.get(mark)) is not None
        }
        return list(found.values())

    def _look_at_claims(self, machine: Machine) -> None:
        """Tells of a stranger that is where a node is to be, or has a number or a place that
        another has."""
        own = {
            key_of_node(record) for record in self.owners(machine) if automatic(record)
        }  # whose place it may take
        if rivals := [one for one in self.rivals(machine) if one.key not in own]:
            common = sorted(
                {
                    f"{kind} {value}"
                    for one in rivals
                    for kind, value in set(one.claims) & set(machine.claims)
                }
            )
            self._store.event(
                None,
                events.DISPUTED,
                f"{machine.mac} and {', '.join(map(self.name_of, rivals[:5]))} all have "
                f"{', '.join(common[:3])}: none of them is taken for a node by that",
                data={"mac": machine.mac},
            )
        marks = set(machine.claims)
        for record in self.owners(machine):
            hint = (
                f"if its board was replaced, `layercake node set {record.name} mac={machine.mac}`"
            )
            both = [str(one) for one in wanted_places(record) if (one.kind, one.value) in marks]
            if both and record.node.macs:
                self._store.event(
                    record,
                    events.CLAIMED,
                    f"{machine.mac}, which no inventory knows, has {', '.join(both)} of this "
                    f"node (hint: {hint})",
                    data={"mac": machine.mac},
                )

    def name_of(self, machine: Machine) -> str:
        """What people call a machine: a node's name, or its MAC address."""
        record = (
            self._store.find(machine.key.removeprefix("node/"))
            if machine.key.startswith("node/")
            else None
        )
        return record.name if record is not None else machine.mac

    async def _make_room(self, key: str) -> None:
        """The strangers that were heard the longest ago are forgotten when there are too many."""
        if key in self._all or len(self._strangers) < MOST_STRANGERS:
            return
        found = sorted(map(self._all.__getitem__, self._strangers), key=lambda one: one.seen)
        gone = [one.key for one in found[: 1 + MOST_STRANGERS // 100]]
        await self._rows.remove(*gone)
        for one in gone:
            self._drop(one)

    async def survey(self, record: Record, said: object) -> None:
        """A node hands its survey in. The first one is the one that later ones are held against.
        Raises InputError."""
        found = report.read(said)
        key = key_of_node(record)
        before = self._all.get(key)
        encoded = msgspec.json.encode(found)
        accepted = None
        if before is None or not before.accepted:
            accepted = encoded
            baseline = found
        else:
            baseline = (await self._rows.reports(key))[0].accepted or found
        machine = summary(
            key,
            record.node.macs[0] if record.node.macs else "",
            record.node.ip,
            found,
            before,
            self._wall(),
            await self._option_82(record.node.macs, before),
        )
        machine = replace(machine, accepted=True, drift=differences(baseline, found))
        async with self._writing:
            await self._rows.write(Changed(machine, encoded, accepted))
            self._remember(machine)
        await self._known_now(record)
        self._report_drift(record, before, machine)

    async def _known_now(self, record: Record) -> None:
        """What was a stranger and is a node now is not kept twice."""
        async with self._writing:
            strangers = {key_of_stranger(mac) for mac in record.node.macs} & self._all.keys()
            left = self._gone - self._all.keys()
            if strangers or left:
                await self._rows.remove(*strangers, *left)
            self._gone -= left
            for key in strangers:
                self._drop(key)

    def _report_drift(self, record: Record, before: Machine | None, now: Machine) -> None:
        was = before.drift if before is not None else ()
        if now.drift and now.drift != was:
            self._store.event(
                record,
                events.DRIFTED,
                "; ".join(now.drift)[:2000],
                data={"differs": list(now.drift)},
            )
        elif was and not now.drift:
            self._store.event(record, events.AS_KNOWN, "its hardware is as it was accepted")
        troubles = self.elsewhere(record, now)
        if troubles and (before is None or before.claims != now.claims):
            self._store.event(record, events.MOVED, "; ".join(troubles))
        elif before is not None and before.place != now.place and all((*before.place, *now.place)):
            self._store.event(
                record,
                events.MOVED,
                f"it is at {' port '.join(now.place)}, it was at {' port '.join(before.place)}",
            )
        self._drifted(record, now.drift)

    def elsewhere(self, record: Record, machine: Machine | None = None) -> list[str]:
        """Where a node's machine is not what the inventory says of it; of what it does not say
        itself nothing is known."""
        found = machine or self.of(record)
        if found is None:
            return []
        has = grouped((kind, value) for kind, value in found.claims)
        return [
            f"it has {one.kind} {', '.join(has[one.kind])}, the inventory says {one.value}"
            for one in wanted_places(record)
            if one.kind in has and one.value not in has[one.kind]
        ]

    # -- what people ask for

    def accept(
        self, transaction: Transaction, record: Record, machine: Machine, found: Report, by: str
    ) -> None:
        """The hardware of a node is right as its machine reports it."""
        drift = differences(found, found)
        now = replace(machine, accepted=True, accepted_by=by, drift=drift)
        changed = Changed(now, accepted=msgspec.json.encode(found))
        transaction.write(partial(write_machine, changed))
        transaction.after(self._remember, now)
        transaction.after(self._drifted, record, drift)

    async def forget(self, machine: Machine) -> None:
        """Forgets a machine; if it reports again, it is new."""
        await self._rows.remove(machine.key)
        self._drop(machine.key)

    def removed(self, record: Record) -> None:
        """A node is gone from the inventory. Its row goes with the next one that is written."""
        self.replacing.forget(record)
        if self._drop(key_of_node(record)) is not None:
            self._gone |= {key_of_node(record)}
