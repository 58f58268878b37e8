"""What the modules' processes report: discoveries, events, results of mutations, their health."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from layercake.agents.budget import Budget, Key, Later
from layercake.agents.joining import Joining
from layercake.agents.sync import Loss, Sync
from layercake.base.text import count_of
from layercake.fleet import events
from layercake.fleet.engine import Engine
from layercake.fleet.store import Record, Store
from layercake.fleet.table import Table
from layercake.kraken.converge import Active, Discovered, Failed
from layercake.kraken.errors import LayercakeError, Refused
from layercake.kraken.events import Bearing
from layercake.modules.manual_power import ManualPower
from layercake.modules.side import ModuleSide

OF_BOOT = "boot."
"""What the kinds of all events of a boot begin with."""
_WORTH_S = 1.0
"""Seconds for which a wait that was ended too early goes on."""


class ModuleListener:
    """Hears what modules say (host.Listener), and lets nothing through that is not the module's to
    say. `claimed` is told what is said of a machine that claims a node's place."""

    def __init__(
        self,
        store: Store,
        table: Table,
        engine: Engine,
        sync: Sync,
        joining: Joining,
        modules: ModuleSide,
        claimed: Callable[[Record, Mapping[str, Any]], None] = lambda record, data: None,
    ) -> None:
        self._store = store
        self._table = table
        self._engine = engine
        self._sync = sync
        self._joining = joining
        self.manual_power = ManualPower(store, engine, sync)
        self.dispatcher = modules.dispatcher
        self._notifier = modules.notifier
        self._log_levels = modules.log_levels
        self._patience = modules.boot_timeouts
        self._set_health = modules.services.set_health
        self._last_health: dict[str, tuple[str, float]] = {}
        self._budget = Budget(self._left_out)
        self._later = Later(self._news)
        self._consequences: Mapping[Bearing, Callable[[Record, Mapping[str, Any]], None]] = {
            Bearing.DOUBT: lambda record, data: self._sync.suspect(record, Loss.FIRMWARE),
            Bearing.ASKS: lambda record, data: self.manual_power.asks(record),
            Bearing.DISPUTE: lambda record, data: self._joining.asked_again(
                record, str(data.get("ip", ""))
            ),
            Bearing.CLAIM: claimed,
            Bearing.PROGRESS: lambda record, data: self._patience.stepped(record),
            Bearing.FIRMWARE: lambda record, data: self._patience.firmware_works(record),
        }

    async def attached(self, module: str) -> None:
        """It gets the nodes, their states and the attempts that are under way; those first that
        have one."""
        self._log_levels.resend(module)
        under_way = self.dispatcher.under_way(module)

        def resend(record: Record) -> None:
            flight = under_way.get(record.node.id)
            if flight is not None and self.dispatcher.by_node.get(flight.node) is flight:
                self.dispatcher.resend(record, module)  # what has begun since is sent by itself

        await self._notifier.everything(self._table.modules[module], under_way, resend)

    def detached(self, module: str) -> None:
        """It is started again by the manager."""
        self._store.event(
            None, events.SERVICE_DETACHED, f"module {module} went away", data={"service": module}
        )

    def refused(self, module: str, why: str) -> None:
        """Told at most once a minute."""
        self._store.event(
            None, events.SERVICE_REFUSED, f"module {module}: {why}", data={"service": module}
        )

    def _left_out(self, module: str, count: int) -> None:
        self._store.event(
            None,
            events.SERVICE_FLOODS,
            f"{count_of(count, 'event')} of module {module} left out: it tells too many",
            data={"service": module, "count": count},
        )

    def _own(self, module: str, record: Record, values: Mapping[str, str]) -> None:
        """Raises Refused for a variable of another module, DeclarationError for a value that nobody
        declared."""
        foreign = sorted(values.keys() - self._table.modules[module].discovers)
        if foreign:
            raise Refused(f"variable {foreign[0][:40]!r} is not its to say something about")
        record.planner.layout.pack(values)

    def discovered(self, module: str, node: str, values: Mapping[str, str], why: str) -> None:
        """It found something out. A BMC that says OFF of a node that speaks is not believed before
        the node was asked."""
        record = self._store.find(node)
        if record is None:
            return
        self._own(module, record, values)
        if self._doubted(record, values):
            return
        key = (module, node)
        values = {**self._later.pop(key), **values}
        if record.values().items() >= values.items() or self._budget.admit(key):
            self._engine.discover(record, values, why)
        else:
            self._later.hold(key, values, why)

    def _doubted(self, record: Record, values: Mapping[str, str]) -> bool:
        """Whether a BMC says OFF of a node that speaks: the node is asked before that is believed.
        One that shall go off has a BMC that lies if it answers; any other one is lost if it does
        not."""
        if values.get("power") != "OFF" or not self._sync.speaks(record):
            return False
        active = record.machine.active
        if (
            active is not None
            and active.mine
            and record.planner.mutation(active.mutation).cuts_power
        ):
            self._sync.probe(record, partial(self._switched_off, record, active))
        else:
            self._sync.suspect(record, Loss.BMC_OFF)
        return True

    def _switched_off(self, record: Record, active: Active, speaks: bool) -> None:
        """Whether a node that its BMC says is off was heard since."""
        if self._store.find(record.node.id) is not record:
            return
        if speaks:
            why = (
                f"cannot power off {record.name}: its BMC says that it is off, and its agent still "
                "answers (hint: the BMC says "
                "something wrong, or is another machine's)"
            )
            self._engine.post(record, Failed(active.mutation, active.attempt, why))
        else:
            self._engine.post(
                record,
                Discovered(
                    {"power": "OFF"}, "the BMC says so, and its agent does not answer any more"
                ),
            )

    def _news(self, key: Key, values: Mapping[str, str], why: str) -> None:
        record = self._store.find(key[1])
        if record is not None:
            self._engine.discover(record, values, why)

    def event(
        self, module: str, node: str, kind: str, severity: str, text: str, data: Mapping[str, Any]
    ) -> None:
        """It adds to a node's history, by one of the kinds that it declares."""
        known = next((e for e in self._table.modules[module].events if e.name == kind), None)
        if known is None:
            raise Refused(f"event kind {kind[:60]!r} is not one that it declares")
        record = self._store.find(node) if node else None
        if self._budget.admit((module, record.node.id if record else "")):
            self._store.event(record, known, text, severity=severity, data=data)
        else:
            self._budget.leave_out(module)
        if record is None:
            return
        if known.name.startswith(OF_BOOT):
            self._patience.noted(record, known.meaning)
        consequence = self._consequences.get(known.bearing)
        if consequence is not None:
            consequence(record, data)

    def result(
        self,
        module: str,
        number: int,
        ok: bool,
        error: str,
        hint: str,
        values: Mapping[str, str],
        after: str = "",
    ) -> None:
        """An attempt ended."""
        flight = self.dispatcher.finished(module, number)
        record = self._store.find(flight.node) if flight is not None else None
        if flight is None or record is None:
            return
        self._later.pop((module, flight.node))
        try:
            self._own(module, record, values)
        except LayercakeError as refusal:
            ok = False
            error = f"module {module} answers nonsense: {refusal.message}"
            hint = ""
            after = ""
        if not ok:
            if (
                record.planner.mutation(flight.mutation).stall
                and (left := self._patience.left(record)) >= _WORTH_S
            ):
                self.dispatcher.start(record, flight.mutation, flight.attempt, left)
                return
            if record.planner.mutation(
                flight.mutation
            ).joins:  # the next attempt has a token of its own
                self._joining.close(record)
            self._engine.post(
                record,
                Failed(
                    flight.mutation,
                    flight.attempt,
                    f"{error} (hint: {hint})" if hint else error,
                    after,
                ),
            )
        elif values and not self._doubted(record, values):
            self._engine.post(record, Discovered(values, f"{flight.mutation} says so"))

    def health(self, module: str, text: str) -> None:
        """It says how it is. The same again is not told again, and of one that cannot make up its
        mind a line a second."""
        self._set_health(module, text)
        said, at = self._last_health.get(module, ("", float("-inf")))
        now = time.monotonic()
        if now - at < 1.0 and (text == said or text != "running"):
            return
        self._last_health[module] = (text, now)
        kind = events.SERVICE_RUNNING if text == "running" else events.SERVICE_UNWELL
        self._store.event(None, kind, f"module {module}: {text}", data={"service": module})
