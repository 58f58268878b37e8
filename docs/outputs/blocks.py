"""The marked blocks of a page: found, and written anew. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

ANY = "..."
"""A line of an output that stands for any lines."""
_QUIETLY = re.compile(r"<!-- quietly: (?P<place>\w+): (?P<command>.*?) -->", re.DOTALL)
_BLOCK = re.compile(
    r"<!-- run: (?P<run>\w+) -->\n```(?P<language>\w*)\n(?P<body>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_COMMAND = re.compile(r"[#$] (?P<command>\S.*)")


@dataclass(frozen=True, slots=True)
class Step:
    """A command, as it stands on the page, and the lines that the page shows of its output. `typed`
    are the lines of the page that it takes; none: it is run quietly."""

    place: str
    command: str
    typed: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()


def steps(text: str) -> list[Step]:
    """What is run on a page, in its order. Raises ValueError for a marked block that begins with no
    command."""
    found = [
        (m.start(), [Step(m["place"], " ".join(m["command"].split()))])
        for m in _QUIETLY.finditer(text)
    ]
    found += [(m.start(), list(_steps(m["run"], m["body"]))) for m in _BLOCK.finditer(text)]
    return [step for _, those in sorted(found, key=lambda pair: pair[0]) for step in those]


def _steps(place: str, body: str) -> Iterator[Step]:
    lines = body.splitlines()
    at = 0
    while at < len(lines):
        begins = _COMMAND.fullmatch(lines[at])
        if begins is None:
            raise ValueError(f"a block for {place} begins with {lines[at]!r}, which is no command")
        typed = [lines[at]]
        while typed[-1].endswith("\\") and at + len(typed) < len(lines):
            typed.append(lines[at + len(typed)])
        at += len(typed)
        shown = []
        while at < len(lines) and _COMMAND.fullmatch(lines[at]) is None:
            shown.append(lines[at])
            at += 1
        command = "\n".join([begins["command"], *typed[1:]])
        yield Step(place, command, tuple(typed), tuple(_trimmed(shown)))


def _trimmed(lines: Sequence[str]) -> Sequence[str]:
    """Without empty lines at the end: they part a command from the next."""
    end = len(lines)
    while end and not lines[end - 1].strip():
        end -= 1
    return lines[:end]


def rewritten(text: str, outputs: Sequence[Sequence[str]]) -> str:
    """The page with the outputs of its steps (those of `steps`, quiet ones included) in the place
    of what it shows."""
    left = iter(zip(steps(text), outputs, strict=True))

    def block(match: re.Match[str]) -> str:
        count = len(list(_steps(match["run"], match["body"])))
        lines: list[str] = []
        for number in range(count):
            step, output = next(pair for pair in left if pair[0].typed)
            parted = [""] if number and lines and lines[-1] not in step.typed and step.shown else []
            lines += [*parted, *step.typed, *shortened(step.shown, output)]
        body = "\n".join(lines)
        return f"<!-- run: {match['run']} -->\n```{match['language']}\n{body}\n```"

    return _BLOCK.sub(block, text)


def shortened(shown: Sequence[str], output: Sequence[str]) -> list[str]:
    """The output, left out where the page leaves out: as many lines stay before the first `...` and
    after the last as were there. A page that shows nothing of a command's output goes on showing
    nothing."""
    if not shown:
        return []
    if ANY not in shown:
        return list(output)
    first, last = shown.index(ANY), len(shown) - 1 - shown[::-1].index(ANY)
    tail = len(shown) - last - 1
    if first + tail >= len(output):
        return list(output)
    return [*output[:first], ANY, *(output[-tail:] if tail else [])]
