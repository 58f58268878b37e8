"""The pictures that pages show are there, and there are no others."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs/pictures"
MOST_BYTES = {".": 2_000_000, "night": 600_000}
_NAMED = re.compile(r"pictures/([\w./-]+\.(?:svg|png|webp))")


def test_each_picture_is_on_a_page_and_each_page_has_its_pictures() -> None:
    pages = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *(ROOT / "docs").rglob("*.md")]
    named = {name for page in pages for name in _NAMED.findall(page.read_text())}
    there = {str(path.relative_to(PICTURES)) for path in PICTURES.rglob("*.*")}
    assert named == there


def test_they_are_small() -> None:
    for folder, most in MOST_BYTES.items():
        size = sum(path.stat().st_size for path in (PICTURES / folder).rglob("*.*"))
        assert size <= most, folder
