"""arm64 machines, with Secure Boot or without: the distribution's shim and GRUB, as signed as its
kernel. By PXE all comes by TFTP, by HTTP Boot as one volume (image.py), for the signed GRUB has no
HTTP. There is no iPXE for them in the distribution.

The programs are files of the boot set, which minos.build.debian.programs puts there.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pxe.machine import AARCH64
from pxe.nodes import Node

SHIM = "shimaa64.efi"
BY_TFTP = {SHIM: SHIM, "grubaa64.efi": "grubnetaa64.efi"}
"""What clients ask for, and which file of the boot set it is. Shim asks for GRUB by this name."""

_IN_IMAGE = {"EFI/BOOT/BOOTAA64.EFI": SHIM, "EFI/BOOT/grubaa64.efi": "gcdaa64.efi"}
FILES = tuple(sorted({*BY_TFTP.values(), *_IN_IMAGE.values()}))
"""What a boot set for such machines has beside the kernel and the archives."""


def takes(node: Node) -> bool:
    """Whether a node boots by this path."""
    return node.arch == AARCH64


def in_image(directory: Path) -> dict[str, Path]:
    """The programs in the volume, {path there: file}; none if the boot set in this directory does
    not have them."""
    files = {path: directory / name for path, name in _IN_IMAGE.items()}
    return files if all(file.is_file() for file in files.values()) else {}


def without_programs(nodes: Iterable[Node], boot_dir: Path) -> dict[str, tuple[str, str]]:
    """The names of nodes whose boot set has no programs for them, with why and what to do."""
    return {
        node.name: (
            f"boot set {node.boot_set or 'for it'} has no boot programs for arm64",
            "layercake profile build NAME --arch aarch64",
        )
        for node in nodes
        if takes(node) and not in_image(boot_dir / node.boot_set)
    }
