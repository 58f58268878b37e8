"""A FAT volume put together as it is sent: what is between the files is made up, the files are
those of the boot set. Pure.

Source: Microsoft Extensible Firmware Initiative FAT32 File System Specification, version 1.03; the
volume is FAT16.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from layercake.kraken.errors import OperationFailed

SECTOR = 512
_ROOT_ENTRIES = 512
_ENTRY = 32
_FEWEST = 4085
_MOST = 65524
"""Clusters of a FAT16 volume: by their number it is told from FAT12 and FAT32."""
_SMALL = 1
_USUAL = 8
_BIG = 64
"""Sectors of a cluster."""
_MEDIA = 0xF8
_END = 0xFFFF
_FIRST_CLUSTER = 2
_DIRECTORY = 0x10
_FILE = 0x21
_DATE = 0x0021  # 1980-01-01: there is no other


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of the volume: `size` bytes, which are `made`, or those of the file `name`."""

    size: int
    made: bytes = b""
    name: str = ""


@dataclass(slots=True)
class _Directory:
    """Entries of 32 bytes each, and the directories in it by name."""

    cluster: int
    parent: int
    entries: list[bytes]
    below: dict[str, _Directory]


def short(name: str) -> bytes:
    """The eleven bytes of a name as GRUBX64.EFI. Raises OperationFailed for one that has no such
    form."""
    stem, _, kind = name.upper().partition(".")
    if (
        not 1 <= len(stem) <= 8
        or len(kind) > 3
        or not (stem + kind).isascii()
        or not (stem + kind).isalnum()
    ):
        raise OperationFailed(f"cannot put {name!r} into a FAT volume: it has no short name")
    return stem.encode().ljust(8) + kind.encode().ljust(3)


def volume(sizes: Mapping[str, int]) -> tuple[Piece, ...]:
    """The pieces of a volume with files of these sizes, {path: bytes}, in this order. Raises
    OperationFailed if they do not fit."""
    per = next((s for s in (_USUAL, _BIG) if _FEWEST <= _needed(sizes, s) <= _MOST), _SMALL)
    bytes_of_cluster = per * SECTOR
    used = _needed(sizes, per)
    if used > _MOST:
        raise OperationFailed(
            f"cannot make a boot image: {sum(sizes.values()) >> 20} MB do not fit into a FAT16 "
            "volume"
        )
    clusters = max(used, _FEWEST)
    places = _directories(sizes)
    root = places[0]
    at = _FIRST_CLUSTER + len(places) - 1
    chain = [0xFF00 | _MEDIA, _END, *(_END for _ in places[1:])]
    for path, size in sizes.items():
        parts = PurePosixPath(path).parts
        count = -(-size // bytes_of_cluster)
        _at(root, parts[:-1]).entries.append(
            _entry(short(parts[-1]), _FILE, at if size else 0, size)
        )
        chain += [*range(at + 1, at + count), _END] if size else []
        at += count
    table = b"".join(cluster.to_bytes(2, "little") for cluster in chain)
    sectors_of_table = -(-2 * (clusters + 2) // SECTOR)
    head = _boot_sector(per, sectors_of_table, clusters) + 2 * table.ljust(
        sectors_of_table * SECTOR, b"\0"
    )
    head += _listed(root, _ROOT_ENTRIES * _ENTRY) + b"".join(
        _listed(d, bytes_of_cluster) for d in places[1:]
    )
    pieces = [Piece(len(head), head)]
    for path, size in sizes.items():
        pieces += [
            Piece(size, name=path),
            Piece(-size % bytes_of_cluster, bytes(-size % bytes_of_cluster)),
        ]
    unused = (clusters - used) * bytes_of_cluster
    return tuple(p for p in (*pieces, Piece(unused, bytes(unused))) if p.size)


def _directories(paths: Iterable[str]) -> list[_Directory]:
    """The directories of files: the root, and then one for each cluster from the first on."""
    root = _Directory(0, 0, [], {})
    places = [root]
    for path in paths:
        where = root
        for name in PurePosixPath(path).parts[:-1]:
            if name not in where.below:
                cluster = _FIRST_CLUSTER + len(places) - 1
                where.below[name] = _Directory(cluster, where.cluster, [], {})
                where.entries.append(_entry(short(name), _DIRECTORY, cluster, 0))
                places.append(where.below[name])
            where = where.below[name]
    return places


def _needed(sizes: Mapping[str, int], per: int) -> int:
    """Clusters of so many sectors for the files and their directories."""
    directories = {parent for path in sizes for parent in PurePosixPath(path).parents} - {
        PurePosixPath(".")
    }
    return len(directories) + sum(-(-size // (per * SECTOR)) for size in sizes.values())


def _at(root: _Directory, names: Sequence[str]) -> _Directory:
    for name in names:
        root = root.below[name]
    return root


def _entry(name: bytes, kind: int, cluster: int, size: int) -> bytes:
    return (
        name
        + bytes((kind,))
        + bytes(12)
        + _DATE.to_bytes(2, "little")
        + cluster.to_bytes(2, "little")
        + size.to_bytes(4, "little")
    )


def _listed(directory: _Directory, size: int) -> bytes:
    """A directory as it stands on the volume; all but the root know themselves and the one
    above."""
    own = [
        _entry(b".".ljust(11), _DIRECTORY, directory.cluster, 0),
        _entry(b"..".ljust(11), _DIRECTORY, directory.parent, 0),
    ]
    return b"".join([*(own if directory.cluster else []), *directory.entries]).ljust(size, b"\0")


def _boot_sector(per: int, sectors_of_table: int, clusters: int) -> bytes:
    total = 1 + 2 * sectors_of_table + _ROOT_ENTRIES * _ENTRY // SECTOR + clusters * per
    numbers = (
        (SECTOR, 2),
        (per, 1),
        (1, 2),
        (2, 1),
        (_ROOT_ENTRIES, 2),
        (total if total < 0x10000 else 0, 2),
        (_MEDIA, 1),
        (sectors_of_table, 2),
        (32, 2),
        (64, 2),
        (0, 4),
        (total if total >= 0x10000 else 0, 4),
    )
    fields = b"".join(number.to_bytes(size, "little") for number, size in numbers)
    start = b"\xeb\x3c\x90LAYERCAK" + fields + b"\x80\0\x29LAYC" + b"LAYERCAKE  " + b"FAT16   "
    return start.ljust(SECTOR - 2, b"\0") + b"\x55\xaa"
