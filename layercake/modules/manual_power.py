"""Nodes that a person switches: what is seen of them stands in for the BMC that they do not have.

A firmware that asks for something to boot shows that a machine is on and that whatever ran there
runs no more; an agent that falls silent while the machine shall go off shows that it is off. The
first is believed of every node that is to be switched on: some BMCs say OFF for ever.
"""

from __future__ import annotations

from layercake.agents.sync import Sync
from layercake.fleet.engine import Engine
from layercake.fleet.noted import Noted
from layercake.fleet.store import Record, Store
from layercake.kraken.converge import Discovered
from layercake.kraken.mutation import Mutation


class ManualPower:
    """What is seen of machines from outside. Runs on the event loop."""

    def __init__(self, store: Store, engine: Engine, sync: Sync) -> None:
        self._store = store
        self._engine = engine
        self._sync = sync
        self._asked = Noted(store, _switched_off)  # the nodes that a person is asked to switch off

    def asks(self, record: Record) -> None:
        """A node's firmware asks for something to boot, and no boot of it is wanted yet."""
        step = _under_way(record)
        why = "its firmware asks for something to boot"
        if record.meant == "up" and any(m.turns_on for m in _tried(record)):
            self._engine.post(record, Discovered({"power": "ON"}, why))
        elif record.planner.attended and not self._sync.speaks(record):
            if step is not None and step.cuts_power:
                self.restarted(record, why)
            elif record.value("power") != "ON":
                self._engine.post(record, Discovered({"power": "ON"}, why))

    def restarted(self, record: Record, why: str) -> None:
        """A machine without a BMC was seen to have been started anew. One that shall be off is
        still on, then."""
        if record.meant == "off" and record.care.order is None:
            return
        self._engine.post(record, Discovered({"power": "OFF"}, f"{why}: it was started anew"))
        if self._store.find(record.node.id) is record:
            self._engine.post(record, Discovered({"power": "ON"}, why))

    def tick(self) -> None:
        """Takes those for off that a person was asked to switch off and that are not heard any
        more; called once a second."""
        for record in self._asked.records():
            if _switched_off(record) and not self._sync.speaks(record):
                self._engine.post(
                    record,
                    Discovered({"power": "OFF"}, "it has no BMC, and nothing is heard of it"),
                )


def _tried(record: Record) -> list[Mutation]:
    """The steps that are or were tried at a node, and did not come to their end yet."""
    machine = record.machine
    names = {
        *machine.attempts,
        machine.active.mutation if machine.active is not None and machine.active.mine else "",
        machine.quarantine.mutation if machine.quarantine is not None else "",
    }
    return [record.planner.mutation(name) for name in names if name in record.planner]


def _switched_off(record: Record) -> bool:
    step = _under_way(record) if record.planner.attended else None
    return step is not None and bool(step.person) and step.cuts_power


def _under_way(record: Record) -> Mutation | None:
    """The step that the head has under way at a node."""
    active = record.machine.active
    if active is None or not active.mine or active.mutation not in record.planner:
        return None
    return record.planner.mutation(active.mutation)
