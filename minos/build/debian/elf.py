"""What a program of any architecture needs, out of its ELF file: `ldd` would have to execute it.

Source: System V Application Binary Interface, chapters 4 and 5 (ELF64, little-endian).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from layercake.kraken.errors import OperationFailed
from minos.build.kernel import MACHINES

_LOAD = 1
_DYNAMIC = 2
_INTERPRETER = 3
_END = 0
_NEEDED = 1
_STRINGS = 5


@dataclass(frozen=True, slots=True)
class Needs:
    """The number of the machine that a file is for, the loader that it names ("": it names none),
    and the libraries."""

    machine: int
    interpreter: str
    libraries: tuple[str, ...]


def _offset(headers: list[tuple[int, ...]], address: int) -> int:
    """Where in the file what is loaded to an address is. Raises StopIteration."""
    return next(
        offset + address - start
        for kind, _, offset, start, _, size in headers
        if kind == _LOAD and start <= address < start + size
    )


def needs(file: Path) -> Needs:
    """Raises OperationFailed for what is no ELF file, or one that is cut off."""
    data = file.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        raise OperationFailed(f"cannot ship {file}: not a 64-bit little-endian ELF file")
    try:
        (machine,), (table,), (size, count) = (
            struct.unpack_from(form, data, at)
            for form, at in (("<H", 0x12), ("<Q", 0x20), ("<HH", 0x36))
        )
        # p_type, p_flags, p_offset, p_vaddr, p_paddr, p_filesz
        headers = [struct.unpack_from("<IIQQQQ", data, table + n * size) for n in range(count)]
        interpreter = next((_text(data, h[2]) for h in headers if h[0] == _INTERPRETER), "")
        entries = [
            entry for h in headers if h[0] == _DYNAMIC for entry in _dynamic(data, h[2], h[5])
        ]
        names = [value for tag, value in entries if tag == _NEEDED]
        if not names:
            return Needs(machine, interpreter, ())
        address = next(value for tag, value in entries if tag == _STRINGS)
        strings = _offset(headers, address)
        return Needs(machine, interpreter, tuple(_text(data, strings + name) for name in names))
    except (struct.error, ValueError, StopIteration):
        raise OperationFailed(f"cannot ship {file}: it is cut off") from None


def _dynamic(data: bytes, start: int, size: int) -> list[tuple[int, int]]:
    entries: list[tuple[int, int]] = []
    for at in range(start, start + size, 16):
        tag, value = struct.unpack_from("<QQ", data, at)
        if tag == _END:
            break
        entries.append((tag, value))
    return entries


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode("ascii", "replace")


def libraries(root: Path, architecture: str, binaries: Iterable[Path]) -> dict[str, Path]:
    """The shared libraries that the binaries need, and those that these need, {path as the loader
    looks for it: file}, the loader itself included. Raises OperationFailed for one that is not in
    the tree, or of another architecture."""
    places = [f"usr/lib/{architecture}-linux-gnu", "usr/lib"]
    files: dict[str, Path] = {}
    waiting = list(binaries)
    while waiting:
        binary = waiting.pop()
        needed = needs(binary)
        if needed.machine != MACHINES[architecture]:
            raise OperationFailed(f"cannot ship {binary}: it is not for {architecture}")
        wanted = {
            library: [f"{place}/{library}" for place in places] for library in needed.libraries
        }
        if needed.interpreter:
            wanted[needed.interpreter] = [needed.interpreter.lstrip("/")]
        for library, paths in wanted.items():
            path = next((path for path in paths if (root / path).is_file()), "")
            if not path:
                raise OperationFailed(
                    f"cannot ship {binary}: its library {library} is in none of the packages"
                )
            if f"/{path}" not in files:
                files[f"/{path}"] = (root / path).resolve()
                waiting.append(files[f"/{path}"])
    return files
