"""Reads and writes the repository in a process of its own, so that neither git nor a disk that lets
itself be waited for holds up the head.

    python -m layercake.features.history.worker

It reads Questions from standard input and writes Answers to standard output, in MessagePack
(moduleapi.worker_process).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from layercake.features.history import messages, normal, reading
from layercake.features.history.messages import Told
from layercake.features.history.normal import Fields, PartLayout
from layercake.features.history.repository import (
    NewCommit,
    NoSuchRevision,
    Repository,
    RepositoryError,
    Unusable,
)
from layercake.moduleapi.worker_process import serve


class Change(msgspec.Struct, frozen=True):
    """What is to be committed. `nodes` are lists in MessagePack, each of (name, Node, whether it is
    held) of those that changed, the Node null for one that went; with `whole` they are all that
    there are. `networks` are all networks, None if they are as before. `always`: also if no file is
    another then."""

    told: Told
    nodes: list[msgspec.Raw] = []
    networks: dict[str, dict[str, Any]] | None = None
    whole: bool = False
    always: bool = False


class Question(msgspec.Struct, frozen=True):
    """What is asked of the repository at `path`: `ask` is one of `answer`, the rest is what
    that needs."""

    path: str
    ask: str
    change: Change | None = None
    layouts: dict[str, PartLayout] = {}
    options: dict[str, Any] = {}


class Answer(msgspec.Struct, frozen=True):
    """What came of it; or `error`: git's own words; or `missing`: there is no such revision, and
    `error` says why not, if more is known."""

    found: Any = None
    error: str = ""
    missing: bool = False


class Worker:
    """What can be asked, by name."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def open(self, question: Question) -> dict[str, Any]:
        """Makes the repository if there is none, and removes locks if `unlock`. {"head", "number":
        of the newest change in it}."""
        repository = self._repository
        if question.options.get("unlock") and repository.path.exists():
            repository.unlock()
        head = repository.open()
        return {"head": head, "number": self._number(head)}

    def rebuild(self, question: Question) -> dict[str, Any]:
        """Mends what can be mended. {"unlocked": names of locks, "aside": where the damaged one is,
        "" if it is sound}. Where git cannot say whether it is, nothing is put aside."""
        repository = self._repository
        unlocked = repository.unlock() if repository.path.exists() else []
        aside = ""
        try:
            repository.open()
            repository.check()
        except Unusable:
            raise
        except RepositoryError:
            aside = str(repository.set_aside())
            repository.open()
        return {"unlocked": unlocked, "aside": aside}

    def maintain(self, question: Question) -> None:
        """See Repository.maintain."""
        self._repository.maintain()

    def commit(self, question: Question) -> str:
        """Commits a change; its hash, "" if there was nothing to commit."""
        change = question.change
        assert change is not None  # noqa: S101 (for the type checker)
        head = self._repository.open()
        files = self._files(change, question.layouts)
        had = self._had(head, change, files)
        files = {p: data for p, data in files.items() if _hash_of(data) != had.get(p, "")}
        if not (files or change.always or change.told.what):
            return ""
        number = change.told.number or self._number(head)
        text = messages.message(change.told, self._subject(had, files), number)
        author = messages.author(change.told.by)
        return self._repository.commit(NewCommit(author, int(change.told.at), text, files))

    def _number(self, head: str) -> int:
        if not head:
            return 0
        return messages.number_of(self._repository.run("log", "-1", "--format=%B", head).decode())

    def _files(self, change: Change, layouts: Mapping[str, PartLayout]) -> dict[str, bytes | None]:
        found: dict[str, bytes | None] = {}
        for some in change.nodes:
            for name, node, held in msgspec.msgpack.decode(some):
                text = None
                if node is not None:
                    text = normal.text_of(normal.fields_of(node, layouts, held=held)).encode()
                found[normal.path_of(name)] = text
        for name, network in (change.networks or {}).items():
            fields = {k: v for k, v in network.items() if v not in (None, "", [], {})}
            found[normal.network_path(name)] = normal.text_of(fields).encode()
        return found

    def _had(self, head: str, change: Change, files: dict[str, bytes | None]) -> dict[str, str]:
        """The hashes of what these files were; `files` gets those that go, too."""
        whole = self._repository.tree(head) if head and (change.whole or change.networks) else {}
        if change.whole:
            files |= dict.fromkeys(whole.keys() - files.keys())
            return whole
        if change.networks is not None:
            gone = {p for p in whole if p.startswith(normal.NETWORKS)} - files.keys()
            files |= dict.fromkeys(gone)
        return self._repository.at(head, list(files))

    def _subject(self, had: Mapping[str, str], files: Mapping[str, bytes | None]) -> str:
        nodes = [path for path in files if path.startswith(normal.NODES)]
        texts = self._repository.contents(had.get(path, "") for path in nodes)
        changed = {
            normal.name_of(path): (
                _parsed(texts.get(had.get(path, ""))),
                _parsed(None if (data := files[path]) is None else data.decode()),
            )
            for path in nodes
        }
        networks = [normal.name_of(path) for path in files if path.startswith(normal.NETWORKS)]
        return messages.subject(changed, networks)


def _parsed(text: str | None) -> Fields | None:
    return None if text is None else normal.parse(text)


def _hash_of(data: bytes | None) -> str:
    """What Git calls this content, "" for none."""
    if data is None:
        return ""
    header = b"blob %d\0" % len(data)
    return hashlib.sha1(header + data, usedforsecurity=False).hexdigest()


def answer(data: bytes) -> bytes:
    """The answer to a question, both in MessagePack."""
    question = msgspec.msgpack.decode(data, type=Question)
    repository = Repository(Path(question.path))
    worker = Worker(repository)
    writing = {
        "open": worker.open,
        "commit": worker.commit,
        "rebuild": worker.rebuild,
        "maintain": worker.maintain,
    }
    try:
        if question.ask in writing:
            found = Answer(writing[question.ask](question))
        else:
            found = Answer(reading.ASKED[question.ask](repository, question.options))
    except NoSuchRevision as none:
        found = Answer(error=str(none), missing=True)
    except (RepositoryError, ValueError, OSError) as error:
        found = Answer(error=str(error) or type(error).__name__)
    return msgspec.msgpack.encode(found)


def main() -> None:
    """One question after the other."""
    serve(answer)


if __name__ == "__main__":
    main()
