"""YAML with the place of every value, and without YAML's traps.

PyYAML does the scanning and parsing (its events carry marks); values are built here, because:
- PyYAML follows YAML 1.1, where a plain `off` is false (our `state: off`) and `52:54:00:12:34:56`
  is a number in base
  60 (our MACs). Here plain scalars are typed as in the YAML 1.2 core schema (section 10.3.2 of that
  specification).
- PyYAML silently keeps the last of two equal keys; here the second is a mistake.
- Tags could build objects, aliases could blow up ("billion laughs"); here tags are refused and
  aliases counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import yaml

from layercake.base.text import describe as describe_plain
from layercake.base.text import show
from layercake.inventory.problems import Mark, Problems

MAX_TEXT = 16 * 1024 * 1024
MAX_DEPTH = 20
MAX_VALUES = 2_000_000

_INT = re.compile(r"[-+]?[0-9]{1,18}|0x[0-9a-fA-F]{1,15}|0o[0-7]{1,20}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]{1,18}|[0-9]{1,18}(\.[0-9]{0,18})?)([eE][-+]?[0-9]{1,3})?")
_WORDS: dict[str, bool | None] = {
    "": None,
    "~": None,
    "null": None,
    "Null": None,
    "NULL": None,
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}
# C1, surrogates and so on may not stand in YAML; found here so that the place is exact (PyYAML
# gives an offset only).
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value. `text` is as written, before it was typed."""

    mark: Mark
    value: bool | int | float | str | None
    text: str


