"""What is read out of the repository: the log, a whole inventory, what differs, who said which
line, and what an undo needs. In the worker's process."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from layercake.features.history import messages, normal
from layercake.features.history.normal import Fields
from layercake.features.history.repository import BRANCH, NoSuchRevision, Repository
from layercake.features.history.undo import undo

MOST_LOGGED = 1000
MOST_NAMED = 500_000
"""Nodes that a log names; where that is too few, it has fewer changes than asked for."""
MOST_PATHS = 50
"""Files that git itself is asked for; of more all are read, and those that are meant are kept."""
PAGE = 100
"""Changes that are read together then."""
_ENTRY = "%x02%H%x01%at%x01%an%x01%B%x01"
Options = Mapping[str, Any]
"""`nodes`: the names of the nodes that may be seen or are asked for, None for all; `groups`: those
that an entry has to be in to be seen, None for any."""


def log(repository: Repository, options: Options) -> list[dict[str, Any]]:
    """The newest changes, the newest first: `limit` of them, from `revision` on; with `nodes` those
    of these nodes, and which of them each changes. `bound`: what each does says no more than
    that."""
    if not repository.head():
        return []
    nodes = options.get("nodes")
    if nodes is not None and not nodes:
        return []
    found: list[dict[str, Any]] = []
    limit = min(int(options["limit"]), MOST_LOGGED)
    named = 0
    start = repository.resolve(options.get("revision") or BRANCH)
    for logged in _changes(repository, start, limit, _paths(nodes)):
        if len(found) == limit or named > MOST_NAMED:
            break
        named += len(logged.nodes)
        if options.get("bound"):
            logged.what = messages.of_nodes(logged.nodes)
        found.append(msgspec.to_builtins(logged))
    return found


def _changes(
    repository: Repository, start: str, limit: int, paths: Sequence[str]
) -> Iterator[messages.ChangeLogged]:
    """The changes from one on back, of a few files or of all; of many files git would look for each
    of them in each change."""
    if len(paths) <= MOST_PATHS:
        yield from _page(repository, start, paths, 0, limit)
        return
    wanted = set(map(normal.name_of, paths))
    for at in itertools.count(step=PAGE):
        page = _page(repository, start, [normal.NODES], at, PAGE)
        for logged in page:
            logged.nodes = [name for name in logged.nodes if name in wanted]
            if logged.nodes:
                yield logged
        if len(page) < PAGE:
            return


def _page(
    repository: Repository, start: str, paths: Sequence[str], skipped: int, most: int
) -> list[messages.ChangeLogged]:
    # A node that was renamed is followed: its entry is the same, to the letter.
    followed = len(paths) == 1 and paths[0].endswith(normal.SUFFIX)
    renames = ("--follow", "-M100%") if followed else ("--no-renames",)
    raw = repository.run(
        "log",
        f"--max-count={most}",
        f"--skip={skipped}",
        f"--format={_ENTRY}",
        *(("--name-only", *renames) if paths else ()),
        start,
        "--",
        *paths,
    ).decode("utf-8", "replace")
    found = []
    for one in raw.split("\x02")[1:]:
        revision, at, by, body, files = one.split("\x01")
        logged = messages.read(revision, at, by, body)
        logged.nodes = [normal.name_of(path) for path in files.split("\n") if path]
        found.append(logged)
    return found


def show(repository: Repository, options: Options) -> dict[str, Any]:
    """The inventory at a revision, as a text that `plan` and `apply` take."""
    commit = repository.resolve(options["revision"])
    files = repository.tree(commit)
    nodes = options.get("nodes")
    hidden = options.get("open")
    if nodes is not None:
        paths = set(_paths(nodes))
        files = {path: one for path, one in files.items() if path in paths}
    texts = repository.contents(files.values())
    parts: dict[str, list[str]] = {normal.NETWORKS: [], normal.NODES: []}
    groups: dict[str, bool] = {}
    for path in sorted(files, key=lambda path: (path.partition("/")[0], normal.name_of(path))):
        fields = normal.parse(texts[files[path]])
        if not _is_of(fields, options):
            continue
        if hidden is not None:
            fields = {key: value for key, value in fields.items() if key in hidden}
        section = normal.NODES if path.startswith(normal.NODES) else normal.NETWORKS
        for group in fields.get("groups", ()):
            groups[group] = groups.get(group, False) or group in fields.get("domains", ())
        parts[section].append(f"  {normal.name_of(path)}:\n{_lines(normal.entry_of(fields))}")
    lines = [f"  {name}: {{domain: {str(groups[name]).lower()}}}\n" for name in sorted(groups)]
    sections = (
        ("networks", parts[normal.NETWORKS]),
        ("groups", lines),
        ("nodes", parts[normal.NODES]),
    )
    text = "".join(f"{name}:\n{''.join(part)}" for name, part in sections if part)
    return {"revision": commit, "yaml": text}


def _lines(entry: Mapping[str, Any]) -> str:
    return "".join(f"    {key}: {json.dumps(entry[key])}\n" for key in sorted(entry))


def diff(repository: Repository, options: Options) -> dict[str, Any]:
    """What differs between two revisions: {"before", "after", "changes", "networks"}."""
    before, after = (repository.resolve(options[key]) for key in ("before", "after"))
    nodes = options.get("nodes")
    if nodes is not None and not nodes:
        changed = {}
    else:
        changed = _changed(repository, before, after, _paths(nodes))
    old, new = (
        {path: fields for path, fields in files.items() if _is_of(fields, options)}
        for files in _both(repository, changed)
    )
    found: dict[str, list[dict[str, Any]]] = {normal.NODES: [], normal.NETWORKS: []}
    for path in sorted(old.keys() | new.keys(), key=normal.name_of):
        if old.get(path) == new.get(path):
            continue
        record = normal.change_record(normal.name_of(path), old.get(path), new.get(path))
        section = normal.NODES if path.startswith(normal.NODES) else normal.NETWORKS
        found[section].append(record)
    return {
        "before": before,
        "after": after,
        "changes": found[normal.NODES],
        "networks": found[normal.NETWORKS] if nodes is None else [],
    }


def _changed(
    repository: Repository, before: str, after: str, paths: Sequence[str]
) -> dict[str, tuple[str, str]]:
    """The files that differ, of these or of all."""
    if len(paths) <= MOST_PATHS:
        return repository.changed(before, after, paths)
    wanted = set(paths)
    return {p: one for p, one in repository.changed(before, after).items() if p in wanted}


def _both(
    repository: Repository, changed: Mapping[str, tuple[str, str]]
) -> tuple[dict[str, Fields], dict[str, Fields]]:
    """What is in files before and after, as far as they are there."""
    texts = repository.contents(one for pair in changed.values() for one in pair)
    old = {path: normal.parse(texts[pair[0]]) for path, pair in changed.items() if pair[0]}
    new = {path: normal.parse(texts[pair[1]]) for path, pair in changed.items() if pair[1]}
    return old, new


def blame(repository: Repository, options: Options) -> dict[str, Any]:
    """Which change has said each line of a node's entry: {"revision", "lines": each with "field",
    "value", and the change as in the log}."""
    commit = repository.resolve(options["revision"])
    path = normal.path_of(options["node"])
    there = repository.contents(repository.at(commit, [path]).values())
    if not any(_is_of(normal.parse(text), options) for text in there.values()):
        return {"revision": commit, "lines": []}
    raw = repository.run("blame", "--porcelain", commit, "--", path).decode("utf-8", "replace")
    of_line: list[tuple[str, str]] = []
    revision = ""
    for line in raw.split("\n"):
        if line.startswith("\t"):
            of_line.append((revision, line[1:]))
        elif len(line) > 40 and line[40] == " " and all(c in "0123456789abcdef" for c in line[:40]):
            revision = line[:40]
    changes = _logged(repository, {revision for revision, _ in of_line})
    lines = []
    for revision, line in of_line:
        field, value = normal.line_of(line)
        lines.append({"field": field, "value": json.dumps(value), "change": changes[revision]})
    return {"revision": commit, "lines": lines}


def _logged(repository: Repository, revisions: Iterable[str]) -> dict[str, dict[str, Any]]:
    raw = repository.run("log", "--no-walk", f"--format={_ENTRY}", *sorted(revisions), "--").decode(
        "utf-8", "replace"
    )
    found = {}
    for one in raw.split("\x02")[1:]:
        revision, at, by, body, _ = one.split("\x01")
        found[revision] = msgspec.to_builtins(messages.read(revision, at, by, body))
    return found


def undoing(repository: Repository, options: Options) -> dict[str, Any]:
    """What has to be wanted so that a change, or all from `since` on up to `revision`, is undone
    (undo.py). {"revision", "head", "nodes": entries by name or None, "networks", "moved",
    "domains"}."""
    commit = repository.resolve(options["revision"])
    since = options.get("since") or ""
    before = repository.resolve(since) if since else repository.parent(commit)
    if not before:
        raise NoSuchRevision("it is the first, and nothing was before it")
    head = repository.head()
    changed = repository.changed(before, commit)
    old, new = _both(repository, changed)
    at = repository.at(head, list(changed))
    texts = repository.contents(at.values())
    now = {path: normal.parse(texts[one]) for path, one in at.items()}
    found: dict[str, Any] = {"revision": commit, "since": before, "head": head, "moved": []}
    for key, prefix in (("nodes", normal.NODES), ("networks", normal.NETWORKS)):
        undone = undo(
            *(_named(files, prefix) for files in (old, new, now)), take_back=options["take_back"]
        )
        found[key] = undone.wanted
        found["moved"] += undone.moved
    return found


def _named(files: Mapping[str, Fields], prefix: str) -> dict[str, Fields]:
    return {normal.name_of(p): fields for p, fields in files.items() if p.startswith(prefix)}


def _is_of(fields: Fields, options: Options) -> bool:
    """Whether an entry is one of those groups that may be seen: the node may have been in others
    then, or another node have had its name."""
    groups = options.get("groups")
    return groups is None or not set(groups).isdisjoint(fields.get("groups", ()))


def _paths(nodes: Sequence[str] | None) -> list[str]:
    return [] if nodes is None else [normal.path_of(name) for name in nodes]


ASKED: dict[str, Callable[[Repository, Options], Any]] = {
    "log": log,
    "show": show,
    "diff": diff,
    "blame": blame,
    "undoing": undoing,
}
"""What can be asked, by name."""
