"""Looking for something in the logs of many consoles, in a process of its own that is bounded in
time and memory: a pattern may be made so that it never ends."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layercake.kraken.errors import InputError
from layercake.moduleapi.sandboxed_job import Bounds, SandboxedJob
from powerman.console.lines import STAMP, parse_stamp
from powerman.console.logs import name_of

PATTERN = 200
MOST = 10_000
"""Characters of a pattern; matches of one search."""
_TEXT = 1000  # of a line that is shown
_ASIDE = SandboxedJob(
    "search the consoles' logs",
    Bounds(seconds=20.0, memory=512 << 20, answer=24 << 20),
    urgent=True,
)


@dataclass(frozen=True, slots=True)
class Match:
    """A line that matches: its node, when it was said, and what."""

    node: str
    at: float
    text: str


async def search(
    directory: Path,
    names: Sequence[str],
    pattern: str,
    *,
    regex: bool,
    ignore_case: bool,
    limit: int,
    aside: SandboxedJob = _ASIDE,
) -> tuple[list[Match], bool]:
    """At most `limit` lines, by node and then by time, and whether there are more. Raises
    InputError for what is no pattern, Refused while others search, OperationFailed if it takes too
    long."""
    if not pattern or len(pattern) > PATTERN or not pattern.isprintable():
        raise InputError(
            f"cannot search the consoles' logs: the pattern is 1 to {PATTERN} characters that can "
            "be printed"
        )
    if regex:
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise InputError(
                f"cannot search the consoles' logs: the pattern is no regular expression: {error}"
            ) from None
    asked = {
        "directory": str(directory),
        "names": list(names),
        "pattern": pattern,
        "regex": regex,
        "ignore_case": ignore_case,
        "limit": min(limit, MOST),
    }
    async with aside.turn():
        result = json.loads(
            await aside.run("powerman.console.search", data=json.dumps(asked).encode())
        )
    return [Match(*one) for one in result["matches"]], bool(result["more"])


def find(asked: dict[str, Any]) -> dict[str, Any]:
    """The work itself: what `search` asks for."""
    flags = re.IGNORECASE if asked["ignore_case"] else 0
    pattern = re.compile(asked["pattern"] if asked["regex"] else re.escape(asked["pattern"]), flags)
    literal = "" if asked["regex"] or asked["ignore_case"] else asked["pattern"]
    matches: list[tuple[str, float, str]] = []
    for name in asked["names"]:
        for line in _lines(Path(asked["directory"]), name, literal):
            text = line[STAMP + 1 :]
            if pattern.search(text) and (at := parse_stamp(line[:STAMP])) is not None:
                if len(matches) >= asked["limit"]:
                    return {"matches": matches, "more": True}
                matches.append((name, at, text[:_TEXT]))
    return {"matches": matches, "more": False}


def _lines(directory: Path, name: str, literal: str) -> Iterator[str]:
    for old in (True, False):
        try:
            text = (directory / name_of(name, old)).read_text("utf-8", "replace")
        except OSError:
            continue  # it has said nothing yet, or was rotated just now
        if literal in text:
            yield from (line for line in text.split("\n") if literal in line)


if __name__ == "__main__":
    json.dump(find(json.load(sys.stdin)), sys.stdout)
