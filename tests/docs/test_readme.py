"""README.md: its pictures and links lead somewhere, and its table of other tools is what
compared.md backs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
COMPARED = (ROOT / "docs/explanation/compared.md").read_text()
LINKS = re.findall(r"!?\[[^\]]*\]\(([^)\s]+)\)", README)
SECTION_OF = {"Ironic 35, Metal3": "Ironic and Metal3"}


def anchors(page: Path) -> set[str]:
    """Those of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("link", sorted(set(LINKS)))
def test_a_link_leads_somewhere(link: str) -> None:
    path, _, anchor = link.partition("#")
    if not path.startswith("https://"):
        assert (ROOT / path).exists(), link
        assert not anchor or anchor in anchors(ROOT / path), link


def test_it_shows_its_pictures_and_begins_with_what_it_is() -> None:
    for name in ("way.svg", "dashboard.png", "watch.svg", "explain.svg"):
        assert f"docs/pictures/{name}" in LINKS
    opening = README[: README.index("## ")]
    for word in (
        "head node",
        "never on real hardware",
        "way.svg",
        "make sim",
        "make demo",
        "make test",
        "make bench",
    ):
        assert word in opening
    titles = (
        "How it works",
        "Who it is for",
        "Limits",
        "Scale and speed",
        "Try it",
        "Install a head",
    )
    order = [README.index(f"\n## {title}\n") for title in titles]
    assert order == sorted(order)


def test_minos_is_as_large_in_the_picture_as_in_the_table() -> None:
    picture = (ROOT / "docs/pictures/way.svg").read_text()
    (drawn,) = re.findall(r">kernel \+ ([\d.]+ MB)<", picture)
    assert f"| minOS | {drawn}, plus the kernel |" in README


def rows(text: str) -> list[list[str]]:
    """The cells of the first table of a text, its headings first."""
    lines = []
    for line in text[text.index("\n|") + 1 :].splitlines():
        if not line.startswith("|"):
            break
        lines.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))])
    return [lines[0], *lines[2:]]


def section(title: str) -> str:
    """Of compared.md, by its heading or the beginning of it."""
    found = re.search(rf"^## {re.escape(title)}.*?(?=^## |\Z)", COMPARED, re.M | re.S)
    assert found is not None, title
    return found[0]


def test_each_cell_of_a_peer_has_its_source() -> None:
    heading, *cells = rows(README[README.index("## Compared with other tools") :])
    for column, name in enumerate(heading[2:], 2):
        title = SECTION_OF.get(name) or name.split(" ")[0]
        backed = {row[0]: row for row in rows(section(title))[1:]}
        assert re.search(r"[Vv]ersion|\d+\.\d+", section(title)), f"no version of {title}"
        for row in cells:
            said, sources = row[column], backed[row[0]]
            assert sources[-1] or sources[1].startswith("Unknown"), (
                f"{title}: {row[0]} has no source"
            )
            assert not said.startswith("unknown") or "nknown" in sources[1], f"{title}: {row[0]}"


def test_all_tools_are_compared_by_the_same_topics() -> None:
    topics = [
        [row[0] for row in rows(part)[1:]]
        for part in re.split(r"^(?=## )", COMPARED, flags=re.M)[1:]
    ]
    assert len(topics) == 7 and all(each == topics[0] for each in topics)
