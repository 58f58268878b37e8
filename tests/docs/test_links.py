"""What names a page of the documentation leads to one: in commands, the dashboard, alerts, errors
and the site itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml

from layercake.cli.docs import find, followed
from layercake.debian.documentation import PLACE
from layercake.documentation import URL, command, howto, titles
from layercake.features.nodes.lists import causes
from layercake.head.modules import standard

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
TITLES = titles(DOCS)
SOURCES = ("layercake", "pxe", "powerman", "imageapi", "minos", "examples")
_COMMAND = re.compile(r"layercake docs ([\w/-]+)")
_PATH = re.compile(r"/docs/([\w/.-]+\.html)")
_FILE = re.compile(r"(?<![\w/])docs/[\w/-]+(?:\.md)?")
_HOWTO = re.compile(r"(?:\b_page|\bhowto)\([\"']([\w-]+)[\"']\)")


def sources() -> Iterator[Path]:
    for place in SOURCES:
        for path in sorted((ROOT / place).rglob("*")):
            if (
                path.is_file()
                and path.suffix in (".py", ".js", ".html", ".yml", ".json", ".service", ".md", "")
                and not {"node_modules", "__pycache__", "xterm"} & set(path.parts)
            ):
                yield path


def test_the_pages_of_causes_and_events_are_there() -> None:
    named = {
        causes.BMC,
        causes.BOOT,
        causes.DARK,
        causes.DISKS,
        causes.ROLLS,
        causes.RELEASE,
        causes.CONSOLES,
    }
    kinds = {kind.name: kind.page for kind in standard().events.values() if kind.page}
    assert len(named) > 5 and len(kinds) > 2
    for page in (*named, *kinds.values()):
        assert howto(page) in TITLES, page


def test_what_the_sources_name_is_there() -> None:
    found = 0
    for path in sources():
        text = path.read_text(errors="replace")
        for page in _COMMAND.findall(text):
            assert find(page, TITLES), path
        for page in _PATH.findall(text):
            assert page.removeprefix("html/").removesuffix(".html") in TITLES, f"{path}: {page}"
        for page in _HOWTO.findall(text):
            assert howto(page) in TITLES, f"{path}: {page}"
        found += len(_COMMAND.findall(text)) + len(_PATH.findall(text)) + len(_HOWTO.findall(text))
    assert found > 8


def test_nothing_that_is_printed_names_a_file_that_a_head_does_not_have() -> None:
    """A path below docs/ means something in a clone only."""
    own = {
        ROOT / "layercake/documentation.py",
        ROOT / "layercake/cli/docs.py",
        *(ROOT / "layercake/debian").rglob("*"),
    }
    named = [
        f"{path.relative_to(ROOT)}: {page}"
        for path in sources()
        if path not in own
        for page in _FILE.findall(path.read_text(errors="replace"))
    ]
    assert named == ["layercake/dashboard/documentation.py: docs/strict"]


def test_alerts_lead_to_pages() -> None:
    groups = yaml.safe_load((ROOT / "examples/prometheus/layercake.rules.yml").read_text())[
        "groups"
    ]
    notes = [rule["annotations"] for group in groups for rule in group["rules"]]
    links = [found["runbook_url"] for found in notes if "runbook_url" in found]
    assert len(links) > 5
    for link in links:
        head, _, page = link.partition("}}/docs/")
        assert head == "https://{{ $labels.instance " and page.removesuffix(".html") in TITLES, link


def test_the_unit_names_what_the_package_has() -> None:
    unit = (ROOT / "layercake/debian/layercake.service").read_text()
    assert f"Documentation=man:layercake(1) file:///{PLACE}/html/index.html\n" in unit


def test_one_place_says_how_pages_are_named() -> None:
    assert command(howto("consoles")) == "layercake docs howto/consoles"
    assert howto("consoles") == "howto/consoles" and URL == "/docs/"


@pytest.mark.parametrize("name", sorted(TITLES))
def test_links_in_a_terminal_are_commands_that_work(name: str) -> None:
    text = followed((DOCS / f"{name}.md").read_text(), name, TITLES)
    for page in _COMMAND.findall(text):
        assert page in TITLES, page
    assert "{toctree}" not in text


class _Page(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = {""}
        self.inline: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.links |= {value for name, value in attrs if name in ("href", "src") and value}
        self.anchors |= {value for name, value in attrs if name in ("id", "name") and value}
        if (
            tag == "style"
            or (tag == "script" and "src" not in given)
            or any(n == "style" or n.startswith("on") for n in given)
        ):
            self.inline.append(f"<{tag} {given}>")


def test_all_links_and_anchors_of_the_site_lead_somewhere(site: Path) -> None:
    pages = {path: _Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    assert len(pages) > 60
    looked = 0
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            assert target.is_file() and target.is_relative_to(site.resolve()), (
                f"{path.name}: {link}"
            )
            if target in pages and not page_made_by_search(target):
                assert unquote(parts.fragment) in pages[target].anchors, f"{path.name}: {link}"
            looked += 1
    assert looked > 3000


def page_made_by_search(path: Path) -> bool:
    return path.name in ("search.html", "genindex.html")


def test_nothing_in_a_page_runs_or_styles_by_itself(site: Path) -> None:
    """The head serves them under a policy that forbids it."""
    for path in site.rglob("*.html"):
        assert not _Page(path.read_text()).inline, path
