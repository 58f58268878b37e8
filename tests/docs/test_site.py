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


def test_the_folders_and_files_of_the_map_exist() -> None:
    """`name/` is a folder, `name.py` a file: below the folder whose line names it, or beside it."""
    named = 0
    above = [(-1, ROOT)]
    for line in re.findall(r"(?m)^    ( *\S.*)", (ROOT / "ARCHITECTURE.md").read_text()):
        indent = len(line) - len(line.lstrip())
        if indent >= 16 or "->" in line:
            continue
        while above[-1][0] >= indent:
            above.pop()
        own = re.match(r"([\w-]+)/", line.strip())
        if own is not None:
            above.append((indent, above[-1][1] / own[1]))
            assert above[-1][1].is_dir(), line
        for name in re.findall(r"(?<![\w/`-])([a-z_-]+(?:/(?![\w])|\.py))", line):
            here = above[-1][1]
            places = [here / name, here.parent / name, *here.glob(f"*/{name}")]
            places += here.parent.glob(f"*/{name}")
            assert any(place.exists() for place in places), f"{name}: {line.strip()}"
            named += 1
    assert named > 60


def test_each_page_has_a_link_to_the_glossary(site: Path) -> None:
    pages = [
        page for page in site.rglob("*.html") if page.name not in ("search.html", "genindex.html")
    ]
    assert len(pages) > 60
    for page in pages:
        link = re.search(r'<p class="glossary"><a href="([^"#]*)', page.read_text())
        assert link is not None, page
        assert (page.parent / (link[1] or page.name)).resolve() == site / "glossary.html", page
