"""With what the steps of a release are done on a head."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from layercake.agents.https.requests import NodeRequests
from layercake.agents.joining import Joining
from layercake.agents.sync import Sync
from layercake.base.secrets import Vault
from layercake.features.disks.node_disks import NodeDisks
from layercake.features.files.hostkeys import HostKeys
from layercake.features.machines.manager import Machines
from layercake.features.releases.record import KnownDisks, Witness
from layercake.features.releases.steps import password
from layercake.fleet.desired import DesiredState
from layercake.fleet.guard_state import Order
from layercake.fleet.store import Record, Store
from layercake.fleet.table import Table
from layercake.kernel.decisions import Decisions

CONSOLE = "console.forget"
"""The call by which what is kept of a node's console is removed."""


@dataclass(frozen=True, slots=True)
class HeadNodeActions:
    """See NodeActions. `give_order` has the engine do something to a node's power, `ask` asks the
    module that offers a call, and `changed` has the modules told of a node anew."""

    store: Store
    desire: DesiredState
    requests: NodeRequests
    sync: Sync
    joining: Joining
    keys: HostKeys
    disks: NodeDisks
    machines: Machines
    vault: Vault
    table: Table
    give_order: Callable[[Record, Order], None]
    ask: password.Ask
    changed: Callable[[Record], None]
    decisions: Decisions

    async def ask_node(self, record: Record, request: dict[str, Any]) -> Mapping[str, Any]:
        """See NodeActions."""
        found: Mapping[str, Any] = await self.requests.request(record, request)
        return found

    def order(self, record: Record, order: Order) -> None:
        """See NodeActions."""
        self.give_order(record, order)

    def witness(self, record: Record) -> Witness:
        """See NodeActions. Of a node that a person switches its power is what is heard of it: its
        last user can fall silent, and ask for something to boot, as he likes."""
        if not record.planner.attended:
            return "bmc"
        return "tpm" if self.decisions.boot_proven(record) else "node"

    async def tpm_cleared(self, record: Record) -> None:
        """See NodeActions."""
        await self.decisions.tpm_cleared(record)

    def push(self, record: Record) -> None:
        """See NodeActions."""
        self.sync.push(record)

    def end_session(self, record: Record) -> None:
        """See NodeActions."""
        self.joining.close(record)
        self.joining.end(record)

    async def forget_keys(self, record: Record) -> str:
        """See NodeActions."""
        had = bool(self.keys.public(record))
        self.keys.forget(record)
        self.disks.forget(record)
        await self.desire.wait_written()
        console = CONSOLE in self.table.caller
        if console:
            await self.ask(CONSOLE, {"node": record.node.id})
        what = [
            "keys of disks",
            *(["the SSH host key"] if had else []),
            *(["what its console has said"] if console else []),
        ]
        return ", ".join(what)

    async def turn_password(self, record: Record) -> str:
        """See NodeActions."""
        module = self.table.caller.get(password.PASSWORD)
        if module is None:
            raise password.Left("no module turns passwords of BMCs")
        ref = password.of(record, module, self.store)
        return await password.turn(record, ref, self.vault, self.ask, self.changed)

    async def known_disks(self, record: Record) -> KnownDisks:
        """See NodeActions: by the report that was accepted, which a disk that was pulled is still
        in."""
        machine = self.machines.of(record)
        if machine is None:
            return KnownDisks()
        [(found, accepted)] = await self.machines.reports(machine)
        report = accepted or found
        serials = {disk.serial for disk in report.disks if disk.serial} if report else ()
        return KnownDisks(frozenset(serials), accepted_by=machine.accepted_by if accepted else "")
