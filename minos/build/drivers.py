"""The modules of a boot set's kernel that its boot profile leaves out, one by one, for nodes with
devices that want them.

They are read out of modules.squashfs (minos.build.tree), which is signed with the set: by depmod's
tables there, as modprobe does it, with the firmware that the file has for them.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from layercake.kraken.errors import InputError, NotFound, OperationFailed
from minos.agent.drivers import FIRMWARE_NAME
from minos.build.kernel import modinfo, plain, unpacked
from minos.hardware import lengths_of, takers

HELD_BACK = (
    "kernel/drivers/gpu/",
    "kernel/drivers/video/",
    "kernel/drivers/char/agp/",
    "kernel/sound/",
    "kernel/drivers/media/",
    "kernel/drivers/input/",
    "kernel/drivers/parport/",
    "kernel/drivers/block/floppy.",
    "kernel/drivers/bluetooth/",
    "kernel/drivers/net/wireless/",
    "kernel/drivers/staging/",
)
"""Where the modules are in the kernel's tree that no device gets by itself: a server has nobody who
looks, listens or types, some of them take the console away, and what is staging is not finished.
What a site has put beside the tree (updates, extra) is wanted."""
HELD = "drivers of its kind are loaded by a boot profile or an image that names them"

MOST = 64
"""How many modules one answer describes; a machine wants a handful."""
_SMALL = 1 << 20
_KEPT = 32
"""Files up to so many bytes are kept in memory, and how many of them."""
_PREFIX = re.compile(r"[*?[]")
_LINKS = "rtnl-link-"
_NAMED = "module:"
"""What stands before the name of a module that a node asks for itself."""
"""What aliases begin with by which the kernel asks for a kind of interface
(MODULE_ALIAS_RTNL_LINK): bonds and VLANs."""
_LIMIT = 16 << 20
"""What a node takes as one file (minos.agent.http.client)."""


class Drivers:
    """The modules of one boot set: `file` is its modules.squashfs, `inside` names what hardware.img
    has. Any thread may call it. Raises NotFound for a file of another kernel, OperationFailed."""

    def __init__(self, file: Path, release: str, inside: Iterable[str]) -> None:
        self._file = file
        self._release = release
        self._top = f"modules/{release}"
        self._inside = frozenset(inside)
        self._needs: dict[str, list[str]] = {}
        self._paths: dict[str, str] = {}
        for line in self._table("modules.dep"):
            path, _, needs = line.partition(":")
            self._paths[plain(Path(path).name)] = path
            self._needs[plain(Path(path).name)] = [
                plain(Path(need).name) for need in reversed(needs.split())
            ]
        self._globs: dict[str, list[tuple[str, str]]] = {}
        self._generic: dict[str, str] = {}
        for line in self._table("modules.alias"):
            kind, _, rest = line.partition(" ")
            glob, _, name = rest.rpartition(" ")
            if kind == "alias" and (":" in glob or glob.startswith(_LINKS)):
                self._globs.setdefault(_PREFIX.split(glob, maxsplit=1)[0], []).append(
                    (glob, sys.intern(name))
                )
            elif kind == "alias" and name.endswith("_generic"):
                self._generic[plain(glob)] = plain(name)
        self._before = self._softdeps()
        self._lengths = lengths_of(self._globs)
        self._firmware = self._listing()
        self._of = lru_cache(maxsize=8192)(self._taken_by)
        self._described = lru_cache(maxsize=None)(
            self._describe
        )  # as many as the kernel has modules
        self._small = lru_cache(maxsize=_KEPT)(self._read)
        self._sizes: dict[str, int] = {}

    def wanted(self, release: str, aliases: Iterable[str]) -> dict[str, Any]:
        """What a node is told of devices that say they are this (wire reference): the modules for
        them that hardware.img does not have, what each is, what it needs, and its firmware. Raises
        InputError, OperationFailed."""
        if release != self._release:
            raise InputError(
                f"cannot give drivers for kernel {release[:80]!r}: the boot set has those of "
                f"{self._release}"
            )
        devices = {
            alias: modules_of_alias for alias in aliases if (modules_of_alias := self._of(alias))
        }
        named = {name: None for modules_of_alias in devices.values() for name in modules_of_alias}
        explicit = [name for name in named if not self._is_held(name)][:MOST]
        modules: dict[str, Any] = {name: {"held": HELD} for name in named if self._is_held(name)}
        for name in explicit:
            order = self._order(name)
            modules |= {
                need: {**self._described(need), **({"held": HELD} if self._is_held(need) else {})}
                for need in order
            }
            modules[name] = {**modules[name], "needs": order}
        return {
            "devices": {
                alias: held_back
                for alias, modules_of_alias in devices.items()
                if (held_back := [n for n in modules_of_alias if n in modules])
            },
            "modules": modules,
        }

    def module(self, name: str) -> bytes:
        """A module, unpacked, with its signature. Raises NotFound, OperationFailed."""
        return self._content(f"{self._top}/{self._paths[name]}" if name in self._paths else "")

    def firmware(self, path: str) -> bytes:
        """A firmware file. Raises NotFound, OperationFailed."""
        return self._content(f"firmware/{path}" if path in self._firmware else "")

    # ---- which
    # -----

    def _taken_by(self, alias: str) -> tuple[str, ...]:
        if alias.startswith(_NAMED):
            names = dict.fromkeys([plain(alias.removeprefix(_NAMED))])
        else:
            names = dict.fromkeys(takers(self._globs, self._lengths, alias))
        return tuple(name for name in names if name not in self._inside and name in self._paths)

    def _is_held(self, name: str) -> bool:
        return self._paths[name].startswith(HELD_BACK)

    def _order(self, name: str) -> list[str]:
        """A module and all that it needs, in the order to load them in: what it can do without
        first (softdep), itself last."""
        order: dict[str, None] = {}

        def add(module: str, above: tuple[str, ...]) -> None:
            for need in (*self._before.get(module, ()), *self._needs[module]):
                if need in self._paths and need not in (*above, module):
                    add(need, (*above, module))
            order[module] = None

        add(name, ())
        return list(order)

    def _describe(self, name: str) -> Mapping[str, Any]:
        try:
            return self._parts(name)
        except OperationFailed as error:
            return {"error": error.message}

    def _parts(self, name: str) -> Mapping[str, Any]:
        data = self.module(name)
        paths = {
            path
            for wanted in modinfo(data).get("firmware", ())
            for path in (wanted, f"{wanted}.xz", f"{wanted}.zst")
            if path in self._firmware
        }
        firmware = {path: part(self.firmware(path)) for path in sorted(paths)}
        return {**part(data), **({"firmware": firmware} if firmware else {})}

    # ---- reading
    # -----

    def _content(self, path: str) -> bytes:
        if not path:
            raise NotFound(
                "cannot hand out the file: the boot set that this node has booted does not have it"
            )
        data = (
            self._small(path) if self._sizes.get(path, _SMALL + 1) <= _SMALL else self._read(path)
        )
        self._sizes[path] = len(data)
        return data

    def _read(self, path: str) -> bytes:
        data = self._cat(path)
        return unpacked(data, Path(path)) if path.startswith(self._top) else data

    def _table(self, name: str) -> list[str]:
        lines = self._cat(f"{self._top}/{name}").decode("utf-8", "replace").splitlines()
        return [line for line in lines if line and not line.startswith("#")]

    def _softdeps(self) -> dict[str, list[str]]:
        """What is loaded before a module if it is there: `softdep NAME pre: A B post: C`
        (modprobe.d(5)). Some name an algorithm; of its modules the one that runs on any processor
        is taken, as into hardware.img (Kernel.generic)."""
        dependencies: dict[str, list[str]] = {}
        for line in self._table("modules.softdep"):
            kind, name, *rest = line.split()
            if kind == "softdep":
                before = " ".join(rest).partition("pre:")[2].partition("post:")[0]
                wanted = [
                    need if need in self._paths else self._generic.get(need, need)
                    for need in map(plain, before.split())
                ]
                dependencies.setdefault(plain(name), []).extend(wanted)
        return dependencies

    def _listing(self) -> frozenset[str]:
        """The paths of the firmware."""
        lines = (
            self._run("-lc", str(self._file), "firmware")
            .decode("utf-8", "surrogateescape")
            .splitlines()
        )
        paths = (
            line.partition("/firmware/")[2] for line in lines
        )  # below squashfs-root, where it would unpack them
        return frozenset(path for path in paths if FIRMWARE_NAME.fullmatch(path))

    def _cat(self, path: str) -> bytes:
        return self._run("-no-wildcards", "-cat", str(self._file), path)

    def _run(self, *arguments: str) -> bytes:
        """What unsquashfs says. Raises OperationFailed."""
        try:
            return subprocess.run(
                ["unsquashfs", *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=True,
                timeout=60,
            ).stdout
        except FileNotFoundError:
            raise OperationFailed(
                "cannot run unsquashfs: it is not installed", hint="apt-get install squashfs-tools"
            ) from None
        except subprocess.TimeoutExpired:
            raise OperationFailed(f"cannot read {self._file}: unsquashfs does not end") from None
        except subprocess.CalledProcessError as error:
            last = (error.stderr.decode("utf-8", "replace").strip().splitlines() or ["no output"])[
                -1
            ]
            raise OperationFailed(f"cannot read {self._file}: {last}") from None


def part(data: bytes) -> dict[str, Any]:
    """What a file is. Raises OperationFailed for one that no node would take."""
    if not 0 < len(data) <= _LIMIT:
        raise OperationFailed(
            f"cannot hand out a file of {len(data)} bytes: a node takes up to {_LIMIT >> 20} MiB"
        )
    return {"digest": hashlib.blake2b(data, digest_size=32).hexdigest(), "size": len(data)}
