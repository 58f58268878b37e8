"""Every `layercake` command on the pages is one that the program takes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from layercake.cli.main import cli
from layercake.client.command import App

ROOT = Path(__file__).resolve().parents[2]
GENERATED = "reference"
TRIED = "write-a-module.md"
"""tests/modules does for real what this page says."""

_PROMPT = re.compile(r"^(?:[#$] |    )((?:/opt/layercake/bin/)?layercake .*)$", re.M)


def commands() -> Iterator[tuple[str, str]]:
    """(page, command) of every line that a person types."""
    pages = (
        p
        for p in sorted((ROOT / "docs").rglob("*.md"))
        if p.parent.name != GENERATED and p.name != TRIED
    )
    for page in (ROOT / "README.md", *pages):
        for line in _PROMPT.findall(page.read_text()):
            yield page.name, line.partition("  #")[0].removesuffix("\\").strip()


def parse(words: list[str]) -> click.Context:
    """Reads a command line as click does, without running anything. Raises click.UsageError."""
    command: click.Command = cli
    context = click.Context(cli, info_name="layercake", obj=App())
    while isinstance(command, click.Group):
        if not words and command.invoke_without_command:
            break
        values = {
            o
            for p in command.params
            if isinstance(p, click.Option) and not p.is_flag
            for o in p.opts
        }
        while words[0].startswith("-"):
            words = words[2 if words[0] in values else 1 :]
        inner = command.get_command(context, words[0])
        if inner is None:
            raise click.UsageError(f"there is no command {words[0]}")
        command, words = inner, words[1:]
        if isinstance(command, click.Group):
            context = click.Context(command, parent=context, obj=App())
    return command.make_context(command.name, words, parent=context, obj=App())


def test_there_are_many_and_a_wrong_one_would_be_seen() -> None:
    assert len(list(commands())) > 60
    for wrong in ("node lst", "node list --rnage n0", "image roll n0"):
        with pytest.raises(click.UsageError):
            parse(wrong.split())


@pytest.mark.parametrize(("page", "command"), sorted(set(commands())))
def test_the_command_is_taken(page: str, command: str) -> None:
    parse(shlex.split(command)[1:])
