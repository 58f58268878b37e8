"""The site's networks, as the inventory in force has them: what is told of a node's, and what
another inventory changes of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from layercake.fleet.transaction import Transaction
from layercake.inventory.changes import Action, Change, is_empty
from layercake.inventory.schema import Node
from layercake.moduleapi.network import Network, network_record

DOCUMENTS = "networks/"
_DOCUMENT = DOCUMENTS + "site"


class SiteNetworks:
    """The networks by name. A node says by its name which it is in (schema.Node.network)."""

    def __init__(self) -> None:
        self.by_name: Mapping[str, Network] = {}
        self._records: dict[str, dict[str, Any]] = {}

    def load(self, documents: Mapping[str, bytes]) -> None:
        """Reads what was written; keys that a newer head wrote mean nothing to this one."""
        text = documents.get(_DOCUMENT)
        self._set(msgspec.json.decode(text, type=dict[str, Network]) if text else {})

    def of(self, node: Node) -> Mapping[str, Any] | None:
        """What modules are told of a node's network (network_record), None for a node that
        is in none of them."""
        return self._records.get(node.network)

    def named(self, name: str) -> Mapping[str, Any] | None:
        """What modules are told of the network of this name, None if there is none."""
        return self._records.get(name)

    def changes(self, new: Mapping[str, Network]) -> list[Change]:
        """What becomes of them: a change's `node` is a network here."""
        found = [
            Change(name, Action.REMOVE, _fields(network, None))
            for name, network in self.by_name.items()
            if name not in new
        ]
        for name, network in new.items():
            old = self.by_name.get(name)
            if old != network:
                found.append(
                    Change(
                        name, Action.ADD if old is None else Action.CHANGE, _fields(old, network)
                    )
                )
        return found

    def replace(self, transaction: Transaction, new: Mapping[str, Network]) -> None:
        """Has these in the place of the others, once they are on disk."""
        data = msgspec.json.encode(new)
        transaction.documents[_DOCUMENT] = lambda: data
        transaction.after(self._set, new)

    def _set(self, new: Mapping[str, Network]) -> None:
        self.by_name = dict(new)
        self._records = {name: network_record(name, network) for name, network in new.items()}


def _fields(old: Network | None, new: Network | None) -> dict[str, tuple[Any, Any]]:
    before, after = (
        {} if n is None else {k: _plain(v) for k, v in msgspec.structs.asdict(n).items()}
        for n in (old, new)
    )
    pairs = {key: (before.get(key), after.get(key)) for key in {**before, **after}}
    return {
        key: pair
        for key, pair in pairs.items()
        if pair[0] != pair[1] and not (is_empty(pair[0]) and is_empty(pair[1]))
    }


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else None if value == {} else value
