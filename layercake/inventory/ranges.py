"""Node ranges in ClusterShell's syntax: n[0-3,7], rack[1-2]n[01-16], @group, n[0-9]!n3.

ClusterShell materialises a range when it parses it, so the size is worked out here first:
`n[0-999999999]` in a request must not eat the head's memory. ClusterShell is imported when it is
needed: a command that folds no names starts faster.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence, Set

from layercake.base.text import grouped, nearest, show
from layercake.kraken.errors import InputError

MAX_NODES = 1 << 17
MAX_TEXT = 64 * 1024
SYNTAX = "write a name (n0), a range (n[0-3,7]), a list (n0,n4), a group (@ipmi) or @all"
_SPARE = 1024
_SORTED_BY_IT = 4096
_PASSES = 32
"""So many times a range may go through all nodes: each @all is once."""


class BadRange(InputError):
    """A node range that cannot be used; `reason` says why."""

    def __init__(self, text: str, reason: str, *, hint: str = "") -> None:
        super().__init__(f"cannot use node range {show(text)}: {reason}", hint=hint)
        self.reason = reason


class UnknownName(BadRange):
    """It names a node or a group that there is not."""


_ALLOWED = re.compile(r"[A-Za-z0-9.\-\[\],/@!&^_]+")
_BRACKET = re.compile(r"([0-9]*)\[([^\[\]]*)\]")
_SPAN = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?:/([1-9][0-9]{0,8}))?)?")
_GROUP = re.compile(r"@([A-Za-z0-9._-]*)")
_PART = re.compile(r"((?:[^\[\],!&^]|\[[^\[\]]*\])*)([,!&^]|\Z)")
"""An operand and the operator behind it, in a text whose brackets are closed. One that looked from
each operator for the next bracket took a second for the longest text."""
_PLAIN = re.compile(r"[A-Za-z0-9._-]+")
_FOLDED = re.compile(r"((?<![0-9])[0-9]{1,9}(?![0-9]))")
_NUMBERED = re.compile(r"([^0-9]*)([0-9]+)")


def spelled(text: str) -> int:
    """How many names a range spells out, each group counting as one; 0 for what is none."""
    try:
        return _check(text)
    except BadRange:
        return 0


def names_of(text: str, most: int = MAX_NODES) -> list[str]:
    """The names that a range spells out, sorted as ClusterShell does (n2 before n10); groups are
    not allowed.

    Raises InputError for bad syntax, no name at all, or more than `most` names. Whether the nodes
    exist is not looked at.
    """
    if _check(text) > most:
        raise BadRange(text, f"more than {most} names")
    if "@" in text:
        raise BadRange(text, "a group has no place here", hint="write a name or a range (n[0-3])")
    names = _combined(text, {})
    if not names:
        raise BadRange(text, "it names no node", hint="write a name or a range (n[0-3])")
    return _sorted(names)


def expand(
    text: str, known: Collection[str], groups: Mapping[str, Iterable[str]] | None = None
) -> list[str]:
    """The names of known nodes that a range stands for; @all is every known node.

    Raises InputError for bad syntax, an unknown group or node (with the nearest valid name), or no
    node at all; and for one that spells out far more names than there are nodes, which is not
    worked out: that would take the head a part of a second.
    """
    if _check(text) > 2 * len(known) + _SPARE:
        raise BadRange(
            text,
            f"it spells out far more names than there are nodes ({len(known)})",
            hint="write @all for all of them",
        )
    members = {
        **{name: _as_set(nodes) for name, nodes in (groups or {}).items()},
        "all": _as_set(known),
    }
    _check_groups(text, members)
    if text[1:] in members and text[0] == "@" and (ordered := _in_order(members[text[1:]])):
        return ordered
    names = _combined(text, members)
    if not names <= members["all"]:
        _refuse_unknown(text, _sorted(names), members["all"])
    if not names:
        raise BadRange(text, "it names no node", hint=SYNTAX)
    return _sorted(names)


def _as_set(names: Iterable[str]) -> Set[str]:
    """Names as a set; one that is given is used as it is: there may be many."""
    return names if isinstance(names, Set) else set(names)


def _check_groups(text: str, members: Mapping[str, Set[str]]) -> None:
    """Raises BadRange for a group that there is not, and for groups that are larger together than
    is worked out."""
    spelled = 0
    for group in _GROUP.findall(text):
        if group not in members:
            raise UnknownName(
                text, f"there is no group {show(group)}", hint=nearest(group, members)
            )
        spelled += len(members[group])
    known = len(members["all"])
    if spelled > _PASSES * known + _SPARE:
        raise BadRange(
            text,
            f"its groups have {spelled} nodes together, and there are {known}",
            hint="name each group once",
        )


def _refuse_unknown(text: str, names: Sequence[str], known: Set[str]) -> None:
    unknown = [name for name in names if name not in known]
    if unknown:
        more = f" and {len(unknown) - 1} more of this range" if len(unknown) > 1 else ""
        raise UnknownName(
            text, f"there is no node {unknown[0]}{more}", hint=nearest(unknown[0], known)
        )


def _in_order(names: Collection[str]) -> list[str]:
    """Names as ClusterShell sorts them, if each has one number, at its end: of 100,000 it takes 1.5
    s, and this 0.04. [] for others."""
    numbered = [
        (match[1] + "%s", len(match[2]), name)
        for name in names
        if (match := _NUMBERED.fullmatch(name)) is not None
    ]
    return [name for _, _, name in sorted(numbered)] if len(numbered) == len(names) else []


def _pieces(name: str) -> list[tuple[int, str, str]]:
    """What names are sorted by: their texts, and their numbers as such, of any length."""
    return [
        (len(digits := piece.lstrip("0")), digits, piece) if piece.isdecimal() else (-1, piece, "")
        for piece in re.split(r"([0-9]+)", name)
    ]


def fold(names: Iterable[str]) -> str:
    """The short form of a list of names: n0,n1,n2 -> n[0-2], r1n1,r1n2,r2n1,r2n2 -> r[1-2]n[1-2].
    `names_of` gives the names back. ClusterShell's own takes 0.1 s for 3,000 names, this 0.005."""
    by_pattern: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for name in names:
        pieces = _FOLDED.split(name)
        by_pattern.setdefault(tuple(pieces[::2]), set()).add(tuple(pieces[1::2]))
    return ",".join(
        "".join(itertools.chain.from_iterable(zip(texts, (*row, ""), strict=True)))
        for texts in sorted(by_pattern)
        for row in _rows(by_pattern[texts])
    )


