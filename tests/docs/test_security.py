"""The page on security names tests beside its sentences: they exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "explanation" / "security.md"
NAMED = re.compile(r"`(?:((?:[a-z-]+/)+test_\w+\.py)(?:::(test_\w+))?|(?:::)?(test_\w+))`")
"""`FILE`, `FILE::TEST`, or `::TEST` or `TEST` of the file that was named before."""


def missing(text: str) -> list[str]:
    """The named tests that there are not."""
    file = ""
    found = []
    for match in NAMED.finditer(text):
        file = match[1] or file
        path = ROOT / file
        test = match[2] or match[3]
        if not path.is_file() or (test and f"def {test}(" not in path.read_text()):
            found.append(f"{file}::{test}" if test else file)
    return found


def test_each_test_that_the_page_names_exists() -> None:
    text = PAGE.read_text()
    assert len(NAMED.findall(text)) > 20
    assert not missing(text)
    assert len(re.findall(r"`[^`\s]*test_[^`]*`", text)) == len(NAMED.findall(text))


def rows(text: str) -> list[str]:
    """The rows of the table of attacks, without its head."""
    section = text.partition("\n## What was attacked")[2].partition("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("| ")][1:]


def test_each_attack_has_its_test() -> None:
    found = rows(PAGE.read_text())
    assert len(found) > 15
    assert not [row for row in found if not NAMED.search(row.rpartition("|")[0].rpartition("|")[2])]


def test_one_that_is_not_there_is_seen() -> None:
    here = "tests/docs/test_security.py"
    text = f"x (`{here}::test_one_that_is_not_there_is_seen`, `::test_nothing`), `tests/test_x.py`"
    assert missing(text) == [f"{here}::test_nothing", "tests/test_x.py"]
