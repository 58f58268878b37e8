"""A key of the cluster for each node: who takes one node's key has no other's, and one is made anew
without touching the rest.

    DIR/node-keys.json      {"pool", "keys": {node: {"user", "key"}}, "old": {node: [user]}}

A node's client may read the pool of images and nothing else. A new key is a new client: the kernel
of a node that has images attached goes on with the client that it has, until its next boot, and
only then may the old one go.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from imageapi.spec.attachment import RBD_NAME
from layercake.base.files import read_json, write_json
from layercake.kraken.errors import InputError

AT_ONCE = 100
"""Clients made by one job."""


class ClusterJobs(Protocol):
    """Who talks to the cluster (rbdstore.py)."""

    def run(self, op: str, what: str, **more: Any) -> dict[str, Any]:
        """One job to rbdworker.py. Blocks. Raises LayercakeError."""


class NodeKeys:
    """The keys. Those that block say so. Any thread may call."""

    def __init__(self, file: Path, pool: str, jobs: ClusterJobs) -> None:
        self._file = file
        self._pool = pool
        self._jobs = jobs
        self._lock = threading.Lock()
        nothing: dict[str, Any] = {"pool": pool, "keys": {}, "old": {}}
        try:
            stored = read_json(file) or nothing
        except ValueError as error:
            raise InputError(
                f"cannot read {file}: {error}", hint="remove it: nodes get new keys"
            ) from None
        self._known = stored if stored.get("pool") == pool else nothing

    def of(self, node: str) -> tuple[str, str] | None:
        """(client, key) of a node, None if it has none of its own."""
        entry = self._known["keys"].get(node)
        return None if entry is None else (entry["user"], entry["key"])

    def make(self, nodes: Iterable[str], *, anew: bool = False) -> list[str]:
        """Makes keys for nodes without one, or `anew` for all of these; the nodes that have another
        now. Blocks.

        Raises LayercakeError; what was made until then counts.
        """
        with self._lock:
            wanted = [n for n in nodes if anew or n not in self._known["keys"]]
            for start in range(0, len(wanted), AT_ONCE):
                users = {node: self._next(node) for node in wanted[start : start + AT_ONCE]}
                new_keys = self._jobs.run(
                    "node_keys", "make keys for nodes", users=sorted(users.values())
                )["keys"]
                keys = dict(self._known["keys"])
                old = dict(self._known["old"])
                for node, user in users.items():
                    if node in keys:
                        old[node] = [*old.get(node, ()), keys[node]["user"]]
                    keys[node] = {"user": user, "key": new_keys[user]}
                self._save(keys, old)
            return wanted

    def rename(self, names: Iterable[tuple[str, str]]) -> None:
        """Nodes have other names, (old, new) each, and keep their clients: what they have attached
        goes on with those. Blocks."""
        with self._lock:
            keys = dict(self._known["keys"])
            old = dict(self._known["old"])
            for before, after in names:
                for kept in (keys, old):
                    if before in kept:
                        kept[after] = kept.pop(before)
            self._save(keys, old)

    def _next(self, node: str) -> str:
        """The name of a node's next client. Raises InputError."""
        stem = f"layercake-node-{self._pool}.{node}"
        current = self._known["keys"].get(node)
        number = re.search(r"\.g([0-9]{1,9})$", current["user"]) if current else None
        user = stem if current is None else f"{stem}.g{int(number[1]) + 1 if number else 2}"
        used = {one["user"] for one in self._known["keys"].values()}
        used.update(*self._known["old"].values())
        at = 2
        while user in used:  # of a node that had the name before
            user = f"{stem}.g{at}"
            at += 1
        if not RBD_NAME.fullmatch(user):
            raise InputError(
                f"cannot make a key for {node[:80]}: client.{user[:120]} is no name that Ceph and "
                "the kernel take",
                hint="a shorter name of the node or the pool",
            )
        return user

    def drop_old(self, nodes: Iterable[str], known: Iterable[str]) -> list[str]:
        """Takes the clients away that these nodes had before, and all of nodes that are not `known`
        any more. Blocks.

        Raises LayercakeError. Returns the clients.
        """
        with self._lock:
            keys = dict(self._known["keys"])
            old = dict(self._known["old"])
            dropped = {*keys, *old} - {*known}
            users = [u for node in {*nodes, *dropped} for u in old.pop(node, ())] + [
                keys.pop(node)["user"] for node in dropped & {*keys}
            ]
            if users:
                self._jobs.run("drop_keys", "take old keys of nodes away", users=sorted(users))
                self._save(keys, old)
            return sorted(users)

    def _save(self, keys: dict[str, Any], old: dict[str, Any]) -> None:
        known = {"pool": self._pool, "keys": keys, "old": old}
        self._file.parent.mkdir(parents=True, exist_ok=True)
        write_json(self._file, known, durable=True)
        self._known = known
