"""Queries: which nodes a text like `image=ERROR and unchanged>5m` means. Pure.

    query  = and { "or" and }
    and    = not { "and" not }
    not    = "not" not | "(" query ")" | test
    test   = NAME ("=" | "!=" | "<" | "<=" | ">" | ">=") VALUE  |  NAME "in" VALUE

A NAME is a variable (power, image), `status`, `wanted`, `name`, `group`, `network`, `ip`, `mac`,
`trait:arch`, `trait:firmware`, `trait:profile`, `serial`, `place:switch`, `place:port` and the
other words of a place in the inventory, `label:KEY`, `images` (what it runs or shall run),
`boot-set`, `agent` (the boot set that its agent is of), `stopped` (frozen, maintenance, release),
or a time: `unchanged`, `seen` (since its agent was last heard) and `unconverged` (for how long it
is not as wanted). Times are numbers with s, m, h or d. `in` takes a node range for a name, a subnet
for an address. ALIASES are other words for some; `image` with the name of an image is `images`.

Features add names of their own (kernel.feature.NodeField): texts such as `kernel`, and amounts such
as `memory`, which are numbers, of bytes with a unit: 256G is binary, 1.92TB decimal. A VALUE with
blanks or signs in it stands between double quotes.
"""

from __future__ import annotations

import ipaddress
import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NoReturn, Protocol

from layercake.base.text import amount_text, nearest, show
from layercake.inventory.ranges import names_of
from layercake.inventory.schema import ARCHES, FIRMWARES, STATES
from layercake.kraken.errors import InputError
from layercake.moduleapi.fields import number_of

MAX_TEXT = 4096
MAX_DEPTH = 50
MAX_TESTS = 200
MAX_RANGES = 4
"""How many node ranges there may be."""
SPARE = 1024
"""How many names a range may spell out beyond twice the number of nodes: that takes time."""
_TOKEN = re.compile(
    r'\s*(?:(?P<sign><=|>=|!=|[=<>()])|"(?P<quoted>[^"]*)"'
    r"|(?P<word>[^\s=<>()!]+(?:!(?!=)[^\s=<>()!]*)*))"
)
_TIME = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhd]?)")
_AMOUNT = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,6})?)(?:([KMGTP])(i?B)?)?", re.ASCII)
_POWERS = "KMGTP"
_NEAR = 0.01
"""Sizes that differ by so little are equal: 1.92TB is 1,920,383,410,176 bytes."""
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_ORDER: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}
TIMES = ("unchanged", "seen", "unconverged")
TRAITS = ("trait:arch", "trait:firmware", "trait:profile")
LABEL = "label:"
PLACE = "place:"
PLACES = tuple(f"{PLACE}{word}" for word in ("switch", "port", "relay", "circuit", "remote"))
HIDDEN = (*PLACES, "serial")
"""What the inventory says of a machine, and viewers are not shown: they cannot guess it, either."""
TEXTS = (
    "status",
    "wanted",
    "name",
    "network",
    "ip",
    *TRAITS,
    *PLACES,
    "serial",
    "boot-set",
    "agent",
)
SEVERAL = ("group", "mac", "images", "stopped")
ALIASES = {
    "arch": "trait:arch",
    "firmware": "trait:firmware",
    "profile": "trait:profile",
    "rack": "label:rack",
    "groups": "group",
    "macs": "mac",
    "image-set": "images",
    "bootset": "boot-set",
    "since": "unchanged",
}
"""Other words that people type."""
VALUES: Mapping[str, Collection[str]] = {
    "wanted": STATES,
    "trait:arch": ARCHES,
    "trait:firmware": FIRMWARES,
    "stopped": ("frozen", "maintenance", "release"),
}
"""What there is no more of."""


class Facts(Protocol):
    """What a query may ask of one node."""

    def text(self, name: str) -> str:
        """The value of a variable, of one of TEXTS, or of a label; "" for none."""

    def several(self, name: str) -> Collection[str]:
        """The values of one of SEVERAL."""

    def amounts(self, name: str) -> Collection[float]:
        """The numbers of a name that is an amount; none if it is not known."""

    def seconds(self, name: str) -> float | None:
        """One of TIMES; None if there is none: it was never heard, or is as wanted."""


@dataclass(frozen=True, slots=True)
class MoreNames:
    """Names that features add: `texts`, of which a node may have several values, and `amounts`, by
    name the numbers that nodes have, if it was looked for."""

    texts: Collection[str] = ()
    amounts: Mapping[str, Collection[float]] = field(default_factory=dict)


Test = Callable[[Facts], bool]


