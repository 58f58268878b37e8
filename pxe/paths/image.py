"""UEFI HTTP Boot under Secure Boot: one file, a FAT volume with shim, a GRUB that needs no network,
the signed kernel and the archives. The firmware makes a disk in memory of it (UEFI 2.10, section
24.7; the URL ends in .img).

Shim by itself would fetch GRUB by HTTP, but the signed GRUB has no HTTP to go on with. The node's
own configuration is in the volume, with the token: it is the boot script of this path, put together
as it is sent, and is given out by the same rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pxe.paths import fat, grub
from pxe.paths.boot_spec import HARDWARE, INITRD, KERNEL, BootSpec
from pxe.windows import Step

SUFFIX = ".img"
_GRUB = "grub/x86_64-efi-signed/gcdx64.efi.signed"
_CONFIG = "boot/grub/grub.cfg"
_STEPS = {_CONFIG: Step.SCRIPT, KERNEL: Step.KERNEL, HARDWARE: Step.HARDWARE, INITRD: Step.INITRD}


def programs(library: Path) -> dict[str, Path]:
    """The programs in the volume, {path there: file below /usr/lib}; none where the packages are
    not installed."""
    files = {
        "EFI/BOOT/BOOTX64.EFI": library / grub.FILES[grub.SHIM],
        "EFI/BOOT/grubx64.efi": library / _GRUB,
    }
    return files if all(path.is_file() for path in files.values()) else {}


def render(
    spec: BootSpec, signed: Mapping[str, Path], directory: Path
) -> tuple[tuple[fat.Piece, ...], dict[str, bytes | Path]]:
    """The pieces of the volume for one boot, and what its files are, by their names there.
    `directory` is that of the boot set. Raises OSError for a file that is gone, OperationFailed if
    all does not fit."""
    files: dict[str, bytes | Path] = {**signed, _CONFIG: grub.render(spec, "/").encode("ascii")}
    files |= {name: directory / name for name in (KERNEL, *spec.initrds)}
    sizes = {
        name: len(what) if isinstance(what, bytes) else what.stat().st_size
        for name, what in files.items()
    }
    return fat.volume(sizes), files


def step_of(name: str) -> Step:
    """Which step of a boot it is that a file of the volume has arrived."""
    return _STEPS.get(name, Step.NBP)
