"""`node set --save`: writes other values into one node's entry of an inventory file. All else stays
as it is, comments and order too.

A value is replaced where it stands, a new key is put behind the last one, in the style that the
entry is written in. What comes out is read again before it counts: it says what the old text said,
but for these values. What cannot be said so is refused, with what to write by hand.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import yaml

from layercake.inventory.problems import Problems
from layercake.inventory.ranges import BadRange, fold, names_of
from layercake.inventory.yaml_marks import parse, plain
from layercake.kraken.errors import InputError

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_RANGE = re.compile(r"[\[\],!&^@]")
Value = Any
"""A node of PyYAML, which has no types."""
Edit = tuple[int, int, str]
"""What is put in the place of the characters from one to another."""


def edit_entry(
    text: str, file: str, node: str, wanted: Mapping[str, Any], unset: Collection[str]
) -> str:
    """The text of an inventory with other values in a node's entry: keys in a mapping are written
    "bmc.address", those of `unset` are taken out. Raises InputError."""
    expected = _tree(text, file)
    for key in (*unset, *wanted):
        path = ["nodes", node, *key.split(".")]
        before = text
        if key in wanted:
            text = _applied(text, _setting(text, _entry(text, file, node), path[2:], wanted[key]))
            _set(expected, path, wanted[key])
        else:
            text = _applied(text, _removing(text, _entry(text, file, node), path[2:]))
            _remove(expected, path)
        if _readable(text, file) != expected:
            said = f"{key}: {_flow(wanted[key])}" if key in wanted else f"no {key}"
            line = _line(before, _entry(before, file, node))
            raise InputError(
                f"cannot save to {file}: it is written in a way that cannot be followed",
                hint=f"write {said} into the entry of {node}, line {line}",
            )
    return text


def rename_entries(text: str, file: str, names: Mapping[str, str]) -> str:
    """The text of an inventory in which nodes have other names, {old: new}; of a range all nodes,
    and again as one range. Raises InputError."""
    expected = _tree(text, file)
    edits: list[Edit] = []
    found: set[str] = set()
    for key, _ in _nodes(text):
        old = [key.value] if key.value in names else _names(key.value)
        if names.keys().isdisjoint(old):
            continue
        new = fold(names.get(name, name) for name in old)
        if _names(new) != [names.get(name) for name in old]:
            raise InputError(
                f"cannot save to {file}: not all of {key.value}, line {key.start_mark.line + 1}, "
                "are renamed to one range",
                hint="give the nodes entries of their own there first",
            )
        edits.append((int(key.start_mark.index), int(key.end_mark.index), _flow(new)))
        expected["nodes"][new] = expected["nodes"].pop(key.value)
        found.update(old)
    for edit in reversed(edits):
        text = _applied(text, edit)
    if left := names.keys() - found:
        raise InputError(
            f"cannot save to {file}: {fold(left)} is not in it",
            hint="is it the file that was applied?",
        )
    if _readable(text, file) != expected:
        raise InputError(
            f"cannot save to {file}: it is written in a way that cannot be followed",
            hint="write the new names into it by hand",
        )
    return text


# ----- what is to come out


def _tree(text: str, file: str) -> Any:
    problems = Problems(file)
    root = parse(text, problems)
    problems.raise_if_any()
    return {} if root is None else plain(root)


def _readable(text: str, file: str) -> Any:
    problems = Problems(file)
    root = parse(text, problems)
    return None if problems.found or root is None else plain(root)


def _set(tree: Any, path: Sequence[str], value: Any) -> None:
    for step in path[:-1]:
        inner = tree.get(step)
        if not isinstance(inner, dict):
            inner = tree[step] = {}
        tree = inner
    tree[path[-1]] = value


def _remove(tree: Any, path: Sequence[str]) -> None:
    for step in path[:-1]:
        tree = tree.get(step)
        if not isinstance(tree, dict):
            return
    tree.pop(path[-1], None)


# ----- where it stands


def _entry(text: str, file: str, node: str) -> Value:
    """The value of a node's key. Raises InputError if it has no entry of its own."""
    for key, value in _nodes(text):
        if key.value == node:
            return value
        if _RANGE.search(key.value) and node in _names(key.value):
            raise InputError(
                f"cannot save to {file}: {node} is one of {key.value}, line "
                f"{key.start_mark.line + 1}",
                hint=f"take it out of the range, and give it an entry of its own: {node}: {{...}}",
            )
    raise InputError(
        f"cannot save to {file}: {node} is not in it", hint="is it the file that was applied?"
    )


