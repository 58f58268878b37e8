"""The table of machines in the head's database: what is small of each, its report, and the report
that was accepted."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from layercake.features.machines.hardware import whereabouts
from layercake.features.machines.hardware.report import Report
from layercake.features.machines.hardware.summary import Hardware, shared, summarize
from layercake.features.machines.hardware.whereabouts import Claim
from layercake.features.machines.module import Whereabouts, claims
from layercake.fleet.persistence.database import Database
from layercake.fleet.persistence.rows import decoded
from layercake.fleet.store import Record, Store
from minos.placeholders import is_default_address, is_placeholder
from minos.survey.sanitize import identity

T = TypeVar("T")


class Machine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is small of a machine. `key` is node/ID of a node, mac/MAC of a stranger; `mac` is the
    card it booted by. Times are in seconds since the epoch; `alive_until`: a stranger's ticket.
    `claims` are those by which it is recognised (Claim); `relayed` are relay, circuit and remote
    identifier by option 82."""

    key: str
    mac: str
    address: str
    first_seen: float
    seen: float
    macs: tuple[str, ...] = ()
    claims: tuple[tuple[str, str], ...] = ()
    vendor: str = ""
    product: str = ""
    serial: str = ""
    uuid: str = ""
    cpus: int = 0
    memory: int = 0
    disks: int = 0
    gpus: int = 0
    arch: str = ""
    uefi: bool = False
    secure_boot: bool = False
    bmc: str = ""
    bmc_mac: str = ""
    place: tuple[str, str] = ("", "")
    relayed: tuple[str, str, str] = ("", "", "")
    alive_until: float = 0.0
    boot_id: str = ""
    accepted: bool = False
    accepted_by: str = ""
    """Who has said that its hardware is right; "": nobody, it is what the node reported first."""
    drift: tuple[str, ...] = ()
    hardware: Hardware | None = None
    tpm_ek: str = ""
    """The endorsement key of a stranger's TPM (SHA-256), as it said before it was taken in."""


class Changed(NamedTuple):
    """A machine that is to be written, with a report if it is new, and with the accepted one if
    that is."""

    machine: Machine
    report: bytes | None = None
    accepted: bytes | None = None


class Reports(NamedTuple):
    """A machine's report, and the one that was accepted."""

    report: Report | None
    accepted: Report | None


class Rows:
    """Reads and writes. What is written survives a kill when the call returns. All raise
    OperationFailed."""

    def __init__(self, database: Database, store: Store) -> None:
        self._database = database
        self._store = store

    async def _execute(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._database.execute(self._store, work)

    def all(self) -> list[Machine]:
        """What is small of all machines, as the head starts; a row that cannot be read is left
        out."""
        rows = self._database.rows(
            "SELECT data, iif(instr(data, '\"hardware\"') = 0, report, NULL) FROM machines"
        )
        machines = [(one, report) for data, report in rows if (one := decoded(data, Machine))]
        return [replace(one, hardware=_hardware(one, report)) for one, report in machines]

    async def write(self, changed: Changed) -> None:
        """Writes a machine."""
        await self._execute(partial(write_machine, changed))

    async def reports(self, *keys: str) -> list[Reports]:
        """What machines have reported; all of them are read in one turn."""
        return await self._database.history.read(lambda db: [_reports(one, db) for one in keys])

    async def remove(self, *keys: str) -> None:
        """Forgets machines."""
        await self._execute(partial(_remove, keys))


def _reports(key: str, db: sqlite3.Connection) -> Reports:
    row = db.execute("SELECT report, accepted FROM machines WHERE key = ?", (key,)).fetchone()
    report, accepted = row or (None, None)
    return Reports(decoded(report, Report), decoded(accepted, Report))


def write_machine(changed: Changed, db: sqlite3.Connection) -> None:
    """Writes a machine's row."""
    key = changed.machine.key
    db.execute(
        "INSERT INTO machines (key, data) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET "
        "data = excluded.data",
        (key, msgspec.json.encode(changed.machine)),
    )
    if changed.report is not None:
        db.execute("UPDATE machines SET report = ? WHERE key = ?", (changed.report, key))
    if changed.accepted is not None:
        db.execute("UPDATE machines SET accepted = ? WHERE key = ?", (changed.accepted, key))


def _hardware(machine: Machine, report: bytes | None) -> Hardware | None:
    """What lists show of its hardware; out of its report where an older Layercake wrote the row."""
    if machine.hardware is not None:
        return shared(machine.hardware)
    found = decoded(report, Report)
    return summarize(found) if found is not None else None


def _remove(keys: tuple[str, ...], db: sqlite3.Connection) -> None:
    db.executemany("DELETE FROM machines WHERE key = ?", [(key,) for key in keys])


def key_of_node(record: Record) -> str:
    """The key of a node's machine."""
    return f"node/{record.node.id}"


def key_of_stranger(mac: str) -> str:
    """The key of a stranger's."""
    return f"mac/{mac}"


def wanted_places(record: Record) -> tuple[Claim, ...]:
    """By what the inventory recognises a node's machine."""
    part = record.node.parts.get("machines")
    return claims(part if isinstance(part, Whereabouts) else None)


def same_hardware(one: Machine, other: Machine) -> bool:
    """Whether both are one machine that was heard by two of its cards: each says that it has the
    other's."""
    return one.mac in other.macs and other.mac in one.macs


def summary(
    key: str,
    mac: str,
    address: str,
    found: Report,
    before: Machine | None,
    now: float,
    relayed: tuple[str, str, str],
) -> Machine:
    """What is small of a report; `relayed` is what option 82 said of it."""
    system = found.smbios.system
    port = next(
        ((one.switch, one.port) for one in found.neighbours.values() if one.switch), ("", "")
    )
    return Machine(
        key=key,
        mac=mac,
        address=address,
        first_seen=before.first_seen if before is not None else now,
        seen=now,
        macs=tuple(dict.fromkeys((mac, *whereabouts.macs(found))))
        if mac
        else whereabouts.macs(found),
        claims=tuple(
            (one.kind, one.value)
            for one in (*whereabouts.of(found), *whereabouts.relayed_claims(*relayed))
        ),
        relayed=relayed,
        vendor=system.vendor,
        product=system.product,
        serial=identity(system.serial),
        uuid=system.uuid,
        cpus=found.cpu.logical,
        memory=found.memory,
        disks=len(found.disks),
        gpus=len(found.gpus),
        arch=found.arch,
        uefi=found.uefi,
        secure_boot=found.secure_boot == "on",
        bmc=found.bmc.address if found.bmc else "",
        bmc_mac=found.bmc.mac if found.bmc else "",
        place=port,
        hardware=summarize(found),
        accepted=before.accepted if before is not None else False,
        accepted_by=before.accepted_by if before is not None else "",
    )


def bmc_marks(machine: Machine) -> list[str]:
    """By what a BMC that answers is known to be a machine's."""
    address = "" if is_default_address(machine.bmc) else machine.bmc
    uuid = "" if is_placeholder(machine.uuid) else machine.uuid.lower()
    return [mark for mark in (address, uuid) if mark]
