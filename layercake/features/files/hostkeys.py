"""The nodes' SSH host keys: made once for each, kept with the state, and gone with the node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from layercake.fleet.desired import DesiredState
from layercake.fleet.store import Record, Store

DOCUMENTS = "hostkey/"


class HostKey(NamedTuple):
    """A key as OpenSSH has it: the private part is a PEM text, the public one a line without a
    comment."""

    private: str
    public: str


def make() -> HostKey:
    """A new one, of Ed25519 (RFC 8709)."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return HostKey(private.decode(), public.decode())


class HostKeys:
    """Those of all nodes, by their ids."""

    def __init__(self, store: Store, desire: DesiredState) -> None:
        self._store = store
        self._desire = desire
        self._kept: dict[str, HostKey] = {}

    def load(self, documents: Mapping[str, bytes]) -> None:
        """Takes over what was made."""
        self._kept = {
            key.removeprefix(DOCUMENTS): msgspec.json.decode(data, type=HostKey)
            for key, data in documents.items()
        }

    async def of(self, record: Record) -> HostKey:
        """A node's key. A new one is on disk before anybody has it. Raises OperationFailed if it
        cannot be written."""
        node = record.node.id
        if node not in self._kept:
            async with self._desire.transaction(revises=False) as transaction:
                if node not in self._kept:
                    made = make()
                    data = msgspec.json.encode(made)
                    transaction.documents[DOCUMENTS + node] = lambda: data
                    transaction.after(lambda: self._kept.setdefault(node, made))
        return self._kept[node]

    def public(self, record: Record) -> str:
        """The public part, "" of a node that has none yet."""
        found = self._kept.get(record.node.id)
        return found.public if found is not None else ""

    def forget(self, record: Record) -> None:
        """A node is gone, and its key."""
        if self._kept.pop(record.node.id, None) is not None:
            self._store.documents[DOCUMENTS + record.node.id] = bytes
