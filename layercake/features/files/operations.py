"""Files of nodes: what another state of the directory of files changes, taking it over, and what
nodes have."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from layercake.base.text import first_few
from layercake.features.files import sources
from layercake.features.files.entry import Entry
from layercake.features.files.inventory import Files
from layercake.features.files.node_files import NONE, NodeFiles, shown
from layercake.features.files.sources import Lines, Source
from layercake.fleet import events
from layercake.fleet.store import Record, Store
from layercake.fleet.transaction import Transaction
from layercake.inventory.ranges import fold
from layercake.inventory.schema import Node
from layercake.kraken.errors import InputError, NotFound
from layercake.moduleapi.event_loop.slices import slowly

NAMED = 10
DIFFED = 200
"""So many nodes' files are compared at once."""


class Wanted:
    """The directory of files as somebody wants it in force: those that nodes use, and their
    contents."""

    def __init__(
        self,
        by_path: Mapping[str, Source],
        contents: Mapping[str, bytes],
        users: Mapping[str, list[str]],
    ) -> None:
        self.by_path = by_path
        self.contents = contents
        self.users = users

    @property
    def mark(self) -> str:
        """Stands for it."""
        return " ".join(
            f"{path}={one.digest}{one.executable}" for path, one in sorted(self.by_path.items())
        )


NOTHING_WANTED = Wanted({}, {}, {})
"""Of those who are not told which files there are."""


def _part(node: Node) -> Files:
    found = node.parts.get("files")
    return found if isinstance(found, Files) else NONE


def inline_templates(node: Node) -> set[str]:
    """The keys of a node's files that are templates whose text stands in the entry itself."""
    return {
        key for key, one in _part(node).entries.items() if one.content is not None and one.template
    }


def _is_there(path: str, files: Collection[str], *, tree: bool) -> bool:
    """Whether it is one of the files; of a tree, whether one of them is below it."""
    return any(name.startswith(f"{path}/") for name in files) if tree else path in files


