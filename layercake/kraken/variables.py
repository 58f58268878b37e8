"""Variables and how the values of a node's variables are packed into one int.

A variable is a finite enum whose zero value is UNKNOWN (paper, section 3.2, A1 and A2). A layout
gives each variable a bit field; variables are ordered by name, so that the same declarations give
the same layout whatever the order they were made in. Head and node compare layout digests before
they trust each other's packed states.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from layercake.kraken.errors import DeclarationError

UNKNOWN = "UNKNOWN"
KEPT = 4096
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_VALUE = re.compile(r"[A-Z][A-Z0-9_]{0,31}")


@dataclass(frozen=True, slots=True)
class Variable:
    """A named enum. `values[0]` is always UNKNOWN; the index of a value is what is packed and
    sent."""

    name: str
    values: tuple[str, ...]
    doc: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise DeclarationError(
                f"cannot declare variable {self.name!r}: names are lower case, at most 32 "
                "characters"
            )
        if len(self.values) < 2 or self.values[0] != UNKNOWN:
            raise DeclarationError(
                f"cannot declare variable {self.name}: its first value must be UNKNOWN, and it "
                "needs another"
            )
        if len(set(self.values)) != len(self.values) or not all(
            _VALUE.fullmatch(v) for v in self.values
        ):
            raise DeclarationError(
                f"cannot declare variable {self.name}: values must be distinct upper-case words"
            )


@dataclass(frozen=True, slots=True)
class Goal:
    """What is wanted: the bits under `mask` must equal `value`. Variables outside the mask are
    don't-care."""

    mask: int
    value: int

    def met(self, state: int) -> bool:
        """Whether a packed state satisfies this goal."""
        return state & self.mask == self.value


ANYTHING = Goal(0, 0)


class Layout:
    """The bit fields of a set of variables; packs {variable: value} into an int and back."""

    __slots__ = ("_field", "_goals", "_unpacked", "_value_index", "digest", "variables")

    def __init__(self, variables: Iterable[Variable]) -> None:
        by_name: dict[str, Variable] = {}
        for variable in variables:
            if by_name.get(variable.name, variable).values != variable.values:
                raise DeclarationError(
                    f"cannot build layout: variable {variable.name} is declared twice with "
                    "different values"
                )
            by_name[variable.name] = variable
        self.variables: tuple[Variable, ...] = tuple(by_name[n] for n in sorted(by_name))
        self._field: dict[str, tuple[int, int]] = {}
        self._value_index: dict[str, dict[str, int]] = {}
        self._unpacked: dict[int, dict[str, str]] = {}
        self._goals: dict[Goal, dict[str, str]] = {}
        shift = 0
        for variable in self.variables:
            width = (len(variable.values) - 1).bit_length()
            self._field[variable.name] = (shift, (1 << width) - 1)
            self._value_index[variable.name] = {v: i for i, v in enumerate(variable.values)}
            shift += width
        if shift > 128:
            raise DeclarationError(f"cannot build layout: {shift} bits, the wire carries 128")
        text = ";".join(f"{v.name}={','.join(v.values)}" for v in self.variables)
        self.digest: bytes = hashlib.blake2b(text.encode(), digest_size=4).digest()

    def _fields(self, name: str) -> tuple[int, int]:
        try:
            return self._field[name]
        except KeyError:
            raise DeclarationError(
                f"cannot use variable {name!r}: it is not declared (known: "
                f"{', '.join(self._field)})"
            ) from None

    def index(self, name: str, value: str) -> int:
        """The number of a value. Raises DeclarationError if variable or value is not declared."""
        self._fields(name)
        try:
            return self._value_index[name][value]
        except KeyError:
            known = ", ".join(self._value_index[name])
            raise DeclarationError(
                f"cannot use value {value!r} of variable {name}: it is not declared (known: "
                f"{known})"
            ) from None

    def mask(self, name: str) -> int:
        """The bits of one variable, in place."""
        shift, ones = self._fields(name)
        return ones << shift

    def bits(self, name: str, value: str) -> int:
        """One value of one variable, in place."""
        return self.index(name, value) << self._fields(name)[0]

    def get(self, state: int, name: str) -> str:
        """The value of one variable in a packed state; an out-of-range number reads as UNKNOWN."""
        self._fields(name)
        return self._known(state)[name]

    def _known(self, state: int) -> dict[str, str]:
        """The values of a state. A fleet is in few different states, so they are kept; within
        bounds: they come from outside."""
        found = self._unpacked.get(state)
        if found is None:
            found = {}
            for variable in self.variables:
                shift, ones = self._field[variable.name]
                number = state >> shift & ones
                found[variable.name] = (
                    variable.values[number] if number < len(variable.values) else UNKNOWN
                )
            if len(self._unpacked) < KEPT:
                self._unpacked[state] = found
        return found

    def set(self, state: int, name: str, value: str) -> int:
        """The packed state with one variable replaced."""
        return state & ~self.mask(name) | self.bits(name, value)

    def pack(self, values: Mapping[str, str]) -> int:
        """Packs values; variables that are not named are UNKNOWN."""
        state = 0
        for name, value in values.items():
            state |= self.bits(name, value)
        return state

    def unpack(self, state: int) -> dict[str, str]:
        """All variables of a packed state, UNKNOWN ones too, by name in layout order."""
        return dict(self._known(state))

    def wanted(self, goal: Goal) -> dict[str, str]:
        """{variable: value} of a goal, without variables that do not matter."""
        found = self._goals.get(goal)
        if found is None:
            found = {
                v.name: self.get(goal.value, v.name)
                for v in self.variables
                if goal.mask & self.mask(v.name)
            }
            if len(self._goals) < KEPT:
                self._goals[goal] = found
        return dict(found)

    def valid(self, state: int) -> bool:
        """Whether every field holds a declared value and no bit is set outside the fields."""
        return state >= 0 and self.pack(self.unpack(state)) == state

    def goal(self, values: Mapping[str, str]) -> Goal:
        """A goal from {variable: value}; variables that are not named are don't-care."""
        mask = 0
        for name in values:
            mask |= self.mask(name)
        return Goal(mask, self.pack(values))

    def to_wire(self) -> list[tuple[str, list[str]]]:
        """A JSON-ready form that `from_wire` reads back on the other side."""
        return [(v.name, list(v.values)) for v in self.variables]

    @classmethod
    def from_wire(cls, data: Iterable[tuple[str, Iterable[str]]]) -> Layout:
        """The layout that `to_wire` described. Raises DeclarationError if it is not well-formed."""
        return cls(Variable(name, tuple(values)) for name, values in data)
