"""`image roll --save`: writes the images of a roll into an inventory file. Only names of images
change; comments and layout stay.

A node's images come from its own key, else from the last of its groups that has one, else from
`defaults`. A place is changed only if every node that has its images from there is rolled; what
cannot be said so is refused, with what to write by hand. What comes out is read again before it
counts: the rolled nodes have the new images, and nothing else is another.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layercake.base.text import count_of, grouped
from layercake.client.saving.files import write
from layercake.inventory.problems import Mark, Problems
from layercake.inventory.ranges import fold, names_of
from layercake.inventory.source import read
from layercake.inventory.yaml_marks import Entry, Listing, Scalar, Table, parse, plain
from layercake.kraken.errors import InputError

_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
"""Where YAML ends a line."""
_RANGE = re.compile(r"[\[\],!&^@]")
Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rolled:
    """What is to be written: these nodes have `image`, in the place of `replace` or of all their
    images."""

    nodes: Collection[str]
    image: str
    replace: str | None = None

    def after(self, images: Names) -> Names:
        """A node's images after the roll."""
        return (
            (self.image,)
            if self.replace is None
            else tuple(self.image if i == self.replace else i for i in images)
        )


@dataclass(frozen=True, slots=True)
class _Source:
    """Where nodes have their images from: a list under a key of the file; `what` says which."""

    what: str
    listing: Listing

    @property
    def names(self) -> Names:
        return tuple(str(plain(item)) for item in self.listing.items)

    def __str__(self) -> str:
        return f"{self.what} (line {self.listing.mark.line})"


def save(path: Path, rolled: Rolled) -> list[int]:
    """Changes the file in one step; returns the lines that are others. Raises InputError if it
    cannot be said there, and OperationFailed; the file is as it was then."""
    text, lines = edit_text(read(path), str(path), rolled)
    if lines:
        write(path, text)
    return lines


def edit_text(text: str, file: str, rolled: Rolled) -> tuple[str, list[int]]:
    """The text of an inventory with the images of a roll, and the lines that are others. Raises
    InputError."""
    root = _root(text, file)
    sources = _sources(root)
    unknown = sorted(set(rolled.nodes) - sources.keys())
    if unknown:
        raise InputError(
            f"cannot save to {file}: {fold(unknown)} is not in it",
            hint="is it the file that was applied?",
        )
    changes: dict[Mark, tuple[str, str]] = {}
    for mark, users in _users(sources, rolled.nodes).items():
        source = sources[users[0]]
        if source is None or mark is None:
            raise InputError(
                f"cannot save to {file}: {fold(users)} has no images there",
                hint=f"write images: [{rolled.image}]",
            )
        if source.names != rolled.after(source.names) or (
            rolled.replace and rolled.image not in source.names
        ):
            _check(file, source, users, sources, rolled)
            changes |= _scalars(source, rolled)
    new = _replaced(text, file, changes)
    _prove(file, root, _root(new, file), rolled)
    return new, sorted(mark.line for mark in changes)


def _root(text: str, file: str) -> Table:
    problems = Problems(file)
    root = parse(text, problems)
    problems.raise_if_any()
    return root if isinstance(root, Table) else Table(Mark(1, 1), {})


def _inner(table: Table, key: str) -> Mapping[str, Entry]:
    entry = table.entries.get(key)
    return entry.value.entries if entry is not None and isinstance(entry.value, Table) else {}


def _own(entry: Entry | None, what: str) -> _Source | None:
    """The images that a section itself names."""
    images = _inner(Table(Mark(1, 1), {"": entry}), "").get("images") if entry is not None else None
    return (
        _Source(what, images.value)
        if images is not None and isinstance(images.value, Listing)
        else None
    )


def _sources(root: Table) -> dict[str, _Source | None]:
    """Where each node has its images from, None for a node without."""
    groups = {name: _own(entry, f"group {name}") for name, entry in _inner(root, "groups").items()}
    sources: dict[str, _Source | None] = {}
    for key, entry in _inner(root, "nodes").items():
        layers = [_own(root.entries.get("defaults"), "defaults")]
        named_groups = entry.value.entries.get("groups") if isinstance(entry.value, Table) else None
        layers += (
            [groups.get(str(name)) for name in plain(named_groups.value) or ()]
            if named_groups is not None
            else []
        )
        layers.append(_own(entry, f"nodes {key}"))
        source = next((layer for layer in reversed(layers) if layer is not None), None)
        sources |= dict.fromkeys(names_of(key) if _RANGE.search(key) else [key], source)
    return sources


