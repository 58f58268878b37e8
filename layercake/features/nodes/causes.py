"""What keeps nodes from being as wanted, by cause, and what is wrong beside that."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from layercake.base.clock import Clock
from layercake.features.consoles.operations import Consoles
from layercake.features.guard.guard import Guard
from layercake.features.guard.outage import Whole
from layercake.features.nodes.explain import RollOf
from layercake.features.nodes.lists.causes import Beside, Gathered, of_alarms, of_consoles, what_of
from layercake.features.nodes.lists.facts import Unmet
from layercake.features.nodes.views import status_of
from layercake.fleet.store import Record, Store
from layercake.fleet.table import Table
from layercake.moduleapi.event_loop.slices import Once, slowly
from layercake.modules.boot_timeouts import BootTimeouts


class CauseFinder:
    """Finds them."""

    def __init__(
        self,
        store: Store,
        table: Table,
        clock: Clock,
        guard: Guard,
        boot_timeouts: BootTimeouts,
        unmet: Unmet,
        consoles: Consoles,
        roll_of: RollOf,
    ) -> None:
        self._roll_of = roll_of
        self._store = store
        self._table = table
        self._clock = clock
        self._guard = guard
        self._boot_timeouts = boot_timeouts
        self._unmet = unmet
        self._consoles = consoles
        self._of_all = {
            brief: Once(functools.partial(self.of, None, brief), timer=clock)
            for brief in (True, False)
        }

    async def of_all(self, brief: bool) -> dict[str, Any]:
        """Of all nodes, once for all who ask at a time: what every dashboard shows."""
        return await self._of_all[brief].get()

    async def of(self, records: Sequence[Record] | None, brief: bool) -> dict[str, Any]:
        """Of these nodes; None: of all, and of the head itself. `brief` is for viewers."""
        found = Gathered()
        now = self._clock()
        async for record in slowly(list(self._store) if records is None else records):
            stopped = self._guard.stopped(record)
            what = what_of(
                record,
                now,
                self._guard.why(record),
                stopped,
                self._boot_timeouts.last_step(record),
                outage=self._outage_of(record, everybody=records is None),
                frozen=self._guard.freeze is not None,
                brief=brief,
            )
            found.add(record, what, self._unmet.seconds(record), stopped=bool(stopped))

        def example(record: Record) -> str:
            return status_of(record, now, self._guard.why(record), brief=brief)[1]

        beside = [] if brief else await self._beside(records)
        return {
            "well": found.well,
            "causes": found.causes(example, self._roll_of),
            "stopped": sorted(found.stopped),
            "beside": beside,
        }

    def _outage_of(self, record: Record, *, everybody: bool) -> Whole | None:
        """The outage that a node is in; who may not see all nodes is not told of its domains."""
        found = self._guard.outages.of(record.node.id)
        return found if found is None or everybody else found._replace(domains=())

    async def _beside(self, records: Sequence[Record] | None) -> list[Beside]:
        """What is wrong beside that: of these nodes, or, with None, of all, and of the head
        itself."""
        wanted = None if records is None else {record.name for record in records}
        logs, lost = await self._consoles.troubles()
        known = [
            (record, why)
            for key, why in lost.items()
            if (record := self._store.find(key)) is not None
        ]
        return [
            *of_alarms(list(self._store.alarms), wanted, self._store.wall(), self._table.events),
            *of_consoles(
                "" if wanted is not None else logs,
                [(record, why) for record, why in known if wanted is None or record.name in wanted],
            ),
        ]
