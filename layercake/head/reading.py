"""Reads an inventory in a process of its own: one of 16 MB keeps a processor busy for a minute, and fills memory on the way.

    python -m layercake.head.reading      a Question on standard input, an Answer on standard output, both in MessagePack
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterable
from typing import Any

import msgspec

from layercake.inventory.load import load
from layercake.inventory.problems import InventoryErrors, Problem
from layercake.inventory.schema import mark_of
from layercake.kraken.errors import InputError
from layercake.moduleapi.module import Module, Part
from layercake.moduleapi.network import Network

MISTAKES = 500
"""Mistakes that are told; who has made more corrects these first."""
SMALL = 16384
_GROWS = re.compile(r"[*&]|\w\[|\]\w|\d-\d")


class Question(msgspec.Struct, frozen=True):
    """An inventory's text and the name of its file, the images that there are, where the modules with a part of a node are
    ("package.module:NAME"), the marks of the nodes that are known (Node.mark), and the architectures and profiles that there are
    boot sets for, {profile: its architecture}, the site's default as ""; None: they are not looked at. `heads` are the head's
    addresses with the length of their prefixes (inventory.load)."""

    text: str
    file: str
    images: list[str]
    modules: dict[str, str]
    marks: dict[str, bytes] = {}
    arches: list[str] | None = None
    profiles: dict[str, str] | None = None
    heads: list[str] = []


class Answer(msgspec.Struct, frozen=True):
    """The nodes that are new or have another mark than in the question, each by itself in MessagePack, the names of those that are
    there no more, and what is to be said; or mistakes, or another error."""

    nodes: list[msgspec.Raw] = []
    removed: list[str] = []
    warnings: list[dict[str, Any]] = []
    networks: dict[str, Network] = {}
    mistakes: list[dict[str, Any]] = []
    error: str = ""
    hint: str = ""


def is_small(text: str) -> bool:
    """Whether reading a text takes no longer than its length says: it is short, and nothing in it stands for more."""
    return len(text) <= SMALL and not _GROWS.search(text)


def parts_of(modules: dict[str, str]) -> dict[str, Part]:
    """The modules' parts of a node."""
    found = {}
    for name, reference in modules.items():
        path, _, attribute = reference.partition(":")
        module = getattr(importlib.import_module(path), attribute)
        if isinstance(module, Module) and module.part is not None:
            found[name] = module.part
    return found


def answer(question: Question) -> Answer:
    """Reads."""
    parts = parts_of(question.modules)
    try:
        found = load(question.text, question.file, set(question.images), parts=parts, known_arches=question.arches,
                     known_profiles=question.profiles, heads=question.heads)
    except InventoryErrors as errors:
        return Answer(mistakes=told(errors.problems))
    except InputError as error:
        return Answer(error=error.message, hint=error.hint)
    marks = question.marks
    encoded = ((name, msgspec.msgpack.encode(node.to_record())) for name, node in found.nodes.items())
    return Answer([msgspec.Raw(data) for name, data in encoded if marks.get(name) != mark_of(data)],
                  [name for name in marks if name not in found.nodes], [w.to_record() for w in found.warnings[:MISTAKES]],
                  dict(found.networks))


def told(problems: tuple[Problem, ...]) -> list[dict[str, Any]]:
    """The first of the mistakes, and how many more there are."""
    first = [p.to_record() for p in problems[:MISTAKES]]
    if len(problems) > MISTAKES:
        last, more = problems[MISTAKES], len(problems) - MISTAKES
        first.append(Problem(last.file, last.line, last.column, f"{more} more mistakes from here on").to_record())
    return first


def problems_of(records: Iterable[dict[str, Any]]) -> list[Problem]:
    """What `Problem.to_record` wrote."""
    return [msgspec.convert(record, Problem) for record in records]


def said(file: str, found: Answer) -> tuple[Problem, ...]:
    """The warnings of an answer. Raises InventoryErrors and InputError for one that is no inventory."""
    if found.mistakes:
        raise InventoryErrors(file, problems_of(found.mistakes))
    if found.error:
        raise InputError(found.error, hint=found.hint)
    return tuple(problems_of(found.warnings))


def main() -> None:
    """One question, one answer."""
    question = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Question)
    sys.stdout.buffer.write(msgspec.msgpack.encode(answer(question)))


if __name__ == "__main__":
    main()
