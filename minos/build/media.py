"""A USB stick, or the medium of a BMC's virtual drive, for machines whose firmware cannot boot by
network: iPXE for BIOS and UEFI on a FAT partition.

One image is both a disk and a CD, for virtual drives are most often CDs: between partition table
and partition is what firmware reads of a CD that it boots by. For a BIOS the CD emulates the disk,
and for UEFI it has the partition.

There is no secret in it and nothing of one node: iPXE asks by DHCP, and goes the way of an iPXE
that is in a card.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from layercake.kraken.errors import InputError, OperationFailed

SECTOR = 512
START = 2048
"""Bytes, and the sector at which the partition begins: at 1 MiB, as everywhere."""

SECTORS = 16 << 11
"""Of the partition: 16 MiB."""

CD_SECTOR = 2048
CD_START = 16
"""Bytes of a sector of a CD, and the first that is its own (ECMA-119, section 6.2.1)."""

_FAT_LBA = 0x0E
_ACTIVE = 0x80
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


def compact_disc() -> bytes:
    """What makes a CD of the image, from sector CD_START on: the volume (ECMA-119, section 8), its
    directory, which is empty, and by what it boots (El Torito 1.0, section 2; UEFI 2.10, section
    13.3.2.1)."""
    first = CD_START
    size = (START + SECTORS) * SECTOR // CD_SECTOR
    little = first + 3
    big = first + 4
    root = first + 5
    catalog = first + 6
    own_entry = _directory(root, b"\0")
    path = bytes((1, 0)) + root.to_bytes(4, "little") + b"\1\0\0\0"
    volume = b"".join(
        (
            b"\1CD001\1\0",
            b" " * 32,
            b"LAYERCAKE".ljust(32),
            bytes(8),
            _both(size, 4),
            bytes(32),
            _both(1, 2),
            _both(1, 2),
            _both(CD_SECTOR, 2),
            _both(len(path), 4),
            little.to_bytes(4, "little"),
            bytes(4),
            big.to_bytes(4, "big"),
            bytes(4),
            own_entry,
            b" " * (4 * 128 + 3 * 37),
            (b"0" * 16 + b"\0") * 4,
            b"\1",
        )
    )
    boot = (
        b"\0CD001\1" + b"EL TORITO SPECIFICATION".ljust(64, b"\0") + catalog.to_bytes(4, "little")
    )
    backwards = bytes((1, 0)) + root.to_bytes(4, "big") + b"\0\1\0\0"
    sectors = (
        volume,
        boot,
        b"\xffCD001\1",
        path,
        backwards,
        own_entry + _directory(root, b"\1"),
        _catalog(),
    )
    return b"".join(sector.ljust(CD_SECTOR, b"\0") for sector in sectors)


def _both(number: int, size: int) -> bytes:
    """A number in both byte orders (ECMA-119, section 7.2.3)."""
    return number.to_bytes(size, "little") + number.to_bytes(size, "big")


def _directory(sector: int, name: bytes) -> bytes:
    """The entry of a directory of one sector, without a date (ECMA-119, section 9.1)."""
    return (
        bytes((34, 0))
        + _both(sector, 4)
        + _both(CD_SECTOR, 4)
        + bytes(7)
        + b"\2\0\0"
        + _both(1, 2)
        + b"\1"
        + name
    )


def _catalog() -> bytes:
    """By what it boots: a BIOS by a hard disk that begins where the CD does, UEFI by the partition,
    up to the end of the CD."""
    bootable = 0x88
    hard_disk = 4
    efi = 0xEF
    last = 0x91
    valid = b"\1\0\0\0" + b"Layercake".ljust(24, b"\0") + b"\0\0\x55\xaa"
    total = sum(int.from_bytes(valid[at : at + 2], "little") for at in range(0, 32, 2))
    valid = valid[:28] + (-total % 0x10000).to_bytes(2, "little") + valid[30:]
    bios = bytes((bootable, hard_disk, 0, 0, _FAT_LBA, 0)) + (1).to_bytes(2, "little") + bytes(24)
    section = bytes((last, efi)) + (1).to_bytes(2, "little") + bytes(28)
    partition = (START * SECTOR // CD_SECTOR).to_bytes(4, "little")
    uefi = (
        bytes((bootable, 0, 0, 0, 0, 0)) + (1).to_bytes(2, "little") + partition + bytes(20)
    )  # 1: as far as the CD goes
    return valid + bios + section + uefi


def write(out: Path, ipxe: Path) -> int:
    """Writes the image; `ipxe` is where ipxe.lkrn and ipxe.efi are. Returns its size in bytes.
    Raises InputError for what is missing or cannot be written; a file that was there before stays
    until the new one is whole."""
    needed = [ipxe / "ipxe.lkrn", ipxe / "ipxe.efi"]
    missing = {package for tool, package in _TOOLS.items() if shutil.which(tool) is None}
    missing |= {"ipxe"} if not all(file.is_file() for file in needed) else set()
    missing |= {"syslinux-common"} if not MBR.is_file() else set()
    if missing:
        raise InputError(
            "cannot make boot media: some programs are not there",
            hint=f"apt-get install {' '.join(sorted(missing))}",
        )
    if out.exists() and not out.is_file():
        raise InputError(
            f"cannot make boot media in {out}: it is not a file",
            hint=f"write the image to a file, and that to the stick: dd if=boot.img of={out} bs=1M",
        )
    try:
        with (
            tempfile.TemporaryDirectory(prefix="layercake-media-") as scratch,
            tempfile.NamedTemporaryFile(
                dir=out.parent, prefix=f".{out.name}.", delete=False
            ) as image,
        ):
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
        file.seek(CD_START * CD_SECTOR)
        file.write(compact_disc())
        file.truncate((START + SECTORS) * SECTOR)
    place = f"{image}@@{START * SECTOR}"
    _run(
        "mformat",
        "-i",
        place,
        "-T",
        str(SECTORS),
        "-h",
        "64",
        "-s",
        "32",
        "-H",
        str(START),
        "-v",
        "LAYERCAKE",
        "::",
    )
    _run("mmd", "-i", place, "::/EFI", "::/EFI/BOOT")
    for name, content in (("syslinux.cfg", _CONFIG), ("layercake.ipxe", _SCRIPT)):
        (scratch / name).write_bytes(content)
        _run("mcopy", "-i", place, str(scratch / name), f"::/{name}")
    _run("mcopy", "-i", place, str(programs[0]), "::/ipxe.lkrn")
    _run("mcopy", "-i", place, str(programs[1]), "::/EFI/BOOT/BOOTX64.EFI")
    _run("syslinux", "--install", "--offset", str(START * SECTOR), str(image))


def _run(*command: str) -> None:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise OperationFailed(f"cannot make boot media: {command[0]} says: {last}")
