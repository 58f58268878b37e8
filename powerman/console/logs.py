"""The kept logs of consoles: a file for each node, with the one before it, bounded each and in all.

What is to be written is gathered and written in a thread, so a slow disk holds up nothing. When
there is no room, nothing is written and what comes meanwhile is counted; it goes on when there is
room again.
"""

from __future__ import annotations

import errno
import itertools
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

DIRECTORY = "consoles"
"""In the head's data directory."""
SPARE = 256 << 20
"""Bytes of the file system that are never taken: the head needs them more."""
_PENDING = 32 << 20
"""Bytes of all consoles that may wait for the disk."""
_LEAST = 64 << 10
_FULL = {
    errno.ENOSPC: "the file system is full",
    errno.EDQUOT: "the quota is used up",
    errno.EROFS: "the file system is read-only",
}


@dataclass(frozen=True, slots=True)
class LogLimits:
    """Bytes that one console's log may have, with the file before it, and all logs together."""

    each: int
    all: int


def name_of(node: str, old: bool = False) -> str:
    """The file of a node, or the one before it."""
    return f"{node}.log" + (".1" if old else "")


@dataclass(slots=True)
class _Waiting:
    texts: list[str] = field(default_factory=list)
    size: int = 0


class ConsoleLogs:
    """All logs. `add` and `take_pending` are called on the event loop; `write`, `forget`, `sweep`
    and the reading may block, one at a time."""

    def __init__(self, directory: Path, limits: LogLimits) -> None:
        self.directory = directory
        self._limits = limits
        self._waiting: dict[str, _Waiting] = {}
        self._size = 0
        self._mark = secrets.token_hex(8)
        self._writings = 0
        self._written: dict[str, int] = {}
        self.dropped: dict[str, int] = {}
        self.sizes: dict[str, int] = {}

    def add(self, node: str, text: str) -> None:
        """Lines that are to be written. More than may wait are counted and dropped."""
        if self._size + len(text) > _PENDING:
            self.dropped[node] = self.dropped.get(node, 0) + len(text)
            return
        waiting = self._waiting.setdefault(node, _Waiting())
        waiting.texts.append(text)
        waiting.size += len(text)
        self._size += len(text)

    @property
    def pending(self) -> bool:
        """Whether something is to be written."""
        return bool(self._waiting)

    def take_pending(self) -> dict[str, str]:
        """What is to be written now."""
        taken = {node: "".join(waiting.texts) for node, waiting in self._waiting.items()}
        self._waiting = {}
        self._size = 0
        return taken

    def write(self, texts: dict[str, str], nodes: int) -> tuple[dict[str, str], str]:
        """Writes them, for so many nodes in all that the limits are for. What could not be written,
        and why, "" if all was."""
        left = dict(texts)
        try:
            self.directory.mkdir(mode=0o700, exist_ok=True)
            status = os.statvfs(self.directory)
            if status.f_bavail * status.f_frsize < SPARE:
                return left, f"less than {SPARE >> 20} MiB are free"
            self._writings += 1
            most = max(_LEAST, min(self._limits.each, self._limits.all // max(1, nodes)) // 2)
            for node, text in texts.items():
                self._append(node, text.encode("utf-8", "replace"), most)
                del left[node]
        except OSError as error:
            return left, _FULL.get(error.errno or 0, error.strerror or str(error))
        return {}, ""

    def back(self, texts: dict[str, str]) -> None:
        """What could not be written waits on, before what came later."""
        later = self.take_pending()
        for part in (texts, later):
            for node, text in part.items():
                self.add(node, text)

    def _append(self, node: str, data: bytes, most: int) -> None:
        path = self.directory / name_of(node)
        if self.sizes.get(node, 0) + len(data) > most and node in self.sizes:
            path.replace(self.directory / name_of(node, old=True))
        handle = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        try:
            size = os.fstat(handle).st_size
            done = 0
            while done < len(data):
                done += os.write(handle, data[done:])
            self.sizes[node] = size + len(data)
            self._note_written(node)
        finally:
            os.close(handle)

    def _note_written(self, node: str) -> None:
        self._written.pop(node, None)  # the newest is the last
        self._written[node] = self._writings

    def written_since(self, moment: str) -> tuple[str, list[str] | None]:
        """The present moment, and the nodes whose logs are others than at one before, None for all:
        that is not known, as at the first time."""
        now = f"{self._mark}.{self._writings}"
        mark, _, number = moment.partition(".")
        if mark != self._mark or not number.isdecimal() or len(number) > 18:
            return now, None
        newest = itertools.takewhile(
            lambda one: one[1] > int(number), reversed(self._written.items())
        )
        return now, [node for node, _ in newest]

    def size(self, node: str) -> int:
        """Bytes of a node's newest file, 0 without one."""
        if node not in self.sizes:
            try:
                return (self.directory / name_of(node)).stat().st_size
            except OSError:
                return 0
        return self.sizes[node]

    def forget(self, node: str) -> None:
        """Removes a node's log, with what waits to be written. Raises OSError."""
        waiting = self._waiting.pop(node, None)
        self._size -= waiting.size if waiting is not None else 0
        self.sizes.pop(node, None)
        self._writings += 1
        self._note_written(node)
        for old in (False, True):
            (self.directory / name_of(node, old)).unlink(missing_ok=True)

    def sweep(self, known: Iterable[str]) -> None:
        """Removes the logs of nodes that are no more, the oldest first, as long as all together are
        too large. Raises OSError."""
        wanted = set(known)
        files = []
        total = 0
        if not self.directory.is_dir():
            return
        with os.scandir(self.directory) as entries:
            for entry in entries:
                facts = entry.stat(follow_symlinks=False)
                total += facts.st_size
                node = entry.name.removesuffix(".1").removesuffix(".log")
                files.append((node in wanted, facts.st_mtime, facts.st_size, entry.path))
        for is_known, _, size, path in sorted(files):
            if total <= self._limits.all:
                return
            if not is_known or path.endswith(".1"):
                Path(path).unlink()
                total -= size

    def tail(self, node: str, most: int) -> str:
        """The last bytes of a node's log, from the beginning of a line on; "" if it has none.
        Raises OSError."""
        data = b""
        for old in (False, True):
            try:
                with (self.directory / name_of(node, old)).open("rb") as file:
                    end = file.seek(0, os.SEEK_END)
                    file.seek(max(0, end - (most - len(data))))
                    cut = file.tell() > 0
                    data = file.read() + data
            except FileNotFoundError:
                continue
            if cut:
                data = data.partition(b"\n")[2]
                break
        return data.decode("utf-8", "replace")
