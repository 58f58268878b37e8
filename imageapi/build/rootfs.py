"""Looks into a root file system before it becomes an image: what it would run, and what has no
place in it.

The tree may come from anybody: symbolic links in it are followed inside it only, as the node will
see them.
"""

from __future__ import annotations

import os
import stat
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from imageapi.build.tools import PATH
from layercake.base.text import first_few
from layercake.kraken.errors import InputError

_LINKS = 40
_TURNS = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})
"""Bidirectional classes of characters that turn what stands behind them (Unicode, UAX 9)."""
CAPABILITY = "security.capability"
"""The one extended attribute that belongs to a system image: a program's file capabilities."""
_CALLED = {
    "system.posix_acl_access": "the ACL (system.posix_acl_access)",
    "system.posix_acl_default": "the default ACL (system.posix_acl_default)",
}
_NAMED = 20


def lookup(tree: Path, path: str) -> Path | None:
    """Where a path of the image is on this disk, as seen from a root at `tree`; None if there is
    nothing."""
    todo = list(PurePosixPath("/", path).parts[1:])[::-1]
    resolved: list[str] = []
    links = 0
    while todo:
        name = todo.pop()
        if name == "..":
            resolved[-1:] = []
            continue
        entry = tree.joinpath(*resolved, name)
        if entry.is_symlink():
            links += 1
            if links > _LINKS:
                return None
            target = PurePosixPath(entry.readlink())
            if target.is_absolute():
                resolved = []
            todo += [part for part in target.parts if part != "/"][::-1]
        elif entry.exists():
            resolved.append(name)
        else:
            return None
    return tree.joinpath(*resolved)


def init_is_systemd(tree: Path) -> bool:
    """Whether /sbin/init of the image is systemd."""
    init = lookup(tree, "/sbin/init")
    return init is not None and init.name == "systemd"


def find_program(tree: Path, program: str, env: Mapping[str, str], cwd: str = "/") -> bool:
    """Whether a container could run this program: an absolute path, one below `cwd`, or a name in
    PATH."""
    places = [cwd] if "/" in program else env.get("PATH", PATH).split(":")
    for place in places:
        file = lookup(tree, str(PurePosixPath("/", place, program)))
        if file is not None and file.is_file() and os.access(file, os.X_OK):
            return True
    return False


def name_fault(name: str) -> str:
    """What is wrong with a file's name, "" for a good one. Spaces of any width, other scripts and
    emoji are good: what lies in listings are control characters and what turns the direction of
    writing. Names that are not UTF-8 come as lone surrogates (PEP 383)."""
    if any("\ud800" <= character <= "\udfff" for character in name):
        return "is not UTF-8"
    if any(unicodedata.category(one) in ("Cc", "Zl", "Zp") for one in name):
        return "has control characters"
    if any(unicodedata.bidirectional(one) in _TURNS for one in name):
        return "turns the direction of writing"
    return ""


def check(tree: Path) -> int:
    """Refuses what no image should hold, and names all of it; returns how many files and
    directories there are.

    Raises InputError for an empty tree, device nodes outside /dev (they would be doors to the
    machine's hardware that nobody asked for) and names with control characters (they lie in
    listings). A character device 0:0 is no door: overlay file systems mark by it what is deleted.
    """
    count = 0
    devices: list[str] = []
    names: list[str] = []
    for path, info in walk(tree):
        count += 1
        inside = path.relative_to(tree)
        if fault := name_fault(str(inside)):
            names.append(f"{ascii(str(inside))[:200]} {fault}")
        if _is_door(info) and inside.parts[0] != "dev":
            devices.append(f"/{inside}")
    if names:
        raise InputError(
            f"cannot build: the name {first_few(sorted(names), _NAMED)}"
            if len(names) == 1
            else f"cannot build: {len(names)} names are not for an image: "
            f"{first_few(sorted(names), _NAMED)}"
        )
    if devices:
        what = "is a device node" if len(devices) == 1 else "are device nodes"
        raise InputError(
            f"cannot build: {first_few(sorted(devices), _NAMED)} {what}",
            hint="a node makes its own devices in /dev; remove "
            + ("it" if len(devices) == 1 else "them"),
        )
    if not count:
        raise InputError(f"cannot build: {tree} is empty")
    return count


def _is_door(info: os.stat_result) -> bool:
    whiteout = stat.S_ISCHR(info.st_mode) and info.st_rdev == 0
    return (stat.S_ISCHR(info.st_mode) or stat.S_ISBLK(info.st_mode)) and not whiteout


@dataclass(frozen=True, slots=True)
class Attributes:
    """The extended attributes of a tree: whether some belong into an image, and of the others
    {name: paths in the tree that have it}."""

    wanted: bool
    others: Mapping[str, Sequence[str]]


def attributes(tree: Path) -> Attributes:
    """Looks at the extended attributes of a tree."""
    wanted = False
    others: dict[str, list[str]] = {}
    for path, info in walk(tree):
        if stat.S_ISLNK(info.st_mode):
            continue
        for name in os.listxattr(path, follow_symlinks=False):
            if name == CAPABILITY:
                wanted = True
            else:
                others.setdefault(name, []).append(str(path.relative_to(tree)))
    return Attributes(wanted, others)


def remove_attributes(tree: Path, others: Mapping[str, Sequence[str]]) -> None:
    """Removes extended attributes that do not belong into an image. Raises OSError."""
    for name, paths in others.items():
        for path in paths:
            os.removexattr(tree / path, name, follow_symlinks=False)


def notes_on(others: Mapping[str, Sequence[str]]) -> list[str]:
    """What a person should know of attributes that are left out."""
    return [
        f"{_CALLED.get(name, f'the extended attribute {name}')} of "
        f"{'1 file is' if len(paths) == 1 else f'{len(paths)} files are'} left out, as of "
        f"/{min(paths)}"
        for name, paths in sorted(others.items())
    ]


def walk(tree: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Everything below a directory with its lstat; no symbolic link is followed."""
    todo: list[Path] = [tree]
    while todo:
        with os.scandir(todo.pop()) as entries:
            for entry in entries:
                path = Path(entry.path)
                yield path, entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    todo.append(path)


def owners(tree: Path) -> Sequence[int]:
    """The user ids that own something in the tree."""
    return sorted({info.st_uid for _, info in walk(tree)})
