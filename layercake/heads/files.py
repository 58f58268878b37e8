"""The files of a data directory that all heads of a site have alike: which they are, what each of
them is now, and one mark over all.

Whatever stands in a data directory is either shared (SHARED) or each head's own (OWN); what is not
named here is copied to nobody.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import msgspec

from layercake.base.files import read_json, write_json
from layercake.kraken.errors import OperationFailed

SHARED = (
    "pki",
    "images",
    "boot",
    "files",
    "secrets",
    "heads",
    "tokens.json",
    "admin.token",
    "inventory.git",
    "guests.json",
    "thermal.json",
    "bmc-logs.json",
)
"""Files and folders that are copied."""
OWN = (
    "pki/server.pem",
    "pki/server.key",
    "heads/site.key",
    "heads/store.pem",
    "heads/store.key",
    "heads/store",
    "heads/store-ca.pem",
    "heads/member.json",
    "heads/endpoints.json",
    "heads/manifest.json",
    "heads/files",
    "config.yaml",
    "layercake.db",
    "layercake.db-wal",
    "layercake.db-shm",
    "head.lock",
    "lease",
    "log",
    "consoles",
    "cache",
    "boot-media.img",
)
"""What each head has of its own: its certificates and keys, its member of the store, its copy of
the database, and what is made anew or belongs to this machine."""
LATER = ("inventory.git", "guests.json", "thermal.json", "bmc-logs.json")
"""What changes by itself, again and again: copied, but nobody waits for it, and a head without the
newest of it may lead. What is missing of the inventory's history is made out of the database."""
CACHE = "heads/manifest.json"
MOST_FILES = 200_000
MOST_PATH = 512
COPYING = ".copying"
_LAST = (".json", "/HEAD", "/packed-refs")
"""Names of files that name others."""
_LOOSE_REFS = "/refs"
_PACKS = "/objects/pack"


class FileEntry(msgspec.Struct, frozen=True, array_like=True):
    """A file: its path below the data directory, its bytes, their SHA-256 in hex, and whether
    others of the machine may read it."""

    path: str
    size: int
    sha256: str
    readable: bool = False


class Manifest(msgspec.Struct, frozen=True):
    """The files, and the marks of those that are waited for and of those that are not: equal on
    two heads that have the same."""

    mark: str
    later: str
    files: list[FileEntry]


class _Known(NamedTuple):
    """What a file was when it was read."""

    inode: int
    size: int
    modified_ns: int
    sha256: str


def is_later(path: str) -> bool:
    """Whether nobody waits for this file."""
    return path.split("/", 1)[0] in LATER


@functools.lru_cache(maxsize=MOST_FILES)  # the same ones are asked for each second
def is_shared(path: str) -> bool:
    """Whether a path that another machine names is that of a file which heads copy."""
    parts = path.split("/")
    return (
        len(path) <= MOST_PATH
        and path.isprintable()
        and path == str(PurePosixPath(path))
        and parts[0] in SHARED
        and not any(part.startswith(".") or part.endswith(COPYING) for part in parts)
        and not (parts[0] == "inventory.git" and path.endswith(".lock"))
        and not any(path == own or path.startswith(f"{own}/") for own in OWN)
    )


def in_order(files: Iterable[FileEntry]) -> list[FileEntry]:
    """The files in the order in which they are written: those that name others come last."""
    return sorted(files, key=lambda one: (_names_others(one.path), is_later(one.path), one.path))


def _names_others(path: str) -> bool:
    return path.endswith(_LAST) or "/refs/" in path or "/objects/info/" in path


def _order_of_reading(path: str) -> int:
    """Files are written while they are listed. One that names others is read before those are
    listed, else it may name what was not there yet; git writes packed refs and packs of objects
    before it removes the loose ones, so these are listed after the loose ones."""
    if path.endswith(_LOOSE_REFS):
        return 0
    if _names_others(f"{path}/") or _names_others(path):
        return 1
    return 3 if path.endswith(_PACKS) else 2


