"""CPython for the initramfs: the distribution's binary, its libraries, and the pruned standard
library."""

from __future__ import annotations

import io
import json
import re
import subprocess
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from layercake.kraken.errors import InputError, OperationFailed

CLOSURE = Path(__file__).with_name("closure.py")
EXTRA = ("encodings.ascii", "encodings.latin_1", "traceback", "warnings", "linecache")
"""Imported only when something goes wrong or a codec is first used, so the entry points' own
imports do not show them."""


@dataclass(frozen=True, slots=True)
class Module:
    """One imported module: its dotted name, its file, whether it is a package."""

    name: str
    file: Path
    package: bool


@dataclass(frozen=True, slots=True)
class Closure:
    """All that the entry points import, by origin."""

    own: tuple[Module, ...]
    stdlib: tuple[Module, ...]
    extensions: tuple[Module, ...]


def own() -> Path:
    """The distribution's own Python, by the name that has its version: /usr/bin/python3.11 on
    Debian 12, python3.13 on 13."""
    return Path("/usr/bin/python3").resolve()


def version(interpreter: Path) -> str:
    """ "3.11" of /usr/bin/python3.11: the library paths inside the initramfs depend on it."""
    match = re.fullmatch(r"python(3\.\d+)", interpreter.name)
    if not match or not interpreter.exists():
        raise InputError(
            f"cannot use {interpreter} for the nodes: not an interpreter named python3.N",
            hint="apt-get install python3, or name another with --python",
        )
    return match[1]


def _script(interpreter: Path, *arguments: str, text: str = "") -> str:
    command = [str(interpreter), "-sSB", str(CLOSURE), *arguments]
    done = subprocess.run(
        command,
        input=text,
        capture_output=True,
        text=True,
        errors="replace",
        env={"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"},
    )
    if done.returncode:
        raise OperationFailed(
            "cannot collect the nodes' Python modules: "
            f"{(done.stderr.strip().splitlines() or ['?'])[-1]}",
            hint="what ships to a node may import layercake.kraken and the standard library only",
        )
    return done.stdout


def closure(interpreter: Path, root: Path, entries: Iterable[str]) -> Closure:
    """What the entry points under `root` import in a clean interpreter (no site-packages). Raises
    InputError, OperationFailed."""
    version(interpreter)
    modules = [
        Module(name, Path(file), package)
        for name, file, package in json.loads(
            _script(interpreter, "list", str(root), *entries, *EXTRA)
        )
    ]
    own = tuple(m for m in modules if m.file.is_relative_to(root))
    extensions = tuple(m for m in modules if m.file.suffix == ".so")
    stdlib = tuple(m for m in modules if m not in own and m not in extensions)
    return Closure(own, stdlib, extensions)


def archive(interpreter: Path, modules: Iterable[Module]) -> bytes:
    """A zip of the modules' compiled code."""
    with tempfile.TemporaryDirectory(prefix="minos-") as scratch:
        path = Path(scratch) / "modules.zip"
        _script(
            interpreter,
            "compile",
            str(path),
            text=json.dumps([(m.name, str(m.file), m.package) for m in modules]),
        )
        return path.read_bytes()


def libraries(binaries: Iterable[Path]) -> dict[str, Path]:
    """The shared libraries that the binaries need, {path as the loader looks for it: file}, the
    loader itself included."""
    files: dict[str, Path] = {}
    for binary in binaries:
        done = subprocess.run(
            ["ldd", str(binary)], capture_output=True, text=True, errors="replace", check=False
        )
        if done.returncode and "not a dynamic executable" not in done.stderr + done.stdout:
            raise OperationFailed(f"cannot list the libraries of {binary}: {done.stderr.strip()}")
        for missing in re.findall(r"(\S+) => not found", done.stdout):
            raise OperationFailed(f"cannot ship {binary}: its library {missing} is not installed")
        for path in re.findall(r"(?:=> )?(/\S+) \(0x", done.stdout):
            files[path] = Path(path).resolve()
    return files


def agent(interpreter: Path, found: Closure) -> bytes:
    """An agent that replaces one in place (minos/programs.py): all that it imports, compiled,
    compressed. The same modules give the same bytes."""
    packed = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(archive(interpreter, (*found.own, *found.stdlib)))) as plain,
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as out,
    ):
        for entry in plain.infolist():
            out.writestr(
                zipfile.ZipInfo(entry.filename, entry.date_time),
                plain.read(entry),
                zipfile.ZIP_DEFLATED,
            )
    return packed.getvalue()
