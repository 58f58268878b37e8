"""Which nodes a query means: `image=ERROR and unchanged>5m`, asked of the nodes as they are now."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from layercake.base.clock import Clock
from layercake.features.nodes.lists.facts import RecordFacts, Unmet
from layercake.features.nodes.lists.query import parse
from layercake.features.nodes.views import Status
from layercake.fleet.guard_state import Verdict
from layercake.fleet.store import Record, Store
from layercake.fleet.table import Table
from layercake.kernel.slices import slowly


class NodeQueries:
    """Answers queries. `why` says why the guard has a node stopped."""

    def __init__(
        self,
        store: Store,
        table: Table,
        clock: Clock,
        unmet: Unmet,
        why: Callable[[Record], Verdict | None],
    ) -> None:
        self._store = store
        self._table = table
        self._clock = clock
        self._unmet = unmet
        self._why = why

    async def _existing(self, records: Sequence[Record]) -> dict[str, Collection[str]]:
        """The values that some names have: what no node has is asked for by mistake."""
        found: dict[str, set[str]] = {"group": set(), "network": set(), "images": set()}
        async for record in slowly(records):
            found["group"].update(record.node.groups)
            found["network"].add(record.node.network)
            found["images"].update(record.node.images)
            found["images"].update(image.name for image in record.running)
        return {name: sorted({*values} - {""}) for name, values in found.items() if values - {""}}

    async def matching(
        self, records: Sequence[Record], where: str, *, brief: bool = False, bound: bool = False
    ) -> list[Record]:
        """The records that a query means (lists/query.py), a few at a time: whatever else the head
        has to do goes first. `brief`: of a viewer, who asks for nothing that he is not shown;
        `bound`: of somebody who sees no more than these records. Raises InputError for one that is
        none, or that asks for what there is not."""
        values = {v.name: v.values for v in self._table.variables}
        existing: dict[str, Collection[str]] = {"status": [status.value for status in Status]}
        existing |= await self._existing(records if bound else list(self._store))
        test = parse(where, values, len(self._store), brief=brief, existing=existing).test
        now = self._clock()
        return [
            record
            async for record in slowly(records)
            if test(RecordFacts(record, now, self._unmet, self._why))
        ]
