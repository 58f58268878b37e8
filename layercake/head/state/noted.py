"""The few nodes that something holds of, without a look at all of them each second."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from layercake.head.state.store import Record, Store


class Noted:
    """The nodes of which `holds` was true when they last changed. Each change has to be marked in the store."""

    def __init__(self, store: Store, holds: Callable[[Record], bool]) -> None:
        self._store, self._holds = store, holds
        self._changed: set[str] | None = None  # None: nobody has looked yet
        self._found: dict[str, None] = {}
        store.watch(self._note)

    def _note(self, key: str) -> None:
        if self._changed is not None:
            self._changed.add(key)

    def look(self) -> Iterator[Record]:
        """These nodes, as they are now. At the first look all nodes are looked at, later those that have changed since."""
        keys = self._changed if self._changed is not None else {r.node.id for r in self._store}
        self._changed = set()
        for key in keys:
            record = self._store.find(key)
            if record is not None and self._holds(record):
                self._found[key] = None
            else:
                self._found.pop(key, None)
        for key in list(self._found):
            record = self._store.find(key)
            if record is not None:
                yield record
