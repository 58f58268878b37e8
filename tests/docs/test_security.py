"""Tests that docs/explanation/security.md names for its sentences exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/explanation/security.md"


def test_each_test_that_is_named_exists() -> None:
    text = PAGE.read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text)
    assert named
    tests: dict[str, set[str]] = {}
    for file, _ in named:
        tree = ast.parse((ROOT / file).read_text())
        tests[file] = {
            node.name
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
    missing = [f"{file}::{name}" for file, name in named if name and name not in tests[file]]
    every = set().union(*tests.values())
    missing += [name for name in re.findall(r"`(test_\w+)`", text) if name not in every]
    assert not missing