@dataclass(frozen=True, slots=True)
class Listing:
    """A YAML sequence."""

    mark: Mark
    items: tuple[Marked, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """A key's place and its value."""

    key_mark: Mark
    value: Marked


@dataclass(frozen=True, slots=True)
class Table:
    """A YAML mapping; keys are the text as written (a node may be called 007)."""

    mark: Mark
    entries: dict[str, Entry]


Marked = Scalar | Listing | Table


class _Stop(Exception):
    """A mistake after which reading on makes no sense; it is noted already."""


def plain(value: Marked) -> Any:
    """The value without its places: scalars, lists, and dicts by the text of their keys."""
    if isinstance(value, Scalar):
        return value.value
    if isinstance(value, Listing):
        return [plain(item) for item in value.items]
    return {key: plain(entry.value) for key, entry in value.entries.items()}


def marked(value: Any, mark: Mark = Mark(1, 1)) -> Marked:  # noqa: B008 (it is frozen)
    """What `plain` gives, as if it stood in a text."""
    if isinstance(value, Mapping):
        return Table(mark, {str(k): Entry(mark, marked(v)) for k, v in value.items()})
    if isinstance(value, list | tuple):
        return Listing(mark, tuple(marked(item) for item in value))
    return Scalar(mark, value, "" if value is None else str(value))


def entries_of(
    value: Marked, what: str, problems: Problems, hint: str = ""
) -> dict[str, Entry] | None:
    """The entries of a mapping, none of nothing; None for what is no mapping, which is a
    mistake."""
    if isinstance(value, Table):
        return value.entries
    if isinstance(value, Scalar) and value.value is None:
        return {}
    problems.add(value.mark, f"{what}: expected a mapping, found {describe(value)}", hint)
    return None


def describe(value: Marked) -> str:
    """What a value is, for "expected X, found Y"; never its content, which may be a password."""
    return describe_plain(
        plain(value) if isinstance(value, Scalar) else [] if isinstance(value, Listing) else {}
    )


def parse(text: str, problems: Problems) -> Marked | None:
    """The one document of `text`. Mistakes go to `problems`; None if nothing can be made of it."""
    if len(text) > MAX_TEXT:
        problems.add(
            Mark(1, 1), f"the file has {len(text)} characters, at most {MAX_TEXT} are read"
        )
        return None
    bad = _UNPRINTABLE.search(text.removeprefix("\ufeff"))
    if bad:
        before = text.removeprefix("\ufeff")[: bad.start()]
        mark = Mark(before.count("\n") + 1, bad.start() - before.rfind("\n"))
        problems.add(
            mark,
            f"the character U+{ord(bad.group()):04X} may not stand in YAML",
            "remove it; editors often hide it",
        )
        return None
    try:
        return _Builder(text, problems).document()
    except _Stop:
        return None
    except yaml.MarkedYAMLError as error:
        place = error.problem_mark or error.context_mark
        mark = Mark(place.line + 1, place.column + 1) if place else Mark(1, 1)
        # Only the parser's own sentence: PyYAML's str() quotes the line, and the line may hold a
        # password.
        problems.add(
            mark,
            f"this is not YAML: {error.problem or error.context or 'syntax error'}",
            "check the indentation, and quote text that starts with a special character",
        )
        return None


class _Builder:
    """Builds the marked values from the parser's events."""

    def __init__(self, text: str, problems: Problems) -> None:
        self._events: Iterator[Any] = iter(yaml.parse(text, Loader=_LOADER))
        self._problems = problems
        self._anchors: dict[str, tuple[Marked, int]] = {}
        self._built = 0

    def document(self) -> Marked | None:
        next(self._events)  # StreamStart
        event = next(self._events)
        if isinstance(event, yaml.StreamEndEvent):
            return None
        root = self._value(next(self._events), 0)
        next(self._events)  # DocumentEnd
        event = next(self._events)
        if not isinstance(event, yaml.StreamEndEvent):
            self._problems.add(
                _mark(event),
                "a second document starts here",
                "an inventory is one document; remove the ---",
            )
        return root

    def _value(self, event: Any, depth: int) -> Marked:
        mark = _mark(event)
        if depth > MAX_DEPTH:
            self._stop(mark, f"nested more than {MAX_DEPTH} deep")
        self._count(mark, 1)
        if isinstance(event, yaml.AliasEvent):
            value, weight = self._anchors.get(str(event.anchor)) or self._stop(
                mark, "this alias has no anchor before it", "text that starts with * must be quoted"
            )
            self._count(mark, weight)
            return value
        if event.tag is not None:
            self._problems.add(
                mark,
                "tags are not allowed",
                "remove the word that starts with !, or quote the text",
            )
        before = self._built
        value = self._inner(event, mark, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, self._built - before + 1)
        return value

    def _inner(self, event: Any, mark: Mark, depth: int) -> Marked:
        if isinstance(event, yaml.ScalarEvent):
            return Scalar(
                mark, _typed(event.value) if event.implicit[0] else event.value, event.value
            )
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Marked] = []
            while not isinstance(item := next(self._events), yaml.SequenceEndEvent):
                items.append(self._value(item, depth + 1))
            return Listing(mark, tuple(items))
        entries: dict[str, Entry] = {}
        while not isinstance(key := next(self._events), yaml.MappingEndEvent):
            name = self._value(key, depth + 1)
            value = self._value(next(self._events), depth + 1)
            self._enter(entries, name, Entry(_mark(key), value))
        return Table(mark, entries)

    def _enter(self, entries: dict[str, Entry], name: Marked, entry: Entry) -> None:
        if not isinstance(name, Scalar):
            self._problems.add(
                entry.key_mark,
                f"a key must be text, this is {describe(name)}",
                "a template's {{ }} must be filled in before, and text with braces quoted",
            )
        elif name.text == "<<":
            self._problems.add(
                entry.key_mark,
                "merge keys (<<) are not supported",
                "put shared values into a group",
            )
        elif name.text in entries:
            first = entries[name.text].key_mark.line
            self._problems.add(
                entry.key_mark,
                f"the key {show(name.text)} stands twice",
                f"the first one is in line {first}",
            )
        else:
            entries[name.text] = entry

    def _count(self, mark: Mark, weight: int) -> None:
        self._built += weight
        if self._built > MAX_VALUES:
            self._stop(
                mark, f"more than {MAX_VALUES} values, aliases counted as often as they are used"
            )

    def _stop(self, mark: Mark, message: str, hint: str = "") -> NoReturn:
        self._problems.add(mark, message, hint)
        raise _Stop


def _mark(event: Any) -> Mark:
    return Mark(event.start_mark.line + 1, event.start_mark.column + 1)


def _typed(text: str) -> bool | int | float | str | None:
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
    return float(text) if _FLOAT.fullmatch(text) else text
