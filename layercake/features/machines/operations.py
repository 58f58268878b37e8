"""What people ask for of machines: to see them, to take strangers into the inventory, to accept or
forget what was reported."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from layercake.api.caller import said_by
from layercake.features.disks.node_disks import NodeDisks
from layercake.features.disks.said import plain_data
from layercake.features.machines import adopt, events
from layercake.features.machines.hardware.report import Report
from layercake.features.machines.manager import Machines
from layercake.features.machines.table import Machine
from layercake.features.machines.views import machine_view
from layercake.fleet.desired import DesiredState
from layercake.fleet.store import Record, Store
from layercake.inventory import fields, ranges
from layercake.kraken.errors import InputError, NotFound, Refused
from layercake.moduleapi.fields import Mistake
from layercake.modules.calls import AskModule

SCAN = "power.scan"
"""The call by which addresses are asked whether a BMC is there."""
SCANNED = 256
"""Addresses that are asked at a time."""
WIDEST = 20
"""The length of the shortest prefix of a network that is scanned."""


class MachineRequests:
    """Operations on machines."""

    def __init__(
        self,
        store: Store,
        desire: DesiredState,
        ask: AskModule,
        machines: Machines,
        disks: NodeDisks,
    ) -> None:
        self._store = store
        self._desire = desire
        self._ask = ask
        self._machines = machines
        self._disks = disks

    def all(self) -> list[dict[str, Any]]:
        """The machines that no inventory knows, the one heard last first."""
        return [
            machine_view(one, self._machines, self._store.wall())
            for one in self._machines.strangers()
        ]

    async def one(self, name: str) -> dict[str, Any]:
        """A machine by its MAC address, or that of a node, with its whole report. Raises
        NotFound."""
        machine = self._machines.find(name)
        [(found, _)] = await self._machines.reports(machine)
        return {
            "machine": machine_view(machine, self._machines, self._store.wall()),
            "report": found,
        }

    def adopt(
        self,
        macs: Sequence[str],
        name: str,
        order: str,
        ip: str,
        groups: Sequence[str],
        *,
        bmc: bool,
    ) -> dict[str, Any]:
        """The inventory's entries for machines: those with these MAC addresses, or all that were
        discovered. Nothing changes by that. Raises InputError, NotFound and Refused."""
        machines = adopt.ordered(self._adoptable(macs), order)
        names = self._free_names(name, len(machines))
        for group in groups:
            try:
                fields.group_name(group)
            except Mistake as mistake:
                raise InputError(f"cannot adopt: {mistake.message}", hint=mistake.hint) from None
        disputed = {one.key for one in machines if self._machines.rivals(one)}
        ips = adopt.addresses(ip, len(machines), {record.node.ip for record in self._store})
        lines = adopt.entries(machines, names, ips, groups, bmc=bmc, disputed=disputed)
        return {
            "entries": lines,
            "machines": [
                {"name": n, "mac": m.mac, "ip": a, "place": _place(m), "serial": m.serial}
                for n, m, a in zip(names, machines, ips, strict=True)
            ],
            "disputed": sorted(one.mac for one in machines if one.key in disputed),
        }

    def _adoptable(self, macs: Sequence[str]) -> list[Machine]:
        """The machines with these MAC addresses, or all that were discovered. Raises NotFound, and
        Refused for one that is a node's already."""
        machines = [self._machines.find(mac) for mac in macs] or self._machines.strangers()
        for machine in machines:
            if (
                not machine.key.startswith("mac/")
                or self._machines.node_by(machine.mac) is not None
            ):
                name = self._machines.name_of(machine)
                raise Refused(f"cannot adopt {name}: the inventory has it already")
        if not machines:
            raise NotFound(
                "cannot adopt: no machine was discovered", hint="see `layercake machine list`"
            )
        return machines

    def _free_names(self, name: str, count: int) -> list[str]:
        """As many names of a range that no node has. Raises Refused if there are fewer, and
        InputError."""
        taken = {record.name for record in self._store}
        free = [one for one in _names(name) if one not in taken][:count]
        if len(free) < count:
            raise Refused(
                f"cannot adopt {count} machines as {name}: that is {len(free)} names that no "
                "node has",
                hint="more names, such as n[001-100]; or say which machines by their MAC addresses",
            )
        return free

    async def scan(self, network: str, start: int) -> dict[str, Any]:
        """The BMCs that answer in an IPv4 network, a page of addresses at a time; `more` is where
        the next one begins, 0 for none. Raises InputError, Refused while another scan is under way,
        and Unreachable."""
        addresses = _addresses(network)
        page = [str(one) for one in addresses[start : start + SCANNED]]
        if not page:
            raise InputError(
                f"cannot scan {network} from its address {start}: it has {len(addresses)}"
            )
        found = await self._ask(SCAN, {"addresses": page})
        machines = self._machines.by_bmc()
        rows = []
        for one in found:
            owners = _owners(machines, one["address"], one["uuid"])
            names = ", ".join(map(self._machines.name_of, owners))
            known = len(owners) == 1 and owners[0].key.startswith("node/")
            node = one["node"] or (names if known else "")
            rows.append({**one, "node": node, "machine": "" if names == node else names})
        end = start + len(page)
        return {"found": rows, "scanned": len(page), "more": end if end < len(addresses) else 0}

    async def accept(self, text: str, by: str) -> list[str]:
        """The hardware of nodes is right as it is now; returns those of which something was
        reported."""
        done = []
        async with self._desire.transaction(revises=False) as transaction:
            records = self._store.select(text)
            surveys = await self._surveys(records)
            for record in records:  # in one turn: no newer survey comes in between
                machine, found = surveys.get(record.node.id, (None, None))
                if machine is not None and found is not None:
                    self._machines.accept(transaction, record, machine, found, said_by(by))
                    transaction.event(record, events.ACCEPTED, f"by {said_by(by)}")
                    done.append(record.name)
        return done

    async def _surveys(self, records: Sequence[Record]) -> dict[str, tuple[Machine, Report | None]]:
        """What the machines of nodes have reported, by the nodes' ids; of one that reports
        meanwhile, the new."""
        found: dict[str, tuple[Machine, Report | None]] = {}

        def is_new(record: Record) -> bool:
            machine = self._machines.of(record)
            return machine is not None and found.get(record.node.id, (None,))[0] is not machine

        while new := [record for record in records if is_new(record)]:
            machines = {
                record.node.id: machine
                for record in new
                if (machine := self._machines.of(record)) is not None
            }
            reports = await self._machines.reports(*machines.values())
            for (node, machine), one in zip(machines.items(), reports, strict=True):
                found[node] = machine, one.report
        return found

    async def forget(self, mac: str, by: str) -> str:
        """Forgets a machine that no inventory knows. Raises NotFound, and Refused for a node's."""
        machine = self._machines.find(mac)
        if not machine.key.startswith("mac/"):
            raise Refused(
                f"cannot forget {self._machines.name_of(machine)}: the inventory has it",
                hint="take the node out of the inventory; `layercake machine accept RANGE` takes "
                "its hardware as it is",
            )
        await self._machines.forget(machine)
        self._store.event(
            None, events.FORGOTTEN, f"{machine.mac}, by {said_by(by)}", data={"mac": machine.mac}
        )
        return machine.mac

    def disks(self, name: str) -> dict[str, Any]:
        """A node's own disks. Raises NotFound."""
        record = self._store.named(name)
        found = self._disks.of(record)
        words = [
            {"disk": word.disk, "by": word.by, "at": word.at}
            for word in self._disks.unused_words(record)
        ]
        said = plain_data(found) if found is not None else {"layouts": [], "disks": []}
        return {"node": name, **said, "state": record.value("disk"), "words": words}

    async def wipe(self, name: str, disk: str, mark: str, by: str) -> dict[str, Any]:
        """Gives a disk of a node free, as it was seen: the node makes it anew, whatever it holds.
        Raises LayercakeError."""
        record = self._store.named(name)
        return {
            "node": name,
            "disk": msgspec.to_builtins(await self._disks.wipe(record, disk, mark, said_by(by))),
        }