class FileChanges:
    """Operations on files."""

    def __init__(self, store: Store, files: NodeFiles) -> None:
        self._store = store
        self._files = files

    async def wanted(self, nodes: Iterable[Node]) -> Wanted:
        """What these nodes use of the directory, as it is now. Raises InputError for what is
        missing there, or cannot be used."""
        users: dict[str, list[str]] = {}
        single: set[str] = set()
        async for node in slowly(nodes):
            for one in _part(node).entries.values():
                if one.source or one.tree:
                    users.setdefault(one.source or one.tree, []).append(node.name)
                    single |= {one.source}
        if not users:
            return Wanted({}, {}, users)
        files, contents = await asyncio.to_thread(sources.read, self._files.directory)
        for path, names in users.items():
            if not _is_there(path, files, tree=path not in single):
                raise self._missing(path, names)
        wanted = set(users)
        used = {path: one for path, one in files.items() if sources.is_used(path, wanted)}
        digests = {one.digest for one in used.values()}
        return Wanted(
            used, {digest: data for digest, data in contents.items() if digest in digests}, users
        )

    def _missing(self, path: str, names: list[str]) -> InputError:
        have = "has" if len(names) == 1 else "have"
        return InputError(
            f"cannot use the inventory: there is no {path} in {self._files.directory}, and "
            f"{fold(names[:NAMED])} {have} it among the files",
            hint="put it there first",
        )

    async def beside(self, *nodes: Node) -> Wanted:
        """What is in force, and what these nodes use that is not: no other node's files change by
        it. Raises InputError as `wanted`."""
        new = await self.wanted(nodes)
        has = self._files.sources.by_path
        return Wanted({**new.by_path, **has}, new.contents, new.users)

    async def plan(self, wanted: Wanted) -> list[dict[str, Any]]:
        """What becomes of the sources in force, with how many lines come and go, and on how many
        nodes."""
        return await asyncio.to_thread(self._changes, wanted)

    def _changes(self, wanted: Wanted) -> list[dict[str, Any]]:
        old = self._files.sources.by_path
        new = wanted.by_path
        found = []
        for path in sorted({*old, *new}):
            before = old.get(path)
            after = new.get(path)
            if before == after:
                continue
            texts = [
                b""
                if one is None
                else wanted.contents.get(one.digest) or self._files.sources.content(one.digest)
                for one in (before, after)
            ]
            lines = Lines(0, 0) if any(b"\0" in text for text in texts) else sources.counted(*texts)
            names = {
                name
                for used, its in wanted.users.items()
                if sources.is_used(path, {used})
                for name in its
            }
            found.append({**sources.to_record(path, before, after, lines), "nodes": len(names)})
        return found

    async def store(self, wanted: Wanted) -> None:
        """Writes the contents, before anything refers to them. Raises OperationFailed."""
        await asyncio.to_thread(self._files.sources.store, wanted.contents)

    def activate(self, transaction: Transaction, wanted: Wanted, by: str) -> list[str]:
        """Has these in force once all is on disk; the paths that are others than before."""
        old = self._files.sources.by_path
        changed = [
            path
            for path in sorted({*old, *wanted.by_path})
            if old.get(path) != wanted.by_path.get(path)
        ]
        if changed:
            key, data = self._files.sources.document(wanted.by_path)
            transaction.documents[key] = lambda: data
            transaction.after(lambda: self._files.sources.use(wanted.by_path))
            transaction.event(
                None,
                events.FILES_CHANGED,
                f"files by {by}: {first_few(changed, NAMED)}",
                data={"sources": changed[:NAMED]},
            )
        return changed

    # ---- what nodes have
    # -----

    async def show(self, name: str) -> dict[str, Any]:
        """A node's files, without their contents, and what it last said of them. Raises
        NotFound."""
        record = self._store.named(name)
        manifest = await self._files.manifest(record)
        said = self._files.said.get(record.node.id, {})
        return {
            "node": name,
            "current": said.get("mark") == manifest.mark,
            "waiting": said.get("waiting", []),
            "errors": said.get("errors", []),
            "files": [_view(entry) for entry in manifest.entries],
        }

    async def content(self, name: str, path: str, *, bound: bool = False) -> list[dict[str, Any]]:
        """What is in a node's files of this path, one for each target; never a secret, and to who
        is `bound` to groups nothing that may tell of others. Raises NotFound."""
        manifest = await self._files.manifest(self._store.named(name))
        target, inner, rest = path.partition(":/")  # as the inventory has it: metadata:/user-data
        found = [
            {"for": list(e.targets), "text": shown(e, bound=bound), "error": e.error}
            for e in manifest.entries
            if e.path == path
            or (inner and e.path == f"/{rest}" and {*target.split(",")} <= {*e.targets})
        ]
        if not found:
            raise NotFound(
                f"cannot find {path[:200]} among the files of {name}",
                hint=f"see `layercake files show {name}`",
            )
        return found

    async def diff(
        self, text: str, nodes: Mapping[str, Node], *, bound: bool = False
    ) -> list[dict[str, Any]]:
        """How the files of the nodes of a range change when these entries, and the directory as it
        is now, come into force; without entries, those that are. Nodes with the same change are
        one. `bound` as for `content`. Raises InputError."""
        records = self._store.select(text)
        if len(records) > DIFFED:
            raise InputError(
                f"cannot compare the files of {len(records)} nodes: {DIFFED} are possible",
                hint="name a range",
            )
        entries = {r.name: nodes.get(r.name, r.node) for r in records}
        wanted = await self.wanted(entries.values())
        found: dict[tuple[str, str, str, str], list[str]] = {}
        for record in records:
            before = (await self._files.manifest(record)).entries
            other = record.copy()
            other.node = entries[record.name]
            after = await self._files.rendered(
                other, _part(other.node), wanted.by_path, wanted.contents
            )
            for change in _changed(before, after, bound=bound):
                found.setdefault(change, []).append(record.name)
        return [
            {"nodes": names, "for": target, "path": path, "diff": diff, "on_change": action}
            for (target, path, diff, action), names in found.items()
        ]

    def known_hosts(self, records: Iterable[Record]) -> str:
        """Lines for ~/.ssh/known_hosts of nodes that have a host key already."""
        return self._files.known_hosts(records)


def _view(entry: Entry) -> dict[str, Any]:
    return {
        "for": list(entry.targets),
        "path": entry.path,
        "size": len(entry.data),
        "mode": entry.mode,
        "owner": entry.owner,
        "group": entry.group,
        "on_change": entry.on_change,
        "secret": entry.secret,
        "left": entry.leave,
        "error": entry.error,
    }


def _changed(
    before: Iterable[Entry], after: Iterable[Entry], *, bound: bool
) -> Iterable[tuple[str, str, str, str]]:
    """(targets, path, unified diff, what is done then) of each file that is another."""
    old, new = ({(",".join(e.targets), e.path): e for e in entries} for entries in (before, after))
    for key in dict.fromkeys([*old, *new]):
        first = old.get(key)
        second = new.get(key)
        if (
            first is not None
            and second is not None
            and (first.digest, first.error) == (second.digest, second.error)
        ):
            continue
        lines = [_lines(one, bound=bound) for one in (first, second)]
        yield (
            *key,
            "".join(difflib.unified_diff(lines[0], lines[1], key[1], key[1])),
            second.on_change if second else "",
        )


def _lines(entry: Entry | None, *, bound: bool) -> list[str]:
    if entry is None or entry.leave:
        return []
    about = (
        []
        if (entry.mode, entry.owner, entry.group) == ("0644", "root", "root")
        else [f"(mode {entry.mode}, {entry.owner}:{entry.group})\n"]
    )
    text = f"(cannot be made: {entry.error})\n" if entry.error else shown(entry, bound=bound)
    return about + [
        line if line.endswith("\n") else f"{line}\n" for line in text.splitlines(keepends=True)
    ]