def _nodes(text: str) -> list[tuple[Value, Value]]:
    """The keys of `nodes`, with their values."""
    root = yaml.compose(text, Loader=_LOADER)
    nodes = _value(root, "nodes") if root is not None else None
    return nodes.value if isinstance(nodes, yaml.MappingNode) else []


def _names(text: str) -> list[str]:
    try:
        return names_of(text)
    except BadRange:
        return []


def _value(mapping: Value, key: str) -> Value:
    for one, value in mapping.value if isinstance(mapping, yaml.MappingNode) else ():
        if one.value == key:
            return value
    return None


def _line(text: str, node: Value) -> int:
    return text.count("\n", 0, node.start_mark.index) + 1


def _end(node: Value) -> int:
    """Where a value ends: a block ends with its last value, not with the comments behind it."""
    if isinstance(node, yaml.ScalarNode) or node.flow_style:
        return int(node.end_mark.index)
    return max((_end(inner) for inner in _inner(node)), default=int(node.end_mark.index))


def _inner(node: Value) -> Iterator[Value]:
    for one in node.value:
        yield from one if isinstance(one, tuple) else (one,)


# ----- what is done


def _applied(text: str, edit: Edit | None) -> str:
    if edit is None:
        return text
    start, end, new = edit
    return text[:start] + new + text[end:]


def _setting(text: str, entry: Value, path: Sequence[str], value: Any) -> Edit:
    """Sets a key: in the innermost mapping that is there already."""
    place = entry
    for depth, step in enumerate(path):
        inner = _value(place, step)
        rest = path[depth + 1 :]
        if inner is None:
            return _adding(text, place, step, _nested(rest, value))
        if not rest or not isinstance(inner, yaml.MappingNode):
            return _replacing(inner, _nested(rest, value))
        place = inner
    return _replacing(place, value)


def _nested(path: Sequence[str], value: Any) -> Any:
    for step in reversed(path):
        value = {step: value}
    return value


def _replacing(node: Value, value: Any) -> Edit:
    start = int(node.start_mark.index)
    empty = isinstance(node, yaml.ScalarNode) and start == node.end_mark.index
    return start, _end(node), f"{' ' if empty else ''}{_flow(value)}"


def _adding(text: str, mapping: Value, key: str, value: Any) -> Edit:
    said = f"{_flow(key)}: {_flow(value)}"
    if not isinstance(mapping, yaml.MappingNode) or not mapping.value:
        return _replacing(mapping, {key: value})
    at = _end(mapping.value[-1][1])
    if mapping.flow_style:
        return at, at, f", {said}"
    indent = " " * mapping.value[0][0].start_mark.column
    line_end = text.find("\n", at - 1)  # a block of text ends with its line
    line_end = len(text) if line_end < 0 else line_end
    return line_end, line_end, f"\n{indent}{said}"


def _removing(text: str, entry: Value, path: Sequence[str]) -> Edit | None:
    """Takes a key out; None if it does not stand there."""
    place = entry
    for step in path[:-1]:
        place = None if place is None else _value(place, step)
    pairs = place.value if isinstance(place, yaml.MappingNode) else []
    index = next((i for i, (key, _) in enumerate(pairs) if key.value == path[-1]), None)
    if index is None:
        return None
    start = int(pairs[index][0].start_mark.index)
    end = _end(pairs[index][1])
    if len(pairs) == 1:
        return start, end, "" if place.flow_style else "{}"
    if not place.flow_style:  # its lines, with the comment behind it
        until = text.find("\n", end)
        return text.rfind("\n", 0, start) + 1, len(text) if until < 0 else until + 1, ""
    if index + 1 < len(pairs):
        return start, int(pairs[index + 1][0].start_mark.index), ""
    return _end(pairs[index - 1][1]), end, ""


def _flow(value: Any) -> str:
    """A value on one line."""
    text: str = yaml.safe_dump(
        value, default_flow_style=True, width=1 << 20, allow_unicode=True, sort_keys=False
    )
    return text.removesuffix("\n").removesuffix("\n...").strip()
