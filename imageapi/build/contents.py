"""What is in a squashfs file, and what is different in another: files by content, Debian packages
by version.

    python -m imageapi.build.contents A.squashfs B.squashfs      prints the difference as JSON

The head runs it as a process of its own, so that reading an image of many GB does not slow the
engine down. One pass over each image: `unsquashfs -pf` writes a list of all entries, then the
content of all files in the order of the list.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from imageapi.build.tools import PATH
from layercake.kraken.errors import LayercakeError, OperationFailed

_KINDS = {
    "R": "file",
    "D": "directory",
    "S": "link",
    "L": "hard link",
    "C": "device",
    "B": "device",
    "I": "pipe or socket",
}
_ENTRY = re.compile(
    rb"(?P<name>(?:[^\\ ]|\\.)+) "
    rb"(?:(?P<kind>[RDSCBI]) \d+ (?P<mode>[0-7]+) (?P<owner>\d+ \d+)(?: (?P<rest>.*))?|L "
    rb"(?P<same>.+))",
    re.DOTALL,
)
_DATA = b"# START OF DATA - DO NOT MODIFY\n#\n"
_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
_STATUS = "var/lib/dpkg/status"
_CHUNK = 1 << 20
MOST = 64 << 20
"""Bytes of a file that is kept; a larger one is no list of packages."""
LISTED = 5_000
"""Files of each kind of change that are listed; the others are counted."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in an image. `content` is a file's digest, a link's target, a device's numbers;
    `mode` the permissions."""

    kind: str
    mode: str
    owner: str
    size: int = 0
    content: str = ""


@dataclass(frozen=True, slots=True)
class Contents:
    """An image's entries by path, its Debian packages {name: version}, and the bytes of the files
    that were asked for."""

    entries: Mapping[str, Entry]
    packages: Mapping[str, str]
    kept: Mapping[str, bytes] = field(default_factory=dict)


def is_dpkg(path: str) -> bool:
    """Whether a file says which Debian packages are installed."""
    return path == _STATUS or path.startswith(f"{_STATUS}.d/")


def contents(image: Path, keep: Callable[[str], bool] = is_dpkg) -> Contents:
    """Reads an image, and keeps some of its files. Raises OperationFailed."""
    reader, writer = os.pipe()
    command = ["unsquashfs", "-no-progress", "-pf", f"/dev/fd/{writer}", str(image)]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=(writer,),
            env={"PATH": PATH},
        )
    except FileNotFoundError:
        os.close(reader)
        raise OperationFailed(
            "cannot read images: unsquashfs is not installed", hint="apt-get install squashfs-tools"
        ) from None
    finally:
        os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        try:
            result = read(stream, keep)
        except (ValueError, EOFError) as error:
            process.kill()
            _, errors = process.communicate()
            messages = errors.decode("utf-8", "replace").strip().splitlines()
            raise OperationFailed(
                f"cannot read {image}: {messages[0] if messages else error}"
            ) from None
    _, errors = process.communicate()
    if process.returncode:
        raise OperationFailed(
            f"cannot read {image}: "
            f"{errors.decode('utf-8', 'replace').strip()[:200] or 'no word why'}"
        )
    return result


def read(stream: IO[bytes], keep: Callable[[str], bool] = is_dpkg) -> Contents:
    """Reads the list and the files behind it. Raises ValueError and EOFError for what unsquashfs
    does not write."""
    listing = bytearray()
    data = b""
    while _DATA not in listing:
        chunk = stream.read(65536)
        if not chunk:
            break
        listing += chunk
    head, mark, rest = bytes(listing).partition(_DATA)
    data = rest if mark else b""
    entries: dict[str, Entry] = {}
    files: list[tuple[int, int, str]] = []
    for name, entry, place in parse(head.removesuffix(b"#\n")):
        entries[name] = entry
        if entry.kind == "file" and entry.size:
            files.append((place, entry.size, name))
    texts = dict[str, bytes]()
    packages = dict[str, str]()
    source = _Stream(data, stream)
    for place, size, name in sorted(files):
        digest, text = source.file(place, size, keep(name) and size <= MOST)
        entries[name] = Entry("file", entries[name].mode, entries[name].owner, size, digest)
        if text:
            texts[name] = text
            packages |= parse_status(text.decode("utf-8", "replace")) if is_dpkg(name) else {}
    return Contents(entries, packages, texts)


class _Stream:
    """The data behind the list: read once, from the front to the end."""

    def __init__(self, start: bytes, stream: IO[bytes]) -> None:
        self._left = start
        self._stream = stream
        self._at = 0

    def file(self, place: int, size: int, keep: bool) -> tuple[str, bytes]:
        """The digest of the next file, and its bytes if they shall be kept."""
        if place != self._at:
            raise ValueError(f"a file begins at {place}, the one before ended at {self._at}")
        hasher = hashlib.blake2b(digest_size=16)
        pieces = []
        todo = size
        while todo:
            chunk = self._left[:todo]
            self._left = self._left[todo:]
            chunk = chunk or self._stream.read(min(todo, _CHUNK))
            if not chunk:
                raise EOFError("it ends in the middle of a file")
            hasher.update(chunk)
            todo -= len(chunk)
            if keep:
                pieces.append(chunk)
        self._at += size
        return hasher.hexdigest(), b"".join(pieces)


def parse(listing: bytes) -> Iterator[tuple[str, Entry, int]]:
    """The entries of a list, each with where its data begins. A name may hold line breaks; nothing
    else is broken over lines."""
    name = b""
    for line in listing.split(b"\n"):
        line = name + line if name else line
        if not line or line.startswith(b"#"):
            continue
        match = _ENTRY.fullmatch(line)
        if not match:
            name = line + b"\n"
            continue
        name = b""
        path = os.fsdecode(_ESCAPE.sub(rb"\1", match["name"]))
        if match["same"]:
            yield (
                path,
                Entry("hard link", "", "", 0, os.fsdecode(_ESCAPE.sub(rb"\1", match["same"]))),
                0,
            )
            continue
        kind = match["kind"].decode()
        rest = match["rest"] or b""
        mode = match["mode"].decode()
        owner = match["owner"].decode().replace(" ", ":")
        if kind == "R":
            size, place = (int(part) for part in rest.split()[:2])
            yield path, Entry("file", mode, owner, size), place
        else:
            content = os.fsdecode(rest)
            yield (
                path,
                Entry(
                    _KINDS[kind], mode, owner, 0, f"{kind} {content}" if kind in "CBI" else content
                ),
                0,
            )
    if name:
        raise ValueError(f"not understood: {name[:80]!r}")


def parse_status(text: str) -> dict[str, str]:
    """The installed packages of a dpkg status file (dpkg(1)): NAME, or NAME:ARCH where an image has
    several, to version."""
    values: dict[str, str] = {}
    for paragraph in text.split("\n\n"):
        fields = dict(
            re.findall(r"^(Package|Version|Architecture|Status): (.*)$", paragraph, re.MULTILINE)
        )
        if "Package" not in fields or not fields.get("Status", "install ok installed").endswith(
            " installed"
        ):
            continue
        name = fields["Package"]
        values[f"{name}:{fields.get('Architecture', '')}" if name in values else name] = fields.get(
            "Version", ""
        )
    return values


def difference(a: Contents, b: Contents) -> dict[str, Any]:
    """What is different in `b`, JSON-ready, by path and by name. `left_out` files more are
    different than are listed."""
    files: dict[str, list[dict[str, Any]]] = {"added": [], "removed": [], "changed": []}
    for path in sorted(a.entries.keys() | b.entries.keys()):
        old = a.entries.get(path)
        new = b.entries.get(path)
        if old is None and new is not None:
            files["added"].append({"path": shown(path), "kind": new.kind, "size": new.size})
        elif new is None and old is not None:
            files["removed"].append({"path": shown(path), "kind": old.kind, "size": old.size})
        elif old is not None and new is not None and old != new:
            files["changed"].append(
                {
                    "path": shown(path),
                    "kind": new.kind,
                    "what": changes(old, new),
                    "from": old.size,
                    "to": new.size,
                }
            )
    left_out = sum(max(0, len(listed) - LISTED) for listed in files.values())
    files = {kind: listed[:LISTED] for kind, listed in files.items()}
    return {"packages": _packages(a.packages, b.packages), "files": files, "left_out": left_out}


def shown(path: str) -> str:
    """A path as it can be sent: what is no UTF-8 in it (names of Latin-1) is \\xE9 and so on."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def changes(old: Entry, new: Entry) -> list[str]:
    """In which respects two entries of the same path are different."""
    pairs = (
        ("kind", old.kind, new.kind),
        ("content", (old.size, old.content), (new.size, new.content)),
        ("mode", old.mode, new.mode),
        ("owner", old.owner, new.owner),
    )
    return [what for what, before, after in pairs if before != after]


def _packages(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, list[dict[str, str]]]:
    return {
        "added": [{"name": n, "version": new[n]} for n in sorted(new.keys() - old.keys())],
        "removed": [{"name": n, "version": old[n]} for n in sorted(old.keys() - new.keys())],
        "changed": [
            {"name": n, "from": old[n], "to": new[n]}
            for n in sorted(old.keys() & new.keys())
            if old[n] != new[n]
        ],
    }


def main(arguments: Sequence[str]) -> int:
    """Prints the difference of two images as JSON, or {"error", "hint"} with exit status 1."""
    try:
        a, b = (contents(Path(path)) for path in arguments)
    except LayercakeError as error:
        sys.stdout.write(json.dumps({"error": error.message, "hint": error.hint}))
        return 1
    sys.stdout.write(json.dumps(difference(a, b)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
