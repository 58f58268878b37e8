"""Which nodes a query means: `image=ERROR and unchanged>5m`, asked of the nodes as they are now."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence

from layercake.base.clock import Clock
from layercake.features.nodes.lists.facts import RecordFacts, Unmet, ValuesOf
from layercake.features.nodes.lists.query import MoreNames, parse
from layercake.features.nodes.views import Status
from layercake.fleet.guard_state import Verdict
from layercake.fleet.store import Record, Store
from layercake.fleet.table import Table
from layercake.inventory.fields import IMAGE
from layercake.kernel.feature import NodeField
from layercake.kraken.errors import LayercakeError
from layercake.moduleapi.event_loop.slices import slowly

MOST_IMAGES = 100
"""So many words of a query are looked up among the images."""


class NodeQueries:
    """Answers queries. `why` says why the guard has a node stopped, `fields` are what features know
    of nodes besides, `image` gives an image by its name, or raises LayercakeError."""

    def __init__(
        self,
        store: Store,
        table: Table,
        clock: Clock,
        unmet: Unmet,
        why: Callable[[Record], Verdict | None],
        fields: Callable[[], Mapping[str, NodeField]] = dict,
        image: Callable[[str], object] | None = None,
    ) -> None:
        self._store = store
        self._table = table
        self._clock = clock
        self._unmet = unmet
        self._why = why
        self._fields = fields
        self._image = image

    async def _existing(
        self, records: Sequence[Record], images: set[str]
    ) -> dict[str, Collection[str]]:
        """The values that some names have, and these images: what no node has is asked for by
        mistake."""
        found: dict[str, set[str]] = {"group": set(), "network": set(), "images": images}
        found["status"] = {status.value for status in Status}
        async for record in slowly(records):
            found["group"].update(record.node.groups)
            found["network"].add(record.node.network)
            found["images"].update(record.node.images)
            found["images"].update(image.name for image in record.running)
        return {name: sorted({*values} - {""}) for name, values in found.items() if values - {""}}

    def _images(self, where: str) -> set[str]:
        """The images that a query names and the site has, whether a node has them or not."""
        found: set[str] = set()
        if self._image is None or "image" not in where:
            return found
        for word in sorted({match[0] for match in IMAGE.finditer(where)})[:MOST_IMAGES]:
            with contextlib.suppress(LayercakeError):
                self._image(word)
                found.add(word)
        return found

    async def matching(
        self, records: Sequence[Record], where: str, *, brief: bool = False, bound: bool = False
    ) -> list[Record]:
        """The records that a query means (lists/query.py), a few at a time: whatever else the head
        has to do goes first. `brief`: of a viewer, who asks for nothing that he is not shown;
        `bound`: of somebody who sees no more than these records. Raises InputError for one that is
        none, or that asks for what there is not."""
        fields = [f for f in self._fields().values() if not (f.private and brief)]
        values_of = {name: of for field in fields for name, of in field.values.items()}
        amounts = {name for field in fields for name in field.amounts}
        visible = records if bound else list(self._store)
        more = await self._more(visible, where, values_of)
        existing = await self._existing(visible, set() if bound else self._images(where))
        query = parse(
            where,
            {v.name: v.values for v in self._table.variables},
            len(self._store),
            brief=brief,
            existing=existing
            | {name: sorted(map(str, found)) for name, found in more.items() if found},
            more=_names(more, amounts),
        )
        now = self._clock()
        return [
            record
            async for record in slowly(records)
            if query.test(RecordFacts(record, now, self._unmet, self._why, values_of))
        ]

    @staticmethod
    async def _more(
        records: Sequence[Record], where: str, values_of: ValuesOf
    ) -> dict[str, set[str | int]]:
        """The values that there are of names that features add, of those that stand in a query."""
        found: dict[str, set[str | int]] = {name: set() for name in values_of}
        asked = [name for name in values_of if name in where]
        if asked:
            async for record in slowly(records):
                for name in asked:
                    found[name].update(values_of[name](record))
        return {name: values - {""} for name, values in found.items()}


def _names(more: Mapping[str, set[str | int]], amounts: Collection[str]) -> MoreNames:
    """The names that features add, and of amounts the numbers that there are."""
    texts = [name for name in more if name not in amounts]
    numbers = {name: [n for n in more[name] if not isinstance(n, str)] for name in amounts}
    return MoreNames(texts, numbers)
