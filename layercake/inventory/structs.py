"""A YAML mapping read as a msgspec struct, with every mistake at its line: config.yaml, and what
site modules declare."""

from __future__ import annotations

import typing
from collections.abc import Collection
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from layercake.base.text import nearest, show
from layercake.inventory.problems import Mark, Problems
from layercake.inventory.rules import rules_of
from layercake.inventory.yaml_marks import Marked, Table, describe, entries_of, parse, plain
from layercake.kraken.errors import InputError
from layercake.moduleapi.fields import Check, Mistake

S = TypeVar("S", bound=msgspec.Struct)


def read_file(path: Path, what: str, hint: str = "") -> tuple[Table, Problems]:
    """The mapping in a YAML file, and where its mistakes go. Raises InputError, and InventoryErrors
    for what is not YAML."""
    try:
        text = path.read_bytes().decode()
    except FileNotFoundError:
        raise InputError(f"cannot read {path}: there is no such file", hint=hint) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot read {path}: {getattr(error, 'strerror', None) or 'it is not UTF-8'}"
        ) from None
    problems = Problems(str(path), what)
    root = parse(text, problems)
    if root is not None and not isinstance(root, Table):
        problems.add(Mark(1, 1), f"expected a mapping, found {describe(root)}")
    problems.raise_if_any()
    return root if isinstance(root, Table) else Table(Mark(1, 1), {}), problems


def read(
    value: Marked,
    struct: type[S],
    problems: Problems,
    where: str = "",
    *,
    beside: Collection[str] = (),
) -> S | None:
    """A mapping as a struct; keys in `beside` are somebody else's. Mistakes go to `problems`, and
    None is returned then."""
    entries = entries_of(value, where or "the file", problems)
    if entries is None:
        return None
    before = len(problems.found)
    rules = rules_of(struct)
    prefix = f"{where}." if where else ""
    values: dict[str, Any] = {}
    for key, entry in entries.items():
        if key in beside:
            continue
        if key not in rules:
            problems.add(
                entry.key_mark,
                f"{prefix}{key}: unknown key {show(key)}",
                nearest(key, {*rules, *beside}),
            )
            continue
        name = prefix + key
        try:
            values[key] = _read_field(struct, key, entry.value, rules[key], problems, name)
        except Mistake as mistake:
            problems.add(entry.value.mark, f"{name}: {mistake.message}", mistake.hint)
    missing = [key for key, rule in rules.items() if rule.required and key not in entries]
    for key in missing:
        problems.add(value.mark, f"{prefix}{key} is missing", rules[key].missing)
    return struct(**values) if len(problems.found) == before else None


def _read_field(
    struct: type[msgspec.Struct],
    key: str,
    value: Marked,
    rule: Check,
    problems: Problems,
    name: str,
) -> Any:
    """The value of a field. Raises Mistake; those within a struct that it holds go to
    `problems`."""
    inner, several = _struct_of(struct, key)
    if inner is None:
        return rule.one(plain(value))
    if several and isinstance(value, Table):
        return {
            k: read(entry.value, inner, problems, f"{name}.{k}")
            for k, entry in value.entries.items()
        }
    return read(value, inner, problems, name)


def _struct_of(struct: type[msgspec.Struct], key: str) -> tuple[type[msgspec.Struct] | None, bool]:
    """The struct that a field holds, if it does, and whether it is a mapping of them."""
    hint = typing.get_type_hints(struct).get(key)
    several = typing.get_origin(hint) is dict
    inner = typing.get_args(hint)[1] if several else hint
    return (
        (inner, several)
        if isinstance(inner, type) and issubclass(inner, msgspec.Struct)
        else (None, False)
    )


def place_of(document: dict[str, Any], key: str) -> tuple[dict[str, Any], str]:
    """The mapping that a dotted key stands in, and its own name there. Raises InputError."""
    *path, last = key.split(".")
    place: Any = document
    for step in path:
        place = place.setdefault(step, {})
        if not isinstance(place, dict):
            raise InputError(f"cannot change {key}: {step} is no mapping")
    return place, last
