"""disktools.squashfs: the distribution's programs for disks, for nodes that have `disks` in the
inventory.

    usr/sbin, usr/bin, lib...   the programs, and the libraries that they need
    dev, proc, sys, run, tmp    empty: a node shows its own there

No other node fetches it. It is made once of these packages, and kept in the builder's cache.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from minos.build import tree
from minos.build.debian import debs, elf

DISKTOOLS = "disktools.squashfs"
PROGRAMS: Mapping[str, str] = {
    "sfdisk": "fdisk",
    "blkid": "util-linux",
    "mkswap": "util-linux",
    "swapon": "mount",
    "swapoff": "mount",
    "mdadm": "mdadm",
    "lvm": "lvm2",
    "dmsetup": "dmsetup",
    "cryptsetup": "cryptsetup-bin",
    "mke2fs": "e2fsprogs",
    "e2fsck": "e2fsprogs",
    "mkfs.xfs": "xfsprogs",
    "xfs_repair": "xfsprogs",
}
"""{program: the package that has it}"""
_FILES = ("etc/mke2fs.conf",)
_EMPTY = ("dev", "proc", "sys", "run", "tmp", "etc", "var")
_LEVEL = 12


def pack(architecture: str, cache: Path, say: Callable[[str], None]) -> Path:
    """The file, in the cache. Raises InputError, OperationFailed."""
    apt = debs.apart(architecture, cache, say)
    packages = sorted(set(PROGRAMS.values()))
    say(f"programs for disks: {', '.join(packages)}")
    root = debs.root(packages, architecture, cache, apt)
    key = hashlib.blake2b(
        f"{root.name} {sorted(PROGRAMS)} {_LEVEL} 2".encode(), digest_size=8
    ).hexdigest()
    target = cache / f"disktools-{debs.name(architecture)}-{key}.squashfs"
    if not target.exists():
        with tempfile.TemporaryDirectory(prefix=".disktools-", dir=cache) as scratch:
            top = Path(scratch, "root")
            _gather(root, architecture, top)
            tree.squash(top, Path(scratch, "squashfs"), _LEVEL, programs=True).replace(target)
    return target


def _gather(root: Path, architecture: str, top: Path) -> None:
    for name in (*_EMPTY, "usr/bin", "usr/sbin", "usr/lib", "usr/lib64"):
        (top / name).mkdir(parents=True, exist_ok=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (top / name).symlink_to(f"usr/{name}")
    programs = {name: debs.program(root, name, package) for name, package in PROGRAMS.items()}
    for name, file in programs.items():
        _copy(file, top / "usr/sbin" / name)
    for path, file in elf.libraries(root, architecture, programs.values()).items():
        inside = path.lstrip("/")
        _copy(file, top / (inside if inside.startswith("usr/") else f"usr/{inside}"))
    for name in _FILES:
        _copy(root / name, top / name)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