def _owners(machines: Mapping[str, list[Machine]], address: str, uuid: str) -> list[Machine]:
    """The machines that say that the BMC at an address is theirs, or that have its UUID: more than
    one where marks are not what they should be, and then none of them is meant by it."""
    both = (*machines.get(address, ()), *machines.get(uuid.lower(), ()))
    return list({one.key: one for one in both}.values())


def _addresses(network: str) -> list[ipaddress.IPv4Address]:
    """The addresses of machines in a network, of those that are not too large. Raises
    InputError."""
    try:
        found = ipaddress.IPv4Network(network)
    except ValueError as error:
        raise InputError(
            f"cannot scan {network[:64]!r}: {error}", hint="an IPv4 network, such as 10.2.0.0/24"
        ) from None
    if found.prefixlen < WIDEST:
        raise InputError(
            f"cannot scan {found}: it has more than {2 ** (32 - WIDEST)} addresses",
            hint="scan it piece by piece",
        )
    if found.is_multicast or found.is_reserved:
        raise InputError(f"cannot scan {found}: no machine has such addresses")
    return list(found.hosts())


def _place(machine: Machine) -> str:
    return " port ".join(machine.place) if all(machine.place) else ""


def _names(text: str) -> list[str]:
    """The names of new nodes. Raises InputError."""
    try:
        names = ranges.names_of(text)
        for name in names:
            fields.node_name(name)
    except ranges.BadRange as error:
        raise InputError(
            f"cannot adopt as {text[:64]!r}: {error.reason}", hint=error.hint
        ) from None
    except Mistake as mistake:
        raise InputError(
            f"cannot adopt as {text[:64]!r}: {mistake.message}", hint=mistake.hint
        ) from None
    return names
