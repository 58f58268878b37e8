"""The documentation builds without a warning, loads nothing from elsewhere, and its links from
outside the site lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
_LOADS = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(?:https?:)?//|<link\b[^>]*\bhref=["']?(?:https?:)?//"""
)
_IMPORTS = re.compile(r"""(?:@import|url\()\s*["']?(?:https?:)?//""")


def test_every_page_is_in_the_site(site: Path) -> None:
    for page in DOCS.rglob("*.md"):
        assert (site / page.relative_to(DOCS)).with_suffix(".html").exists()


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert not _LOADS.search(page.read_text()), page
    for sheet in site.rglob("*.css"):
        assert not _IMPORTS.search(sheet.read_text()), sheet


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_links_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / name).read_text()):
        assert (ROOT / target).exists(), target


def test_the_map_is_short_and_true() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert len(text.splitlines()) <= 150
    for path in re.findall(
        r"`((?:layercake|pxe|powerman|imageapi|minos|docs|tests)/[\w./-]+)`", text
    ):
        assert "NOUN" in path or (ROOT / path).exists(), path


def test_each_page_has_a_link_to_the_glossary(site: Path) -> None:
    pages = [
        page for page in site.rglob("*.html") if page.name not in ("search.html", "genindex.html")
    ]
    assert len(pages) > 60
    for page in pages:
        link = re.search(r'<p class="glossary"><a href="([^"#]*)', page.read_text())
        assert link is not None, page
        assert (page.parent / (link[1] or page.name)).resolve() == site / "glossary.html", page
