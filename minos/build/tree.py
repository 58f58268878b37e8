"""modules.squashfs: all modules of a boot set's kernel, for the images that ask for them
(`kernel_modules` in container.yaml).

    modules/RELEASE/    as /lib/modules/RELEASE of an installed kernel: the modules as they are
                        shipped, with their signatures, and the tables of depmod, by which modprobe
                        works
    firmware/           as /lib/firmware

No node loads it as it boots. It is made once for a kernel and its firmware, and kept in the
builder's cache.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from minos.build import kernel
from minos.build.kernel import Kernel

MODULES = "modules.squashfs"
_LISTS = ("modules.order", "modules.builtin", "modules.builtin.modinfo")
"""What a kernel's build writes beside the modules; all other tables are depmod's."""

_ORDER = "search updates extra weak-updates built-in\n"
"""Which of two modules of one name is meant (depmod.d(5)): the places of all distributions, and
nothing of this machine's own."""

_SAME = (
    "-noappend",
    "-quiet",
    "-no-progress",
    "-reproducible",
    "-mkfs-time",
    "0",
    "-all-time",
    "0",
    "-all-root",
    "-no-xattrs",
    "-no-hardlinks",
    "-root-mode",
    "0755",
    "-action",
    "chmod(0755)@type(d)",
)

"""The same inputs give the same bytes."""

_LEVEL = 3
"""Level 12 takes ten times as long, and a tenth less."""


def pack(found: Kernel, firmware: Mapping[str, Path], cache: Path) -> tuple[Path, int]:
    """The file, in the cache, and how many bytes the files in it have, without depmod's tables.
    `firmware` is {path below /lib/firmware: file}. Raises OperationFailed, OSError."""
    files = {f"modules/{found.release}/{name}": path for name, path in _modules(found).items()}
    files |= {f"firmware/{name}": path for name, path in firmware.items()}
    target = cache / f"modules-{found.release}-{_key(files)}.squashfs"
    if not target.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".modules-", dir=cache) as scratch:
            _pack(found.release, files, Path(scratch)).replace(target)
    return target, sum(path.stat().st_size for path in files.values())


def _modules(found: Kernel) -> dict[str, Path]:
    """{path below the directory of modules: file}. Links to modules of another kernel
    (weak-updates) are followed, those to its sources are not."""
    top = found.modules
    files = {name: top / name for name in _LISTS if (top / name).is_file()}
    return files | {str(path.relative_to(top)): path for path in found.files}


def _key(files: Mapping[str, Path]) -> str:
    """Differs when a file does. By size and time, as make(1) sees it: to read them all would take
    as long as to pack them."""
    order_digest = hashlib.blake2b(
        "\n".join((_ORDER, *_SAME, *_level(_LEVEL))).encode(), digest_size=8
    )
    for name, path in sorted(files.items()):
        seen = path.stat()
        order_digest.update(
            f"{name}\0{seen.st_size}\0{seen.st_mtime_ns}\0".encode("utf-8", "surrogateescape")
        )
    return order_digest.hexdigest()


def _pack(release: str, files: Mapping[str, Path], scratch: Path) -> Path:
    top = scratch / "root/lib"
    for directory in (top / "modules" / release, top / "firmware"):
        directory.mkdir(parents=True)
    for name, path in files.items():
        _link_or_copy(path, top / name)
    order = scratch / "order.conf"
    order.write_text(_ORDER)
    kernel.run("depmod", "-C", str(order), "-b", str(top.parent), release, package="kmod")
    return squash(top, scratch / "squashfs", _LEVEL)


def _link_or_copy(source: Path, target: Path) -> None:
    """A second name for a file, which costs nothing; a copy where that cannot be, as on another
    disk."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)


def squash(top: Path, target: Path, level: int, *, programs: bool = False) -> Path:
    """A directory as one squashfs file, `target`, packed by this level of zstd; 0 is for no
    compression. Its files can be run if they are `programs`. Raises OperationFailed."""
    mode = "0755" if programs else "0644"
    kernel.run(
        "mksquashfs",
        str(top),
        str(target),
        *_SAME,
        "-action",
        f"chmod({mode})@type(f)",
        *_level(level),
        package="squashfs-tools",
    )
    return target


def _level(level: int) -> tuple[str, ...]:
    return (
        ("-comp", "zstd", "-Xcompression-level", str(level))
        if level
        else ("-noI", "-noD", "-noF", "-noX")
    )
