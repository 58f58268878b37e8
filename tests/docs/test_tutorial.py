"""The headings and limits that the tutorial shows are those of the demo that it runs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/tutorial/first-rack.md").read_text()
DEMO = ast.parse((ROOT / "vm-testbed/rackdemo.py").read_text())
HEADINGS = re.findall(r"^=== +[\d.]+ s  (.+)$", PAGE, re.M)


def pattern(text: ast.expr) -> str:
    """The regular expression of what a string or f-string comes to."""
    if isinstance(text, ast.JoinedStr):
        return "".join(
            re.escape(str(part.value)) if isinstance(part, ast.Constant) else r"\S+"
            for part in text.values
        )
    assert isinstance(text, ast.Constant)
    return re.escape(str(text.value))


def headings() -> Iterator[str]:
    """The regular expressions of all headings of the demo, in the order of its source."""
    for node in ast.walk(DEMO):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "step"
        ):
            yield pattern(node.args[0])


def test_there_are_headings() -> None:
    assert len(HEADINGS) >= 8


@pytest.mark.parametrize("heading", HEADINGS)
def test_a_heading_of_the_tutorial_is_one_of_the_demo(heading: str) -> None:
    assert any(re.fullmatch(known, heading) for known in headings())


def test_the_limit_of_its_commands_is_the_demos() -> None:
    limit = next(
        ast.literal_eval(node.value)
        for node in DEMO.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id == "LIMIT_S"
    )
    assert set(re.findall(r"--timeout (\S+)", PAGE)) == {str(limit)}
