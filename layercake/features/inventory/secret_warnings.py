"""Where secrets go: what a person should know of it before and after an inventory is wanted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from layercake.base.clock import Clock
from layercake.base.secrets import SecretRef, Vault, within
from layercake.fleet.store import Store
from layercake.inventory.ranges import fold
from layercake.inventory.schema import Node
from layercake.kraken.errors import InputError
from layercake.moduleapi.event_loop.slices import slowly
from layercake.moduleapi.module import Part, references

LOOK_S = 60.0
"""How often the files of secrets are looked at, at most."""


def warnings(nodes: Iterable[Node], parts: Mapping[str, Part], vault: Vault) -> list[str]:
    """What is wrong with how secrets lie and travel; the nodes of each are folded into one line."""
    found: dict[str, list[str]] = {}
    checked: dict[SecretRef, list[str]] = {}
    for node in nodes:
        for module, part in node.parts.items():
            said = list(parts[module].warnings(part)) if module in parts else []
            for ref in references(part):
                if ref not in checked:
                    checked[ref] = check_secret(ref, vault)
                said += checked[ref]
            for text in said:
                found.setdefault(text, []).append(node.name)
    return [f"{fold(names)}: {text}" for text, names in found.items()]


class Warnings:
    """The same of the nodes that a head has. Looked for on a thread, and again when the inventory
    or a minute is another."""

    def __init__(self, store: Store, parts: Mapping[str, Part], vault: Vault, clock: Clock) -> None:
        self._store = store
        self._parts = parts
        self._vault = vault
        self._clock = clock
        self._seen: tuple[int, int] = (-1, -1)
        self._found: list[str] = []

    async def now(self) -> list[str]:
        """All of them, a line each."""
        seen = (self._store.revision, int(self._clock() // LOOK_S))
        if seen != self._seen:
            self._seen = seen
            nodes = [r.node for r in self._store]
            self._found = await asyncio.to_thread(warnings, nodes, self._parts, self._vault)
        return self._found


def refuse_outside(nodes: Iterable[Node], directory: Path) -> None:
    """Raises InputError for a secret that would be read from elsewhere than the directory of
    secrets."""
    seen: set[str] = set()
    for node in nodes:
        for ref in (ref for part in node.parts.values() for ref in references(part)):
            if ref.file is not None and ref.file not in seen:
                seen.add(ref.file)
                within(directory, Path(ref.file))


def check_secret(ref: SecretRef, vault: Vault) -> list[str]:
    """What is wrong with a secret itself."""
    found: list[str] = []
    try:
        vault.open(ref, found.append)
    except InputError as error:
        found.append(error.message)
    return found


async def moved(
    pairs: list[tuple[Node, Node]], nodes: Iterable[Node], parts: Mapping[str, Part]
) -> list[dict[str, Any]]:
    """The secrets that would go to another place than before when nodes become others, (before,
    after) in `pairs`: those of the nodes themselves, and those that are of others of all `nodes`
    already. One for each node that changes."""
    told = (sent_elsewhere(old, new, parts) for old, new in pairs)
    found = {one["node"]: one async for one in slowly(told) if one}
    newly = [
        (new.name, ref, to)
        async for old, new in slowly(pairs)
        if new.name not in found
        for ref, to in _sent(new, parts) - _sent(old, parts)
    ]
    owners = await _owners({ref for _, ref, _ in newly}, nodes, parts)
    for name, ref, to in newly:
        if ref in owners and owners[ref][0] != name and owners[ref][1] != to:
            owner, place = owners[ref]
            found[name] = {"node": name, "from": f"{place}, as {owner}'s", "to": to}
    return list(found.values())


async def _owners(
    refs: set[SecretRef], nodes: Iterable[Node], parts: Mapping[str, Part]
) -> dict[SecretRef, tuple[str, str]]:
    """The first node that has each of these secrets, with where it goes."""
    owners: dict[SecretRef, tuple[str, str]] = {}
    async for node in slowly(nodes if refs else ()):
        for ref, to in _sent(node, parts):
            if ref in refs:
                owners.setdefault(ref, (node.name, to))
    return owners


def _sent(node: Node, parts: Mapping[str, Part]) -> set[tuple[SecretRef, str]]:
    """A node's secrets, with where each goes."""
    return {
        (ref, parts[module].secret_to(part))
        for module, part in node.parts.items()
        if module in parts
        for ref in references(part)
    }


def sent_elsewhere(old: Node, new: Node, parts: Mapping[str, Part]) -> dict[str, Any] | None:
    """Where a node's secrets would go that did not go there before: {"node", "from", "to"}; None if
    they stay."""
    for module, part in new.parts.items():
        before = old.parts.get(module)
        if module not in parts or before is None or not references(part):
            continue
        was = parts[module].secret_to(before)
        to = parts[module].secret_to(part)
        if was != to:
            return {"node": new.name, "from": was, "to": to}
    return None
