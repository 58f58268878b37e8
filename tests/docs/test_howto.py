"""Each how-to page says first what one needs, and last how to see that it works; the index has each
of them once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HOWTO = Path(__file__).resolve().parents[2] / "docs/howto"
PAGES = sorted(page.stem for page in HOWTO.glob("*.md") if page.stem != "index")
NEED, SEE = "You need", "See that it works"
INTRODUCTION = 900
"""So many characters at most stand before what one needs."""


def text(name: str) -> str:
    """A page without its examples, in which `## ` is something else."""
    return re.sub(r"^```.*?^```", "", (HOWTO / f"{name}.md").read_text(), flags=re.M | re.S)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_begins_with_needs_and_ends_with_seeing(name: str) -> None:
    sections = re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", text(name), re.M | re.S)
    titles = [title for title, _ in sections]
    assert titles[0] == NEED and titles[-1] == SEE
    assert titles.count(NEED) == titles.count(SEE) == 1
    assert sections[0][1].strip()
    assert len(text(name).partition("## ")[0]) < INTRODUCTION
    ((_, seen),) = re.findall(
        rf"^## ({SEE})\n(.*)\Z", (HOWTO / f"{name}.md").read_text(), re.M | re.S
    )
    assert len(seen.strip()) > 40 and ("`" in seen or "\n    " in seen), (
        "by what command or by which words?"
    )


def test_the_index_has_each_page_once_under_what_one_does() -> None:
    index = (HOWTO / "index.md").read_text()
    titles = re.findall(r"^## (.+)$", index, re.M)
    assert titles == [
        "The first day",
        "Every day",
        "Incidents",
        "Images",
        "Nodes",
        "Networks",
        "Integrations",
    ]
    blocks = re.findall(r"^```\{toctree\}\n:maxdepth: 1\n\n(.*?)^```", index, re.M | re.S)
    listed = [name for block in blocks for name in block.split()]
    assert sorted(listed) == PAGES


def test_the_first_day_leads_to_the_pages_that_say_more() -> None:
    page = (HOWTO / "first-day.md").read_text()
    steps = re.findall(r"^## \d+\. ([^\n]+)\n(.*?)(?=^## )", page, re.M | re.S)
    assert len(steps) == 9
    for title, step in steps:
        assert re.search(r"\]\([a-z0-9-]+\.md\)", step), f"{title}: no page says more"
        assert "```console" in step or "dark" in title, f"{title}: no command"
