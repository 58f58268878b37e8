"""The nodes that have changed, and the few that something holds of, without a look at all of them
each second."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from layercake.fleet.store import Record, Store


class Changed:
    """The ids of the nodes that have changed, or are new, since they were taken last. Each change
    has to be marked in the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._keys: set[str] | None = None  # None: nobody has taken any yet
        store.watch(self._note)
        store.on_adopted(lambda record: self._note(record.node.id))

    def _note(self, key: str) -> None:
        if self._keys is not None:
            self._keys.add(key)

    def drain(self) -> Iterable[str]:
        """Those; the first time all nodes."""
        keys = self._keys if self._keys is not None else [record.node.id for record in self._store]
        self._keys = set()
        return keys

    def begin_anew(self) -> None:
        """The next time it is all nodes again: what was made of the last ones is not sure."""
        self._keys = None


class Noted:
    """The nodes of which `holds` was true when they last changed. Each change has to be marked in
    the store."""

    def __init__(self, store: Store, holds: Callable[[Record], bool]) -> None:
        self._store = store
        self._holds = holds
        self._changed = Changed(store)
        self._found: dict[str, None] = {}

    def records(self) -> Iterator[Record]:
        """These nodes, as they are now. At the first look all nodes are looked at, later those that
        have changed since."""
        for key in self._changed.drain():
            record = self._store.find(key)
            if record is not None and self._holds(record):
                self._found[key] = None
            else:
                self._found.pop(key, None)
        for key in list(self._found):
            record = self._store.find(key)
            if record is not None:
                yield record
