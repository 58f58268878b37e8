"""The boot programs that a boot set of another architecture brings along: the head cannot install
packages of that architecture.

They are the distribution's shim and GRUB, as signed as the kernel beside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from layercake.kraken.errors import OperationFailed
from minos.build import kernel
from minos.build.debian import debs

_SIGNED = "usr/lib/grub/arm64-efi-signed"
PROGRAMS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "aarch64": {
        "shimaa64.efi": ("shim-signed", "usr/lib/shim/shimaa64.efi.signed"),
        "grubnetaa64.efi": ("grub-efi-arm64-signed", f"{_SIGNED}/grubnetaa64.efi.signed"),
        "gcdaa64.efi": ("grub-efi-arm64-signed", f"{_SIGNED}/gcdaa64.efi.signed"),
    }
}
"""{architecture: {name in the boot set: (package, path in it)}}; pxe.paths.arm64 looks for them
there."""

NAMES = tuple(sorted(name for programs in PROGRAMS.values() for name in programs))


def fetch(architecture: str, cache: Path, apt: Sequence[str]) -> dict[str, Path]:
    """{name in the boot set: file}; none where the head has them itself. Raises InputError,
    OperationFailed."""
    files = {}
    for name, (package, path) in PROGRAMS.get(architecture, {}).items():
        file = kernel.opened(kernel.download(package, debs.place(architecture, cache), apt)) / path
        if not file.is_file():
            raise OperationFailed(f"cannot build for {architecture}: {package} has no {path}")
        files[name] = file
    return files
