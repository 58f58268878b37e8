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
from pathlib import Path, PurePosixPath

from imageapi.build.tools import PATH
from layercake.kraken.errors import InputError

_LINKS = 40
_TURNS = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})
"""Bidirectional classes of characters that turn what stands behind them (Unicode, UAX 9)."""
CAPABILITY = "security.capability"
"""The one extended attribute that belongs to a system image: a program's file capabilities."""


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
    """Refuses what no image should hold; returns how many files and directories there are.

    Raises InputError for an empty tree, device nodes outside /dev (they would be doors to the
    machine's hardware that nobody asked for) and names with control characters (they lie in
    listings).
    """
    count = 0
    for path, info in walk(tree):
        count += 1
        inside = path.relative_to(tree)
        if fault := name_fault(str(inside)):
            raise InputError(f"cannot build: the name {ascii(str(inside))[:200]} {fault}")
        if (stat.S_ISCHR(info.st_mode) or stat.S_ISBLK(info.st_mode)) and inside.parts[0] != "dev":
            raise InputError(
                f"cannot build: /{inside} is a device node",
                hint="a node makes its own devices in /dev; remove it",
            )
    if not count:
        raise InputError(f"cannot build: {tree} is empty")
    return count


def keep_capabilities(tree: Path, *, mend: bool) -> bool:
    """Whether the tree has extended attributes that belong into an image. `mend` removes all others
    from the tree.

    Raises InputError when both kinds are there and the tree is not to be mended.
    """
    wanted = False
    others = ""
    for path, info in walk(tree):
        if stat.S_ISLNK(info.st_mode):
            continue
        for name in os.listxattr(path, follow_symlinks=False):
            if name == CAPABILITY:
                wanted = True
            elif mend:
                os.removexattr(path, name, follow_symlinks=False)
            else:
                others = f"{path} has {name}"
    if wanted and others:
        raise InputError(
            f"cannot build: {others}, which would become part of the image beside file "
            "capabilities",
            hint="remove it: setfattr -x NAME FILE",
        )
    return wanted


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
