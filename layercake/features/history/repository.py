"""The bare Git repository, by the program git, in the process of its own that worker.py is.

One commit is one run of git-fast-import, which ends with `done`: what is cut off before that has
not happened. Nothing of a person's own configuration of git counts here.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from layercake.base.clock import show_time

BRANCH = "refs/heads/main"
_TIMEOUT_S = 110.0
_SETTINGS = {
    "core.logAllRefUpdates": "false",
    "gc.auto": "2000",
    "gc.autoDetach": "false",
    "gc.autoPackLimit": "20",
    "fastimport.unpackLimit": "100",
    "core.compression": "1",
}
_MANY = 1000
"""Of more files of a commit, the list of all is read faster: git looks up each by itself from the
root."""
_HASH = re.compile(r"[0-9a-f]{40}")


class RepositoryError(Exception):
    """git cannot do it; the text says why, in its own words."""


class Unusable(RepositoryError):
    """git itself cannot be started, or was not done in time: that says nothing of the
    repository."""


class NoSuchRevision(Exception):
    """There is no such revision; the text says why not, if more is known."""


@dataclass(frozen=True, slots=True)
class NewCommit:
    """A commit to be made: `files` have their new content, None for those that go."""

    author: str
    at: int
    message: str
    files: Mapping[str, bytes | None]


class Repository:
    """One repository at a path."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def run(self, *arguments: str, data: bytes = b"") -> bytes:
        """What git prints. Raises RepositoryError."""
        try:
            done = subprocess.run(
                ["git", "-c", "safe.directory=*", *arguments],
                input=data,
                capture_output=True,
                env=self._environment(),
                timeout=_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Unusable(f"git {arguments[0]} took over {_TIMEOUT_S:.0f} s") from None
        except OSError as error:
            raise Unusable(f"git cannot be started: {error.strerror}") from None
        if done.returncode != 0:
            words = done.stderr.decode("utf-8", "replace").split("\n")
            told = [w for w in words if w.startswith(("fatal:", "error:"))] or words
            raise RepositoryError(" ".join(" ".join(told[:2]).split())[:300])
        return done.stdout

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "GIT_DIR": str(self.path),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_SYSTEM": os.devnull,
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
            "HOME": "/nonexistent",
            "LC_ALL": "C",
        }

    # ----- its life

    def open(self) -> str:
        """Makes it if it is not there, in one step. The newest commit, "" if there is none. Raises
        RepositoryError, OSError."""
        if not self.path.exists():
            new = Repository(self.path.with_name(f"{self.path.name}.new"))
            shutil.rmtree(new.path, ignore_errors=True)
            new.run("init", "--quiet", "--bare", "--initial-branch=main", str(new.path))
            for key, value in _SETTINGS.items():
                new.run("config", key, value)
            new.path.rename(self.path)
        return self.head()

    def head(self) -> str:
        """The newest commit, "" if there is none. Raises RepositoryError."""
        found = self.run("for-each-ref", "--format=%(objectname)", BRANCH).decode().strip()
        if not found and (self.path / BRANCH).exists():
            raise RepositoryError(f"{BRANCH} is damaged")
        return found

    def unlock(self) -> list[str]:
        """Removes locks that a git which was killed has left; their names."""
        found = [p for p in self.path.rglob("*.lock") if p.is_file()]
        for lock in found:
            lock.unlink(missing_ok=True)
        return [str(lock.relative_to(self.path)) for lock in found]

    def check(self) -> None:
        """Raises RepositoryError for one that is damaged."""
        self.run("fsck", "--full", "--no-dangling", "--no-progress")
        self.head()

    def set_aside(self) -> Path:
        """Moves it out of the way; those that were set aside before stay. Raises
        RepositoryError."""
        first = self.path.with_name(f"{self.path.name}.damaged")
        names = (first.with_name(f"{first.name}-{number}") for number in itertools.count(2))
        aside = next(p for p in itertools.chain([first], names) if not os.path.lexists(p))
        try:
            self.path.rename(aside)
        except OSError as error:
            raise RepositoryError(f"{self.path} cannot be moved: {error.strerror}") from None
        return aside

    def maintain(self) -> None:
        """Packs what is loose, and notes which commit changed which file. Raises
        RepositoryError."""
        self.run("gc", "--auto", "--quiet")
        self.run("commit-graph", "write", "--reachable", "--changed-paths", "--no-progress")
        self.run("update-server-info")

    # ----- writing

    def commit(self, new: NewCommit) -> str:
        """Commits; the new commit. Raises RepositoryError."""
        before = self.head()
        try:
            self.run("fast-import", "--quiet", "--done", data=b"".join(_stream(new, before)))
        except RepositoryError:
            for report in self.path.glob("fast_import_crash_*"):
                report.unlink(missing_ok=True)
            raise
        after = self.head()
        if after == before:
            raise RepositoryError("git has not taken the commit")
        self.run("update-server-info")
        return after

    # ----- reading

    def resolve(self, revision: str) -> str:
        """The commit that a revision means (revisions.py). Raises NoSuchRevision,
        RepositoryError."""
        if not self.head():
            raise NoSuchRevision
        if revision.startswith("@"):
            found = self.run("rev-list", "-1", f"--before={revision} +0000", BRANCH)
            if not found:
                first = self.run("log", "--max-parents=0", "--format=%at", BRANCH).split()[-1]
                raise NoSuchRevision(f"the history begins at {show_time(float(first))}")
        else:
            try:
                found = self.run(
                    "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}"
                )
            except RepositoryError as error:
                if "needed a single revision" in str(error).lower():
                    raise NoSuchRevision from None
                raise
        commit = found.decode().strip()
        if not _HASH.fullmatch(commit):
            raise NoSuchRevision
        return commit

    def parent(self, commit: str) -> str:
        """The commit before, "" for the first."""
        words = self.run("rev-list", "--parents", "-n1", commit).decode().split()
        return words[1] if len(words) > 1 else ""

    def tree(self, commit: str) -> dict[str, str]:
        """All files of a commit: {path: hash of its content}."""
        found = {}
        for line in self.run("ls-tree", "-r", "-z", "--full-tree", commit).split(b"\0"):
            if line:
                facts, _, path = line.decode().partition("\t")
                found[path] = facts.split()[2]
        return found

    def changed(
        self, before: str, after: str, paths: Sequence[str] = ()
    ) -> dict[str, tuple[str, str]]:
        """The files that differ between two commits: {path: (hash before, hash after)}, "" for one
        that is not there."""
        only = ("--", *paths) if paths else ()
        raw = self.run(
            "diff-tree", "-r", "-z", "--no-renames", before or self._nothing(), after, *only
        )
        words = raw.decode().split("\0")
        found = {}
        for facts, path in zip(words[::2], words[1::2], strict=False):
            old, new = facts.split()[2:4]
            found[path] = (old.strip("0") and old, new.strip("0") and new)
        return found

    def _nothing(self) -> str:
        return self.run("hash-object", "-t", "tree", "-w", "--stdin").decode().strip()

    def contents(self, hashes: Iterable[str]) -> dict[str, str]:
        """The texts by their hashes. Raises RepositoryError."""
        wanted = list(dict.fromkeys(h for h in hashes if h))
        if not wanted:
            return {}
        asked = "".join(f"{h}\n" for h in wanted).encode()
        raw = self.run("cat-file", "--batch", "--buffer", data=asked)
        found = {}
        at = 0
        for one in wanted:
            end = raw.index(b"\n", at)
            words = raw[at:end].split()
            if len(words) != 3:
                raise RepositoryError(f"{one} is missing")
            size = int(words[2])
            found[one] = raw[end + 1 : end + 1 + size].decode("utf-8", "replace")
            at = end + 2 + size
        return found

    def at(self, commit: str, paths: Sequence[str]) -> dict[str, str]:
        """The hashes of these files in a commit, as far as they are there."""
        if not commit or not paths:
            return {}
        if len(paths) > _MANY:
            whole = self.tree(commit)
            return {path: whole[path] for path in paths if path in whole}
        asked = "".join(f"{commit}:{p}\n" for p in paths).encode()
        raw = self.run("cat-file", "--batch-check", data=asked)
        found = {}
        for path, line in zip(paths, raw.decode().splitlines(), strict=True):
            words = line.split()
            if len(words) == 3 and _HASH.fullmatch(words[0]):
                found[path] = words[0]
        return found


def _stream(new: NewCommit, before: str) -> Iterator[bytes]:
    """The commit for git-fast-import(1)."""
    message = new.message.encode("utf-8", "replace")
    yield b"feature done\ncommit " + BRANCH.encode() + b"\n"
    yield f"author {new.author} <> {new.at} +0000\n".encode("utf-8", "replace")
    yield f"committer layercake <> {new.at} +0000\n".encode()
    yield b"data %d\n%s\n" % (len(message), message)
    if before:
        yield f"from {before}\n".encode()
    for path, content in new.files.items():
        name = path.encode()
        if content is None:
            yield b"D " + name + b"\n"
        else:
            yield b"M 100644 inline " + name + b"\ndata %d\n%s\n" % (len(content), content)
    yield b"done\n"
