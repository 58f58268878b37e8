"""Whose programs a minOS has: this machine's own, or those of the distribution's packages for
another architecture."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from layercake.kraken.errors import InputError, OperationFailed
from minos.build import python
from minos.build.debian import debs, elf
from minos.build.python import Closure, Module


class Userland(Protocol):
    """Where programs, libraries and the standard library of Python come from."""

    def program(self, name: str, package: str) -> Path:
        """A program's file. Raises InputError, OperationFailed."""

    def libraries(self, binaries: Iterable[Path]) -> dict[str, Path]:
        """The libraries that binaries need, {path as the loader looks for it: file}. Raises
        OperationFailed."""

    def closure(self, found: Closure) -> Closure:
        """What this machine's Python has found out that a node imports, as that of the node. Raises
        OperationFailed."""


class Own:
    """What this machine runs itself."""

    def __init__(self, interpreter: Path) -> None:
        self._interpreter = interpreter

    def program(self, name: str, package: str) -> Path:
        """See Userland."""
        file = str(self._interpreter) if name == self._interpreter.name else shutil.which(name)
        if not file:
            raise InputError(
                f"cannot build minOS: {name} is not installed", hint=f"apt-get install {package}"
            )
        return Path(file)

    def libraries(self, binaries: Iterable[Path]) -> dict[str, Path]:
        """See Userland."""
        return python.libraries(binaries)

    def closure(self, found: Closure) -> Closure:
        """See Userland."""
        return found


class Foreign:
    """What packages of another architecture hold, in a tree (debs.root)."""

    def __init__(self, root: Path, architecture: str) -> None:
        self._root = root
        self._architecture = architecture

    def program(self, name: str, package: str) -> Path:
        """See Userland."""
        return debs.program(self._root, name, package)

    def libraries(self, binaries: Iterable[Path]) -> dict[str, Path]:
        """See Userland."""
        return elf.libraries(self._root, self._architecture, binaries)

    def closure(self, found: Closure) -> Closure:
        """See Userland. One version of Python has the same modules on all architectures; compiled
        code is the same, too."""
        return Closure(
            found.own, tuple(map(self._its, found.stdlib)), tuple(map(self._its, found.extensions))
        )

    def _its(self, module: Module) -> Module:
        mine, other = (f"-{name}-linux-gnu" for name in (platform.machine(), self._architecture))
        file = self._root / str(
            module.file.with_name(module.file.name.replace(mine, other))
        ).lstrip("/")
        if not file.is_file():
            raise OperationFailed(
                f"cannot build minOS: the Python for {self._architecture} has no {module.file}",
                hint="build with the distribution's own Python: /usr/bin/python3",
            )
        return replace(module, file=file)


def of(
    architecture: str,
    interpreter: Path,
    cache: Path,
    apt: Sequence[str],
    say: Callable[[str], None] = lambda text: None,
) -> Userland:
    """The programs of minOS for an architecture; its Python is of the version of `interpreter`.
    `apt` are the options for packages of it (debs.options). Raises InputError, OperationFailed."""
    if architecture == platform.machine():
        return Own(interpreter)
    packages = (f"python{python.version(interpreter)}", "busybox-static", "crun")
    say(f"{', '.join(packages)} for {debs.name(architecture)}")
    return Foreign(debs.root(packages, architecture, cache, apt), architecture)
