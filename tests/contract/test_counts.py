"""How many of something is said as people say it: one node, two nodes (base.text.count_of)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from layercake.base.text import count_of

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("layercake", "pxe", "powerman", "imageapi", "minos")
MANY = re.compile(r" (?:[a-z]+ ){0,2}?(?!(?:bytes|characters|has|is|goes)\b)[a-z]{3,}s\b")
LIMIT = re.compile(r"at most|can be|are possible")
"""Who says this has met more of them than that."""
COUNTS = ("count", "number", "lost", "left", "left_out", "total", "times", "attempts", "others")
NEVER_ONE = {
    ("imageapi/build/rootfs.py", "len(names)"),
    ("imageapi/build/rootfs.py", "len(paths)"),
    ("layercake/features/images/operations.py", "len(matching)"),
    ("layercake/features/machines/commands.py", "count"),
    ("layercake/features/machines/operations.py", "count"),
    ("layercake/features/machines/operations.py", "len(free)"),
    ("layercake/features/machines/views.py", "len(claims)"),
    ("layercake/inventory/ranges.py", "len(unknown) - 1"),
    ("layercake/inventory/sections.py", "count"),
    ("layercake/inventory/sections.py", "len(value.items)"),
    ("layercake/kraken/views/draw.py", "len(states)"),
    ("layercake/kraken/views/explain.py", "q.attempts"),
    ("minos/agent/network/reporter.py", "count"),
}
"""They are more than some limit, or one is said in other words beside them."""


def plurals(text: str) -> Iterator[str]:
    """What f-strings put before the name of many things: `len(x)`, or a variable that counts."""
    for joined in ast.walk(ast.parse(text)):
        if not isinstance(joined, ast.JoinedStr) or LIMIT.search(ast.unparse(joined)):
            continue
        parts = joined.values
        for before, value, after in zip([None, *parts], parts, parts[1:], strict=False):
            if not isinstance(value, ast.FormattedValue) or not isinstance(after, ast.Constant):
                continue
            of_many = isinstance(before, ast.Constant) and str(before.value).endswith(
                ("of ", "of its ")
            )
            source = ast.unparse(value.value)
            counts = source.startswith("len(") or source.split(".")[-1] in COUNTS
            if counts and not of_many and MANY.match(str(after.value)):
                yield source


def test_nothing_says_one_nodes() -> None:
    found = {
        (str(file.relative_to(ROOT)), source)
        for folder in PRODUCT
        for file in sorted((ROOT / folder).rglob("*.py"))
        for source in plurals(file.read_text())
    }
    assert found - NEVER_ONE == set(), "say count_of(number, 'node')"
    assert NEVER_ONE - found == set(), "they are gone: take them out of the list"


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("f'{len(names)} nodes'", ["len(names)"]),
        ("f'{self.left_out} events left out'", ["self.left_out"]),
        ("f'{len(a)} of {len(b)} nodes'", []),
        ("f'{len(given)} nodes, 5 at most'", []),
        ("f'{host} answers'", []),
        ("f'{count} more new mistakes'", ["count"]),
        ("f'{len(data)} bytes'", []),
    ],
)
def test_the_rule_finds_them(code: str, found: list[str]) -> None:
    assert list(plurals(code)) == found


def test_one_and_many() -> None:
    assert [count_of(n, "node") for n in (0, 1, 2)] == ["0 nodes", "1 node", "2 nodes"]
    assert count_of(2, "address", "addresses") == "2 addresses"
    assert count_of(1, "address", "addresses") == "1 address"