@dataclass(frozen=True, slots=True)
class Query:
    """A text that was understood. `test` says whether a node is meant."""

    text: str
    test: Test


@dataclass(frozen=True, slots=True)
class _Token:
    at: int
    text: str
    sign: bool
    quoted: bool = False


def parse(
    text: str,
    variables: Mapping[str, Collection[str]],
    nodes: int = 0,
    *,
    brief: bool = False,
    existing: Mapping[str, Collection[str]] = MappingProxyType({}),
    more: MoreNames = MoreNames(),
) -> Query:
    """What a text means; `variables` are those of the head's modules with their values, `nodes` is
    how many there are, `existing` the values that others of the names have at the site, `more` the
    names of features. `brief`: without the names of HIDDEN. Raises InputError, with the place."""
    if len(text) > MAX_TEXT:
        raise InputError(
            f"cannot use the query: it has {len(text)} characters, {MAX_TEXT} are possible"
        )
    hidden = HIDDEN if brief else ()
    return Query(
        text,
        _Parser(text, variables, 2 * nodes + SPARE, hidden, {**VALUES, **existing}, more).whole(),
    )


class _Parser:
    """One reading of one text."""

    def __init__(
        self,
        text: str,
        variables: Mapping[str, Collection[str]],
        most: int,
        hidden: Collection[str],
        values: Mapping[str, Collection[str]],
        more: MoreNames,
    ) -> None:
        self._text = text
        self._most = most
        self._ranges = 0
        self._variables = variables
        self._values = values
        self._several = (*SEVERAL, *more.texts)
        self._amounts = more.amounts
        known = (*variables, *TEXTS, *self._several, *more.amounts, *TIMES, f"{LABEL}KEY")
        self._names = tuple(name for name in known if name not in hidden)
        self._tokens = list(self._split())
        self._at = 0
        self._tests = 0

    def _split(self) -> Iterator[_Token]:
        at = 0
        while self._text[at:].strip():
            found = _TOKEN.match(self._text, at)
            if found is None:
                place = at + len(self._text[at:]) - len(self._text[at:].lstrip())
                self._wrong(place, f"{show(self._text[place])} may not stand here")
            kind = next(kind for kind in ("sign", "word", "quoted") if found[kind] is not None)
            yield _Token(
                found.start(kind), found[kind], found["sign"] is not None, kind == "quoted"
            )
            at = found.end()

    def _wrong(self, at: int, why: str, hint: str = "") -> NoReturn:
        raise InputError(
            f"cannot use the query: at character {at + 1}, {why}",
            hint=hint or "such as: image=ERROR and (group=gpu or unchanged>5m)",
        )

    def _next(self, *texts: str) -> bool:
        """Whether the next token is one of these; it is passed then."""
        there = self._at < len(self._tokens) and not self._tokens[self._at].quoted
        there = there and self._tokens[self._at].text in texts
        self._at += there
        return there

    def _token(self, what: str, *, sign: bool) -> _Token:
        if self._at >= len(self._tokens):
            self._wrong(len(self._text), f"{what} is missing")
        token = self._tokens[self._at]
        if token.sign is not sign:
            self._wrong(token.at, f"{what} is expected, found {show(token.text)}")
        self._at += 1
        return token

    def whole(self) -> Test:
        """The test of the whole text."""
        test = self._either(0)
        if self._at < len(self._tokens):
            token = self._tokens[self._at]
            self._wrong(token.at, f"`and` or `or` is expected, found {show(token.text)}")
        return test

    def _either(self, depth: int) -> Test:
        tests = [self._both(depth)]
        while self._next("or"):
            tests.append(self._both(depth))
        return tests[0] if len(tests) == 1 else lambda node: any(test(node) for test in tests)

    def _both(self, depth: int) -> Test:
        tests = [self._one(depth)]
        while self._next("and"):
            tests.append(self._one(depth))
        return tests[0] if len(tests) == 1 else lambda node: all(test(node) for test in tests)

    def _one(self, depth: int) -> Test:
        if depth > MAX_DEPTH:
            self._wrong(
                self._tokens[min(self._at, len(self._tokens) - 1)].at,
                f"it is nested more than {MAX_DEPTH} deep",
            )
        if self._next("not"):
            inner = self._one(depth + 1)
            return lambda node: not inner(node)
        if self._next("("):
            test = self._either(depth + 1)
            if not self._next(")"):
                at = self._tokens[self._at].at if self._at < len(self._tokens) else len(self._text)
                self._wrong(at, "a ) is missing")
            return test
        return self._test()

    def _test(self) -> Test:
        name = self._token("a name", sign=False)
        if name.text not in self._variables:
            name = replace(name, text=ALIASES.get(name.text, name.text))
        self._tests += 1
        if self._tests > MAX_TESTS:
            self._wrong(name.at, f"there are more than {MAX_TESTS} tests")
        if name.text not in self._names and not (
            name.text.startswith(LABEL) and name.text != LABEL
        ):
            self._wrong(
                name.at,
                f"nodes have no {show(name.text)}",
                nearest(name.text, (*self._names, *ALIASES))
                or f"there are {', '.join(self._names)}",
            )
        if self._next("in"):
            return self._within(name.text, self._token("a range", sign=False))
        sign = self._token("one of = != < <= > >= in", sign=True)
        if sign.text not in _ORDER:
            self._wrong(sign.at, f"one of = != < <= > >= in is expected, found {show(sign.text)}")
        return self._compare(name.text, sign, self._token("a value", sign=False))

    def _compare(self, name: str, sign: _Token, value: _Token) -> Test:
        if name in TIMES:
            return self._time(name, sign, value)
        if name in self._amounts:
            return self._amount(name, sign, value)
        if sign.text not in ("=", "!="):
            self._wrong(
                sign.at, f"{name} is no time: {sign.text} says nothing of it", "write = or !="
            )
        word = value.text
        equal = sign.text == "="
        if name == "image" and word in self._values.get("images", ()):
            name = "images"
        known = self._variables.get(name) or self._values.get(name)
        if known is not None and word not in known:
            choices = [*known, *self._values.get("images", ())] if name == "image" else known
            self._wrong(
                value.at,
                f"{name} is never {show(word)}",
                nearest(word, choices) or f"it is one of {', '.join(known)}",
            )
        if name in self._several:
            return lambda node: (word in node.several(name)) is equal
        return lambda node: (node.text(name) == word) is equal

    def _time(self, name: str, sign: _Token, value: _Token) -> Test:
        found = _TIME.fullmatch(value.text)
        holds = _ORDER[sign.text]
        if found is None or not value.text.isascii():
            self._wrong(
                value.at, f"{show(value.text)} is no time", "write a number with s, m, h or d: 5m"
            )
        limit = float(found[1]) * _UNITS[found[2]]
        return lambda node: (took := node.seconds(name)) is not None and holds(took, limit)

    def _amount(self, name: str, sign: _Token, value: _Token) -> Test:
        found = _AMOUNT.fullmatch(value.text)
        if found is None:
            self._wrong(
                value.at, f"{show(value.text)} is no amount", "write 64, 256G (binary) or 1.92TB"
            )
        unit = 1000 if found[3] == "B" else 1024
        limit = float(found[1]) * (unit ** (_POWERS.index(found[2]) + 1) if found[2] else 1)
        holds = _ORDER[sign.text]
        if sign.text not in ("=", "!="):
            return lambda node: any(holds(amount, limit) for amount in node.amounts(name))
        margin = _NEAR * limit if found[2] else 0.0
        known = self._amounts[name]
        if known and not any(abs(amount - limit) <= margin for amount in known):
            closest = sorted(sorted(known, key=lambda amount: abs(amount - limit))[:5])
            hint = f"the nearest there are: {', '.join(amount_text(one) for one in closest)}"
            self._wrong(value.at, f"{name} is never {show(value.text)}", hint)
        equal = sign.text == "="
        return lambda node: (
            any(abs(amount - limit) <= margin for amount in node.amounts(name)) is equal
        )

    def _within(self, name: str, value: _Token) -> Test:
        if name == "name":
            self._ranges += 1
            if self._ranges > MAX_RANGES:
                self._wrong(
                    value.at, f"there are more than {MAX_RANGES} node ranges", "write n[0-9,20-29]"
                )
            try:
                names = frozenset(names_of(value.text, self._most))
            except InputError as error:
                self._wrong(value.at, error.message, error.hint)
            return lambda node: node.text("name") in names
        if name != "ip":
            self._wrong(
                value.at,
                f"{name} is in no range",
                "`in` is for name and ip: name in n[0-9], ip in 10.0.0.0/24",
            )
        try:
            subnet = ipaddress.ip_network(value.text)
        except ValueError as error:
            self._wrong(
                value.at, f"{show(value.text)} is no subnet: {error}", "such as 10.0.1.0/24"
            )
        first = int(subnet.network_address)
        last = int(subnet.broadcast_address)

        def inside(node: Facts) -> bool:
            word = node.text("ip")
            version, number = number_of(word) if word else (0, 0)
            return version == subnet.version and first <= number <= last

        return inside
