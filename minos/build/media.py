"""A USB stick, or a virtual one of a BMC, for machines whose firmware cannot boot by network: iPXE for BIOS and UEFI on a FAT
partition.

There is no secret in it and nothing of one node: iPXE asks by DHCP, and goes the way of an iPXE that is in a card.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from layercake.kraken.errors import InputError, OperationFailed

SECTOR, START = 512, 2048
"""Bytes, and the sector at which the partition begins: at 1 MiB, as everywhere."""

SECTORS = 16 << 11
"""Of the partition: 16 MiB."""

_FAT_LBA, _ACTIVE = 0x0E, 0x80
_TOOLS = {"mformat": "mtools", "mcopy": "mtools", "mmd": "mtools", "syslinux": "syslinux"}
_CONFIG = b"DEFAULT ipxe\nPROMPT 0\nLABEL ipxe\n  KERNEL ipxe.lkrn\n  INITRD layercake.ipxe\n"
_SCRIPT = b"""#!ipxe
:again
autoboot || echo Layercake: no card has got a boot script, tries again
sleep 5
goto again
"""
MBR = Path("/usr/lib/syslinux/mbr/mbr.bin")


def partition_table() -> bytes:
    """The last 72 bytes of a boot sector: one partition, which a BIOS may boot."""
    kind = bytes((_ACTIVE, 0xFE, 0xFF, 0xFF, _FAT_LBA, 0xFE, 0xFF, 0xFF))
    entry = kind + START.to_bytes(4, "little") + SECTORS.to_bytes(4, "little")
    return b"LAYC\0\0" + entry + bytes(48) + b"\x55\xaa"


def write(out: Path, ipxe: Path) -> int:
    """Writes the image; `ipxe` is where ipxe.lkrn and ipxe.efi are. Returns its size in bytes. Raises InputError for what is
    missing or cannot be written; a file that was there before stays until the new one is whole."""
    needed = [ipxe / "ipxe.lkrn", ipxe / "ipxe.efi"]
    missing = {package for tool, package in _TOOLS.items() if shutil.which(tool) is None}
    missing |= {"ipxe"} if not all(file.is_file() for file in needed) else set()
    missing |= {"syslinux-common"} if not MBR.is_file() else set()
    if missing:
        raise InputError("cannot make boot media: some programs are not there", hint=f"apt-get install {' '.join(sorted(missing))}")
    if out.exists() and not out.is_file():
        raise InputError(f"cannot make boot media in {out}: it is not a file",
                         hint=f"write the image to a file, and that to the stick: dd if=boot.img of={out} bs=1M")
    try:
        with tempfile.TemporaryDirectory(prefix="layercake-media-") as scratch, \
                tempfile.NamedTemporaryFile(dir=out.parent, prefix=f".{out.name}.", delete=False) as image:
            path = Path(image.name)
            try:
                _fill(path, needed, Path(scratch))
                path.chmod(0o644)
                path.replace(out)
            finally:
                path.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"cannot make boot media in {out}: {error.strerror}") from None
    return (START + SECTORS) * SECTOR


def _fill(image: Path, programs: Sequence[Path], scratch: Path) -> None:
    boot = MBR.read_bytes()[:440]
    with image.open("wb") as file:
        file.write(boot.ljust(440, b"\0") + partition_table())
        file.truncate((START + SECTORS) * SECTOR)
    place = f"{image}@@{START * SECTOR}"
    _run("mformat", "-i", place, "-T", str(SECTORS), "-h", "64", "-s", "32", "-H", str(START), "-v", "LAYERCAKE", "::")
    _run("mmd", "-i", place, "::/EFI", "::/EFI/BOOT")
    for name, content in (("syslinux.cfg", _CONFIG), ("layercake.ipxe", _SCRIPT)):
        (scratch / name).write_bytes(content)
        _run("mcopy", "-i", place, str(scratch / name), f"::/{name}")
    _run("mcopy", "-i", place, str(programs[0]), "::/ipxe.lkrn")
    _run("mcopy", "-i", place, str(programs[1]), "::/EFI/BOOT/BOOTX64.EFI")
    _run("syslinux", "--install", "--offset", str(START * SECTOR), str(image))


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise OperationFailed(f"cannot make boot media: {command[0]} says: {last}")
