"""The directory of files as it was when an inventory was applied: what nodes get does not change
because somebody edits there.

Contents are kept by digest in the data directory; which path has which digest is a document of the
database, written with the inventory that it belongs to.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from layercake.base.files import write_atomic
from layercake.kraken.errors import InputError, OperationFailed

DOCUMENTS = "files/"
_DOCUMENT = DOCUMENTS + "sources"
MAX_SOURCES = 5000
MAX_SIZE = 1 << 20
MAX_ALL = 64 << 20
_SKIPPED = (".git", ".hg", ".svn")
_REMAINS = ("~", ".swp", ".orig", ".rej")
"""What editors and version control leave behind: no file of a site's."""


class Source(msgspec.Struct, frozen=True):
    """A file in the directory: what is in it (blake2b, hex), its size in bytes, and whether it may
    be executed."""

    digest: str
    size: int
    executable: bool = False


class Lines(NamedTuple):
    """How many lines came and went."""

    added: int
    removed: int


def read(directory: Path) -> tuple[dict[str, Source], dict[str, bytes]]:
    """All files of the directory by their paths in it, and their contents by digest. A directory
    that is not there has none. May block. Raises InputError for what cannot be used."""
    found: dict[str, Source] = {}
    contents: dict[str, bytes] = {}
    whole = 0
    for path, data, executable in _walk(directory):
        whole += len(data)
        if len(found) >= MAX_SOURCES or whole > MAX_ALL:
            raise InputError(
                f"cannot use {directory}: it has more than {MAX_SOURCES} files, or {MAX_ALL >> 20} "
                "MiB",
                hint="large things belong into an image",
            )
        digest = hashlib.blake2b(data, digest_size=32).hexdigest()
        found[path] = Source(digest, len(data), executable)
        contents[digest] = data
    return found, contents


def _walk(directory: Path) -> Iterator[tuple[str, bytes, bool]]:
    """(path, content, executable) of each file, by names; symbolic links are refused, for nobody
    sees where they lead."""
    if not directory.is_dir():
        return
    for here, directories, names in os.walk(
        directory, onerror=functools.partial(_refused, directory)
    ):
        directories[:] = sorted(name for name in directories if name not in _SKIPPED)
        for name in sorted([*names, *directories]):
            file = Path(here, name)
            path = str(file.relative_to(directory))
            if name.endswith(_REMAINS):
                continue
            if file.is_symlink():
                raise InputError(
                    f"cannot use {file}: it is a symbolic link", hint="put the file itself there"
                )
            if name in directories:
                continue
            if not path.isprintable() or not path.isascii():
                raise InputError(
                    f"cannot use a file in {here}: its name has characters that are not printable "
                    "ASCII"
                )
            yield path, *_content(file)


def _content(file: Path) -> tuple[bytes, bool]:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as stream:
            facts = os.fstat(stream.fileno())
            if not stat.S_ISREG(facts.st_mode):
                raise InputError(f"cannot use {file}: it is no regular file")
            data = stream.read(MAX_SIZE + 1)
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from None
    if len(data) > MAX_SIZE:
        raise InputError(
            f"cannot use {file}: it has more than {MAX_SIZE >> 20} MiB",
            hint="large things belong into an image",
        )
    return data, bool(facts.st_mode & 0o100)


def _refused(directory: Path, error: OSError) -> None:
    raise InputError(f"cannot read {error.filename or directory}: {error.strerror}")


class Sources:
    """Those in force. `directory` is where contents are kept."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.by_path: Mapping[str, Source] = {}
        self.version = 0
        """Another one when they are others."""
        self._content = functools.lru_cache(maxsize=256)(self._read)

    def load(self, documents: Mapping[str, bytes]) -> None:
        """Takes over what was in force."""
        data = documents.get(_DOCUMENT)
        self.by_path = msgspec.json.decode(data, type=dict[str, Source]) if data else {}

    def store(self, contents: Mapping[str, bytes]) -> None:
        """Writes contents. May block. Raises OSError."""
        self._directory.mkdir(mode=0o700, exist_ok=True)
        for digest, data in contents.items():
            path = self._directory / digest
            if not path.exists():
                write_atomic(path, data)

    def document(self, found: Mapping[str, Source]) -> tuple[str, bytes]:
        """The document that says so, and its key."""
        return _DOCUMENT, msgspec.json.encode(found)

    def use(self, found: Mapping[str, Source]) -> None:
        """These are in force from now on; contents that nobody needs are removed."""
        self.by_path = dict(found)
        self.version += 1

    def sweep(self) -> None:
        """Removes contents that are not in force. May block."""
        known = {source.digest for source in self.by_path.values()}
        for path in self._directory.iterdir() if self._directory.is_dir() else ():
            if path.name not in known:
                path.unlink(missing_ok=True)

    def content(self, digest: str) -> bytes:
        """A content. May block. Raises OperationFailed."""
        return self._content(digest)

    def _read(self, digest: str) -> bytes:
        try:
            data = (self._directory / digest).read_bytes()
        except OSError as error:
            raise OperationFailed(
                f"cannot read a content of the site's files: {error.strerror}",
                hint="apply the inventory again",
            ) from None
        if hashlib.blake2b(data, digest_size=32).hexdigest() != digest:
            raise OperationFailed(
                "cannot use a content of the site's files: it was altered where it is kept",
                hint="apply the inventory again",
            )
        return data


def changes(old: Mapping[str, Source], new: Mapping[str, Source], used: set[str]) -> list[str]:
    """The paths that are new, gone or other, of those that somebody uses (paths, or directories of
    trees)."""
    different = [path for path in sorted({*old, *new}) if old.get(path) != new.get(path)]
    return [path for path in different if is_used(path, used)]


def is_used(path: str, used: set[str]) -> bool:
    """Whether a path, or a directory that it is in, is among those."""
    parts = path.split("/")
    return any("/".join(parts[:n]) in used for n in range(1, len(parts) + 1))


def counted(before: bytes, after: bytes) -> Lines:
    """How many lines a change adds and removes."""
    ops = difflib.SequenceMatcher(
        None, before.splitlines(), after.splitlines(), autojunk=False
    ).get_opcodes()
    other = [op for op in ops if op[0] != "equal"]
    return Lines(sum(op[4] - op[3] for op in other), sum(op[2] - op[1] for op in other))


def to_record(path: str, old: Source | None, new: Source | None, lines: Lines) -> dict[str, Any]:
    """A change of a source, as people are told."""
    action = "add" if old is None else "remove" if new is None else "change"
    return {"path": path, "action": action, "added": lines.added, "removed": lines.removed}