def marks(files: Iterable[FileEntry]) -> tuple[str, str]:
    """The marks of some files: of those that are waited for, and of the others."""
    digests = (hashlib.sha256(), hashlib.sha256())
    for one in sorted(files, key=lambda one: one.path):
        text = f"{one.path}\0{one.sha256}\0{one.readable:d}\n"
        digests[is_later(one.path)].update(text.encode())
    return digests[0].hexdigest()[:16], digests[1].hexdigest()[:16]


class SharedFiles:
    """The shared files of a data directory. Its methods block on the disk; one at a time."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._cache = data_dir / CACHE
        self._known: dict[str, _Known] = {}
        try:
            found: Mapping[str, tuple[int, int, int, str]] = read_json(self._cache) or {}
            self._known = {str(path): _Known(*one) for path, one in found.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            pass  # all are read again

    def manifest(self) -> Manifest:
        """The files as they are. Those that did not change since they were read are not read
        again. Raises OperationFailed."""
        found = []
        known = {}
        try:
            for path, facts in self._walk():
                one = self._known.get(path)
                now = (facts.st_ino, facts.st_size, facts.st_mtime_ns)
                if one is None or one[:3] != now:
                    one = self._read(path)
                if one is not None:
                    known[path] = one
                    readable = bool(facts.st_mode & stat.S_IROTH)
                    found.append(FileEntry(path, one.size, one.sha256, readable))
        except OSError as error:
            where = error.filename or self._data_dir
            raise OperationFailed(f"cannot read {where}: {error.strerror}") from None
        if known != self._known:
            self._known = known
            with contextlib.suppress(OSError):  # they are read again, then
                write_json(self._cache, known)
        return Manifest(*marks(found), found)

    def _walk(self) -> Iterator[tuple[str, os.stat_result]]:
        """The shared files that there are, those first that name others. What goes meanwhile is
        left out."""
        waiting = list(SHARED)
        while waiting:
            path = waiting.pop()
            if not is_shared(path):
                continue
            place = f"{self._data_dir}/{path}"
            try:
                facts = os.lstat(place)
                if stat.S_ISDIR(facts.st_mode):
                    below = [f"{path}/{one.name}" for one in Path(place).iterdir()]
                    waiting += sorted(below, key=_order_of_reading, reverse=True)
                elif stat.S_ISREG(facts.st_mode):
                    yield path, facts
            except FileNotFoundError:
                continue

    def _read(self, path: str) -> _Known | None:
        """Reads a file; None for one that went, or is being written."""
        try:
            with (self._data_dir / path).open("rb") as file:
                before = os.fstat(file.fileno())
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                after = os.fstat(file.fileno())
        except FileNotFoundError:
            return None
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            return None
        return _Known(after.st_ino, after.st_size, after.st_mtime_ns, digest)

    def remove_others(self, manifest: Manifest, *, later: bool = True) -> list[str]:
        """Removes the shared files that a manifest has not; their paths. Without `later` those stay
        that change by themselves. Raises OperationFailed for an empty manifest: no head has
        nothing."""
        keep = {one.path for one in manifest.files}
        if not keep:
            raise OperationFailed("cannot copy the leader's files: it names none")
        gone = [
            one.path
            for one in self.manifest().files
            if one.path not in keep and (later or not is_later(one.path))
        ]
        for path in gone:
            (self._data_dir / path).unlink(missing_ok=True)
            for folder in (self._data_dir / path).parents:
                if folder == self._data_dir or any(folder.iterdir()):
                    break
                folder.rmdir()
        return gone


def check(manifest: Manifest) -> None:
    """Checks what another machine says that its files are. Raises OperationFailed."""
    bad = next((one for one in manifest.files if not is_shared(one.path) or one.size < 0), None)
    paths = {one.path for one in manifest.files}
    folders = {str(folder) for path in paths for folder in PurePosixPath(path).parents}
    if bad is not None:
        raise OperationFailed(f"cannot copy {bad.path[:80]!r}: heads do not share such a file")
    if len(manifest.files) > MOST_FILES or len(paths) != len(manifest.files) or paths & folders:
        raise OperationFailed("cannot copy the leader's files: its list cannot be used")
    if marks(manifest.files) != (manifest.mark, manifest.later):
        raise OperationFailed("cannot copy the leader's files: the mark of its list is wrong")