def _users(
    sources: Mapping[str, _Source | None], nodes: Collection[str]
) -> dict[Mark | None, list[str]]:
    """The rolled nodes by the place that their images come from."""
    return grouped(
        (source.listing.mark if source is not None else None, name)
        for name, source in sources.items()
        if name in nodes
    )


def _check(
    file: str,
    source: _Source,
    users: Sequence[str],
    sources: Mapping[str, _Source | None],
    rolled: Rolled,
) -> None:
    """Raises InputError, with what to write by hand, for a place that cannot be changed name by
    name."""
    begin = f"cannot save to {file}: the images of {fold(users)} stand in {source}"
    after = f"images: [{', '.join(rolled.after(source.names))}]"
    others = [
        n
        for n, s in sources.items()
        if s is not None and s.listing.mark == source.listing.mark and n not in rolled.nodes
    ]
    if others:
        raise InputError(
            f"{begin}, and those of {fold(others)} too",
            hint=f"write {after} under nodes for {fold(users)} only",
        )
    if rolled.replace is None and len(source.names) != 1:
        raise InputError(
            f"{begin}, which names {count_of(len(source.names), 'image')} and not one",
            hint=f"write {after} there",
        )
    if rolled.replace is not None and rolled.replace not in source.names:
        raise InputError(
            f"{begin}, which does not name {rolled.replace}", hint=f"write {rolled.image} there"
        )


def _scalars(source: _Source, rolled: Rolled) -> dict[Mark, tuple[str, str]]:
    """{place: (name, other name)} in a list."""
    after = rolled.after(source.names)
    return {
        item.mark: (old, new)
        for item, old, new in zip(source.listing.items, source.names, after, strict=True)
        if old != new
    }


def _replaced(text: str, file: str, changes: Mapping[Mark, tuple[str, str]]) -> str:
    starts = [0, *(line_break.end() for line_break in _BREAK.finditer(text))]
    for mark, (old, new) in sorted(changes.items(), reverse=True):
        at = starts[mark.line - 1] + mark.column - 1
        quote = text[at : at + 1] if text[at : at + 1] in ("'", '"') else ""
        if not text.startswith(f"{quote}{old}{quote}", at):
            raise InputError(
                f"cannot save to {file}: line {mark.line} writes {old} in a way of its own",
                hint=f"write {new} there",
            )
        new_quote = quote or ("" if _is_plain(new) else '"')
        text = f"{text[:at]}{new_quote}{new}{new_quote}{text[at + len(old) + 2 * len(quote) :]}"
    return text


def _is_plain(name: str) -> bool:
    """Whether a name is text without quotes: 12, 1.5 and true are not."""
    value = parse(name, Problems(""))
    return isinstance(value, Scalar) and value.value == name


def _prove(file: str, before: Table, after: Table, rolled: Rolled) -> None:
    """Raises InputError unless the rolled nodes have the new images, the others what they had, and
    all else is the same."""
    old, new = (
        {n: s.names if s is not None else None for n, s in _sources(root).items()}
        for root in (before, after)
    )
    wanted = {
        n: rolled.after(names) if n in rolled.nodes and names is not None else names
        for n, names in old.items()
    }
    if new != wanted or _without_images(before) != _without_images(after):
        raise InputError(
            f"cannot save to {file}: its images are shared in a way that cannot be followed",
            hint="edit it by hand",
        )


def _without_images(root: Table) -> dict[str, Any]:
    """All that is not about images."""
    data: dict[str, Any] = plain(root)
    sections = [
        data.get("defaults"),
        *(data.get("groups") or {}).values(),
        *(data.get("nodes") or {}).values(),
    ]
    for section in sections:
        if isinstance(section, dict):
            section.pop("images", None)
    return data
