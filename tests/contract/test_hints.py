"""Each command that the program tells people to type is one that it takes: as it is printed, with
the nodes where nodes are printed."""

from __future__ import annotations

import ast
import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click

from tests.docs.test_commands import parse

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("layercake", "pxe", "powerman", "imageapi", "minos")
NODES = "n[0-1]"
"""What a place for nodes is filled with: where several are printed, several have to be taken."""
SAMPLES = (NODES, "n0", "1", "web", "rack.yaml", "x86_64")
_QUOTED = re.compile(r"`(layercake [^`\n]+)`")
_BARE = re.compile(r"(?:^|, |then )(layercake [^,`;\n]+)")
_PLACE = re.compile("\0(.*?)\0")
_OF_NODES = ("fold(", "nodes", "text[", "off")
"""Expressions that stand for several nodes."""
NO_COMMANDS = re.compile(r"layercake (maintenance|too warm|roll [(\0].*|machine-id|agent)")
"""Reasons of Slurm's, and what something is called."""


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The texts of a module with their lines, without docstrings; what is filled in stands between
    NUL bytes."""
    skipped = set[ast.AST]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr):
                skipped.add(first.value)
        if isinstance(node, ast.JoinedStr):
            skipped.update(node.values)
            yield node.lineno, "".join(map(_part, node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in skipped:
            yield node.lineno, node.value


def _part(node: ast.expr) -> str:
    if isinstance(node, ast.FormattedValue):
        return f"\0{ast.unparse(node.value)}\0"
    return str(node.value) if isinstance(node, ast.Constant) else ""


def hints() -> Iterator[tuple[str, str]]:
    """(place, command) of all that people are told to type."""
    for source in SOURCES:
        for path in sorted((ROOT / source).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            for line, text in texts(ast.parse(path.read_text(), name)):
                found = _QUOTED.findall(text) or _BARE.findall(text)
                for command in found:
                    if not NO_COMMANDS.fullmatch(command):
                        yield f"{name}:{line}", command


def takes(command: str) -> str:
    """Why a command is not taken, "" if it is; with anything that could be filled in."""
    places = _PLACE.findall(command)
    choices = [
        (NODES,) if any(word in place for word in _OF_NODES) else SAMPLES for place in places
    ]
    why = ""
    for filled in itertools.product(*choices):
        text = command
        for one in filled:
            text = _PLACE.sub(one, text, count=1)
        for word, node in (("{nodes}", NODES), ("{node}", "n0"), ("NODES", NODES), ("NODE", "n0")):
            text = text.replace(word, node)
        text = text.replace("ROLE", "viewer")
        why = _refused(shlex.split(text)[1:])
        if not why:
            return ""
    return why


def _refused(words: list[str]) -> str:
    """Why the program does not take these words, or takes one node where several are printed."""
    try:
        context = parse(words)
    except IndexError:
        return ""  # a group of commands: it says which there are
    except click.UsageError as error:
        return error.format_message()
    one = [
        parameter.name
        for parameter in context.command.params
        if isinstance(parameter, click.Argument)
        and context.params.get(str(parameter.name)) == NODES
        and "RANGE" not in parameter.make_metavar(context)
    ]
    return f"it takes one {one[0]}, and nodes are printed" if one else ""


def test_every_hint_is_a_command() -> None:
    found = list(hints())
    assert len(found) > 100
    wrong = [f"{place}: {command!r}: {why}" for place, command in found if (why := takes(command))]
    assert not wrong, "\n".join(wrong)