def _rows(numbers: Collection[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Numbers at the places of a name as ranges at these places: each row stands for all
    combinations of what its places say."""
    if not all(numbers):
        return [()]
    lasts = grouped((row[:-1], row[-1]) for row in numbers)
    firsts = grouped((_bracket(lasts[first]), first) for first in sorted(lasts, key=_by_size))
    return [(*row, last) for last, first in firsts.items() for row in _rows(first)]


def _by_size(numbers: tuple[str, ...]) -> list[tuple[int, str]]:
    return [(len(number), number) for number in numbers]


def _bracket(numbers: Iterable[str]) -> str:
    """Numbers as a range: 7, or [0-3,7]; 07 is another than 7, and 10 is next to 09 and to 9."""
    spans: list[list[str]] = []
    after = -1
    width = 0
    for digits in sorted(sorted(numbers), key=len):
        value = int(digits)
        if value == after and (
            len(digits) == width or not (_padded(digits) or _padded(spans[-1][0]))
        ):
            spans[-1][1] = digits
        else:
            spans.append([digits, digits])
        after = value + 1
        width = len(digits)
    words = [first if first == last else f"{first}-{last}" for first, last in spans]
    return words[0] if len(spans) == 1 and spans[0][0] == spans[0][1] else f"[{','.join(words)}]"


def _padded(digits: str) -> bool:
    return len(digits) > 1 and digits[0] == "0"


def _combined(text: str, groups: Mapping[str, Set[str]]) -> set[str]:
    """The names that a range stands for, its operators applied from left to right: each costs as
    much as its operand has names."""
    operands: dict[str, Set[str]] = {}

    def operand(word: str) -> Set[str]:
        if word not in operands:
            operands[word] = _operand(text, word, groups)
        return operands[word]

    (first, operator), *rest = _parts(text)
    found = set(operand(first))
    for word, behind in rest:
        other = operand(word)
        if operator == ",":
            found |= other
        elif operator == "!":
            found -= other
        elif operator == "&":
            found &= other
        else:
            found ^= other
        operator = behind
    return found


def _parts(text: str) -> list[tuple[str, str]]:
    """The operands of a text that was checked, each with the operator behind it, "" for the
    last."""
    parts: list[tuple[str, str]] = []
    for match in _PART.finditer(text):
        parts.append((match[1], match[2]))
        if not match[2]:
            break
    return parts


def _operand(text: str, word: str, groups: Mapping[str, Set[str]]) -> Set[str]:
    """The names of a part of a range without operators."""
    if not word:
        raise BadRange(text, "a name is missing beside an operator", hint=SYNTAX)
    if _PLAIN.fullmatch(word):
        return {word}
    if word.startswith("@"):
        group = word[1:]
        if group not in groups:
            raise UnknownName(text, f"there is no group {show(group)}", hint=nearest(group, groups))
        return groups[group]
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    try:
        return {str(name) for name in NodeSet(word, resolver=RESOLVER_NOGROUP)}
    except (
        NodeSetException,
        ValueError,
        AssertionError,
    ) as error:  # it asserts that no span is too long
        raise BadRange(text, f"{_reason(error)}", hint=SYNTAX) from error


def _sorted(names: Collection[str]) -> list[str]:
    """Names in the order of ClusterShell; so many that it would take long to find that in their
    numbers' order."""
    if ordered := _in_order(names):
        return ordered
    if len(names) > _SORTED_BY_IT:
        return sorted(names, key=_pieces)
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    try:
        return [str(name) for name in NodeSet.fromlist(sorted(names), resolver=RESOLVER_NOGROUP)]
    except (NodeSetException, ValueError):  # a number of a hundred digits
        return sorted(names, key=_pieces)


def _reason(error: Exception) -> str:
    return str(error).replace('"', "").strip() or type(error).__name__


def _check(text: str) -> int:
    """How many names are spelled out in it."""
    if not text.strip() or len(text) > MAX_TEXT:
        raise BadRange(text, f"it is {'too long' if text.strip() else 'empty'}", hint=SYNTAX)
    if not _ALLOWED.fullmatch(text):
        odd = next(c for c in text if not _ALLOWED.fullmatch(c))
        raise BadRange(text, f"{show(odd)} may not stand in it", hint=SYNTAX)
    if re.search(
        r"[\[\]]", _BRACKET.sub("", text)
    ):  # else what is counted here is not what ClusterShell reads
        raise BadRange(text, "each [ needs its ], and none stands inside another", hint=SYNTAX)
    total = 0
    for part, _ in _parts(text):
        size = 1
        for before, inside in _BRACKET.findall(part):
            size *= sum(_span(text, item, before) for item in inside.split(","))
        total += size
        if total > MAX_NODES:
            raise BadRange(text, f"more than {MAX_NODES} names")
    return total


def _span(text: str, item: str, before: str) -> int:
    """How many names a span spells out. Digits before its bracket belong to both of its ends:
    6[0-65535] is 60 to 665535."""
    if len(before) > 18:
        raise BadRange(text, f"{show(before)} is too long a number before a bracket", hint=SYNTAX)
    match = _SPAN.fullmatch(item)
    if not match:
        raise BadRange(text, f"{show(item)} is not a number or a span like 0-3", hint=SYNTAX)
    first, last, step = match.groups()
    if last is None:
        return 1
    if int(last) < int(first):
        raise BadRange(text, f"{item} counts down", hint=f"write {last}-{first}")
    return (int(before + last) - int(before + first)) // int(step or 1) + 1
