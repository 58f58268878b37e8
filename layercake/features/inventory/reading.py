"""Reads an inventory in a process of its own: one of 16 MB keeps a processor busy for a minute, and
fills memory on the way.

    python -m layercake.features.inventory.reading

It reads Questions from standard input and writes Answers to standard output, in MessagePack (see
standing). It stays for the next question, and remembers what it read last.
"""

from __future__ import annotations

import gc
import importlib
import re
from collections.abc import Mapping

import msgspec

from layercake.base.text import count_of
from layercake.inventory.load import load
from layercake.inventory.problems import InventoryErrors, Problem
from layercake.inventory.schema import EntryCache, Node, mark_of
from layercake.inventory.yaml_marks import Table, marked
from layercake.kraken.errors import InputError
from layercake.moduleapi.module import Module, Part
from layercake.moduleapi.network import Network
from layercake.moduleapi.sandboxed_job import Bounds, SandboxedJob
from layercake.moduleapi.worker_process import serve

MISTAKES = 500
"""Mistakes that are told; who has made more corrects these first."""
SMALL = 16384
_GROWS = re.compile(r"[*&]|\w\[|\]\w|\d-\d")
MODULE = "layercake.features.inventory.reading"
READING = Bounds(seconds=120.0, memory=2 << 30, answer=256 << 20)
"""What reading an inventory may take. One of ten thousand nodes takes 3 s and 60 MB."""


class Question(msgspec.Struct, frozen=True):
    """An inventory's text and the name of its file, the images that there are, where the modules
    with a part of a node are ("package.module:NAME"), the marks of the nodes that are known
    (Node.mark), and the architectures and profiles that there are boot sets for, {profile: its
    architecture}, the site's default as ""; None: they are not looked at. `heads` are the head's
    addresses with the length of their prefixes (inventory.load). `simulated`: nodes may be made
    up."""

    text: str
    file: str
    images: list[str]
    modules: dict[str, str]
    marks: dict[str, bytes] = {}
    arches: list[str] | None = None
    profiles: dict[str, str] | None = None
    heads: list[str] = []
    simulated: bool = True
    document: bytes = b""


class Answer(msgspec.Struct, frozen=True):
    """The nodes that are new or have another mark than in the question, each by itself in
    MessagePack, the names of those that are there no more, and what is to be said; or mistakes, or
    another error."""

    nodes: list[msgspec.Raw] = []
    removed: list[str] = []
    warnings: list[Problem] = []
    networks: dict[str, Network] = {}
    mistakes: list[Problem] = []
    error: str = ""
    hint: str = ""


def is_small(text: str) -> bool:
    """Whether reading a text takes no longer than its length says: it is short, and nothing in it
    stands for more."""
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


class Remembered:
    """What is known of the last inventory: its entries, and each node's record and its mark."""

    def __init__(self) -> None:
        self.entries = EntryCache()
        self._told: Mapping[str, tuple[Node, bytes, bytes]] = {}
        self._modules: dict[str, str] = {}
        self._parts: dict[str, Part] = {}

    def parts(self, modules: dict[str, str]) -> dict[str, Part]:
        """The modules' parts of a node."""
        if modules != self._modules:
            self.entries = EntryCache()
            self._told = {}
            self._modules = modules
            self._parts = parts_of(modules)
        return self._parts

    def encoded(self, nodes: Mapping[str, Node]) -> Mapping[str, tuple[Node, bytes, bytes]]:
        """Each node with its record in MessagePack and the mark of that."""
        known = self._told
        found = {}
        for name, node in nodes.items():
            had = known.get(name)
            if had is None or had[0] is not node:  # 12 us
                data = msgspec.msgpack.encode(node.to_record())
                had = node, data, mark_of(data)
            found[name] = had
        self._told = found
        return found


def answer(question: Question, remembered: Remembered | None = None) -> Answer:
    """Reads."""
    remembered = remembered or Remembered()
    parts = remembered.parts(question.modules)
    try:
        found = load(
            _table(question.document) if question.document else question.text,
            question.file,
            set(question.images),
            parts=parts,
            known_arches=question.arches,
            known_profiles=question.profiles,
            heads=question.heads,
            simulated=question.simulated,
            cache=None if question.document else remembered.entries,
        )
    except InventoryErrors as errors:
        return Answer(mistakes=first_of(errors.problems))
    except InputError as error:
        return Answer(error=error.message, hint=error.hint)
    marks = question.marks
    records = remembered.encoded(found.nodes)
    return Answer(
        [msgspec.Raw(data) for name, (_, data, mark) in records.items() if marks.get(name) != mark],
        [name for name in marks if name not in found.nodes],
        list(found.warnings[:MISTAKES]),
        dict(found.networks),
    )


def _table(document: bytes) -> Table:
    found = marked(msgspec.msgpack.decode(document))
    return found if isinstance(found, Table) else Table(found.mark, {})


def first_of(problems: tuple[Problem, ...]) -> list[Problem]:
    """The first of the mistakes, and how many more there are."""
    first = list(problems[:MISTAKES])
    if len(problems) > MISTAKES:
        last = problems[MISTAKES]
        more = len(problems) - MISTAKES
        first.append(
            Problem(
                last.file, last.line, last.column, f"{count_of(more, 'more mistake')} from here on"
            )
        )
    return first


def warnings_of(file: str, found: Answer) -> tuple[Problem, ...]:
    """The warnings of an answer. Raises InventoryErrors and InputError for one that is no
    inventory."""
    if found.mistakes:
        raise InventoryErrors(file, found.mistakes)
    if found.error:
        raise InputError(found.error, hint=found.hint)
    return tuple(found.warnings)


class Readers:
    """Those who may only look do not keep an apply waiting, nor the plan of somebody who may change
    the site: that gets its part of a busy machine."""

    def __init__(self) -> None:
        self.plans = SandboxedJob("plan the inventory", READING)
        self.own_plans = SandboxedJob("plan the inventory", READING, urgent=True, rests=0.2)
        self.applied = SandboxedJob("apply the inventory", READING, urgent=True)

    async def prepare(self) -> None:
        """A change soon after the head began does not wait for a process to start."""
        await self.applied.prepare(MODULE)

    @property
    def pids(self) -> list[int]:
        """The processes that there are now."""
        return [pid for job in self._jobs for pid in job.pids]

    async def close(self) -> None:
        """Ends the processes."""
        for job in self._jobs:
            await job.close()

    @property
    def _jobs(self) -> tuple[SandboxedJob, ...]:
        return self.plans, self.own_plans, self.applied


def main() -> None:
    """One question after the other."""
    remembered = Remembered()
    gc.set_threshold(100_000, 20, 100)
    serve(
        lambda data: msgspec.msgpack.encode(
            answer(msgspec.msgpack.decode(data, type=Question), remembered)
        )
    )


if __name__ == "__main__":
    main()
