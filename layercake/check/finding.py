"""What a check is and what it says: a function of the site that returns findings, by a name that
stays."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from layercake.inventory.ranges import fold

if TYPE_CHECKING:
    from layercake.check.site import Site


class Severity(enum.Enum):
    """Whether there is something to do. The values are those of --json."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what is so, and for what is not ok what to do about it. `nodes` is the range that
    it is about, "" for none."""

    severity: Severity
    text: str
    hint: str = ""
    nodes: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """One check. `look` may raise LayercakeError and OSError: that it cannot be carried out is an
    error too."""

    name: str
    doc: str
    look: Callable[[Site], list[Finding]]


@dataclass(frozen=True, slots=True)
class Result:
    """A finding of the check of this name."""

    name: str
    finding: Finding

    def to_record(self) -> dict[str, Any]:
        """JSON-ready."""
        f = self.finding
        return {
            "name": self.name,
            "severity": f.severity.value,
            "text": f.text,
            "hint": f.hint,
            "nodes": f.nodes,
        }


def check(name: str, *, sides: bool = False) -> Callable[[Callable[[Site], list[Finding]]], Check]:
    """Makes a check of a function; its docstring says what it looks at. With `sides` it is made for
    each network that the head is in (Site.sides)."""

    def decorate(look: Callable[[Site], list[Finding]]) -> Check:
        def each(site: Site) -> list[Finding]:
            return [finding for side in site.sides() for finding in look(side)]

        return Check(
            name, " ".join(inspect.cleandoc(look.__doc__ or "").split()), each if sides else look
        )

    return decorate


def ok(text: str) -> Finding:
    """All is as it has to be."""
    return Finding(Severity.OK, text)


def warning(text: str, hint: str = "", nodes: Iterable[str] = ()) -> Finding:
    """Something that may do harm, some day or at some sites."""
    return Finding(Severity.WARNING, text, hint, fold(nodes))


def error(text: str, hint: str = "", nodes: Iterable[str] = ()) -> Finding:
    """Something that keeps nodes from booting, or the head from its work."""
    return Finding(Severity.ERROR, text, hint, fold(nodes))
