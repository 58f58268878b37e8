"""Mistakes in an inventory: each with its place, all reported at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from layercake.kraken.errors import InputError


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A place in a file. Line and column count from 1, as editors do."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake. `hint` says what to write instead, or is empty. Never holds the value of a
    password."""

    file: str
    line: int
    column: int
    message: str
    hint: str = ""

    def __str__(self) -> str:
        hint = f" (hint: {self.hint})" if self.hint else ""
        return f"{self.file}:{self.line}:{self.column}: {self.message}{hint}"


class InventoryErrors(InputError):
    """An inventory (or another YAML file, `what`) with mistakes; `problems` holds all of them, in
    the order of the file."""

    def __init__(self, file: str, problems: Iterable[Problem], what: str = "inventory") -> None:
        self.problems: tuple[Problem, ...] = tuple(
            sorted(problems, key=lambda p: (p.line, p.column))
        )
        count = len(self.problems)
        super().__init__(
            f"cannot use {what} {file}: {count} mistake{'' if count == 1 else 's'}",
            hint="nothing was changed; correct the places listed and try again",
        )

    def refusal(self, what: str, node: str = "") -> InputError:
        """The first mistake and how many more there are, where no file has places to be shown:
        "cannot WHAT: why". WHAT names `node`, so the mistake does not name it again."""
        first = self.problems[0]
        message = first.message
        for named, instead in ((f"node {node}: ", ""), (f"{node}: ", ""), (f"node {node} ", "it ")):
            if node and message.startswith(named):
                message = instead + message.removeprefix(named)
        count = len(self.problems) - 1
        more = f", and {count} more mistake{'' if count == 1 else 's'}" if count else ""
        return InputError(f"cannot {what}: {message}{more}", hint=first.hint)

    def __str__(self) -> str:
        return "\n".join([self.message, *(f"  {p}" for p in self.problems)])


class Problems:
    """Collects the mistakes of one file while the reading goes on."""

    def __init__(self, file: str, what: str = "inventory") -> None:
        self.file = file
        self.what = what
        self.found: list[Problem] = []

    def add(self, mark: Mark, message: str, hint: str = "") -> None:
        """Notes a mistake. The same one at the same place is noted once (an anchor is read once for
        each alias)."""
        problem = Problem(self.file, mark.line, mark.column, message, hint)
        if problem not in self.found[-50:]:
            self.found.append(problem)

    def raise_if_any(self) -> None:
        """Raises InventoryErrors when there was a mistake."""
        if self.found:
            raise InventoryErrors(self.file, self.found, self.what)
