"""What is wanted of nodes, and how that is put down: the one place where a desired state or image set changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from imageapi.spec.order import start_order
from layercake.head.hosting.table import Table
from layercake.head.state.database import Database
from layercake.head.state.engine import Engine
from layercake.head.state.store import Record, Store, WantedImage
from layercake.kraken.converge import DesiredChanged
from layercake.kraken.variables import Goal


def check_set(images: Iterable[WantedImage]) -> None:
    """Raises InputError if the images could never be started together: a dependency that is missing, or a circle."""
    start_order({image.name: image.container.get("depends") or () for image in images})


class Desire:
    """Changes what is wanted. `find` gives an image of the store by its name, or raises NotFound."""

    def __init__(self, store: Store, engine: Engine, database: Database, table: Table, find: Callable[[str], WantedImage]) -> None:
        self._store = store
        self._engine = engine
        self._database = database
        self._table = table
        self.image = find

    def goal_values(self, state: str, images: Iterable[object]) -> dict[str, str]:
        """{variable: value} that is wanted of a node in a desired state, with these images."""
        return self._table.goal_values(state, empty=not tuple(images))

    def images(self, record: Record, names: Iterable[str], *, anew: bool = False) -> None:
        """Wants images by their names. One that was wanted before keeps its content, also if its name points to other content by
        now: only a roll, with `anew`, moves a node to that. The caller has the node told (Sync.push)."""
        held = {} if anew else {i.name: i for i in record.wanted}
        self.want(record, tuple(held.get(name) or self.image(name) for name in names))

    def want(self, record: Record, images: tuple[WantedImage, ...]) -> None:
        """Wants an image set of a node and lets the engine know. The caller has the node told."""
        fresh, record.wanted = images != record.wanted, images
        names = tuple(i.name for i in images)
        if record.node.images != names:
            record.node = dataclasses.replace(record.node, images=names)
        record.cfg_revision += 1
        self._store.mark(record)
        self._engine.post(record, DesiredChanged(self._goal(record), fresh))

    def again(self, record: Record) -> None:
        """What is ordered of a node's power has changed: its goal and its planner follow. The caller has the node told."""
        order = record.care.order
        record.planner = self._table.planner_for(record.node, forced=order is not None and order.force)
        record.cfg_revision += 1
        self._store.mark(record)
        self._engine.post(record, DesiredChanged(self._goal(record)))

    def _goal(self, record: Record) -> Goal:
        return record.planner.layout.goal(self.goal_values(record.meant, record.wanted))

    def stage(self, record: Record, images: tuple[WantedImage, ...]) -> None:
        """Wants a node to have images ready, beside what it runs. What it said it has ready of other ones counts no more."""
        record.stage, record.stage_error = images, ""
        record.staged = record.staged & {i.digest for i in images}
        record.cfg_revision += 1
        self._store.mark(record)

    async def settle(self) -> None:
        """Returns when all changes are on disk. Raises OperationFailed."""
        self._store.revision += 1
        await self._database.flush(self._store)
