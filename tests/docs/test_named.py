"""What the pages name in passing exists: commands, settings, keys of the inventory, kinds of
events, calls, routes."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from docs import generate
from layercake.head import modules
from tests.docs.test_commands import parse

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent.name != "reference"),
]
SLURM = {"layercake maintenance", "layercake too warm", "layercake roll N"}
"""Reasons that nodes are drained with in Slurm, not commands."""
FILES = (
    "yaml",
    "yml",
    "md",
    "rst",
    "zip",
    "key",
    "log",
    "name",
    "pem",
    "json",
    "git",
    "img",
    "bundle",
)
COUNTERS = {"dhcp.repeated", "dhcp.late", "dhcp.crowded"}


def found(pattern: str) -> Iterator[tuple[str, str]]:
    """(page, what the pattern finds) outside of examples."""
    for page in PAGES:
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
        for words in re.findall(pattern, text):
            yield page.name, words


@pytest.mark.parametrize(("page", "command"), sorted(set(found(r"`(layercake [^`\n]+)`"))))
def test_a_command_in_a_sentence_exists(page: str, command: str) -> None:
    if command in SLURM:
        return
    words = shlex.split(command)[1:]
    if not words or words[-1].startswith("-") or words == ["sim"]:
        return  # a group of commands, or an option without what it takes
    with contextlib.suppress(click.MissingParameter):  # a sentence need not say what of
        parse(words)


def names() -> set[str]:
    """All dotted names that pages may use."""
    table = modules.standard()
    known = {*table.events, *(call.name for call in table.calls.values()), *COUNTERS}
    for page in ("config.md", "inventory.md"):
        known |= set(re.findall(r"^\| `([\w.]+)`", generate.PAGES[page](), re.M))
    return known


def test_dotted_names_exist() -> None:
    known = names()
    families = {name.partition(".")[0] for name in known if "." in name}
    wrong = [
        (page, name)
        for page, name in found(r"`([a-z][a-z0-9-]*(?:\.[a-z0-9_-]+)+)`")
        if name.partition(".")[0] in families
        and name.rpartition(".")[2] not in FILES
        and not any(one == name or one.startswith((f"{name}.", f"{name}-")) for one in known)
    ]
    assert not wrong


def test_routes_exist() -> None:
    table = re.findall(r"^\| `([A-Z]+ /v1[^`]*)`", generate.PAGES["rest.md"](), re.M)
    routes = {"GET /v1/openapi.json", *(re.sub(r"\{\w+\}", "{}", route) for route in table)}
    named = list(found(r"`((?:GET|POST|PATCH|DELETE|PUT) /v1[^`?]*)"))
    assert len(named) > 10
    assert not [
        (page, route) for page, route in named if re.sub(r"/[A-Z]+\b", "/{}", route) not in routes
    ]
