"""What a disk holds, as far as anything says it: signatures, the names of partitions, or just that
it is not blank."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from layercake.kraken.errors import LayercakeError
from minos.agent.disks.layout import KEPT, read_mark
from minos.agent.disks.scan import Disk, Partition
from minos.agent.disks.tools import Tools

EDGE = 1 << 20
"""Bytes at each end that have to be all the same for a disk to be blank."""
_NOTHING = (0, 2)
"""What blkid ends with when it has found something, and nothing (blkid(8))."""
_WORDS = 32


def holds(disk: Disk, tools: Tools, dev: Path = Path("/dev")) -> str:
    """For people: what a disk holds, "" for a blank one, "? ..." for one that cannot be read."""
    marks = [read_mark(part.label) for part in disk.partitions]
    ours = [mark for mark in marks if mark is not None]
    if ours and len(ours) == len(marks):
        kind = "what is kept" if ours[0].stage == KEPT else "a scratch"
        return f"{kind} of layout {ours[0].layout} of node {ours[0].node}"
    try:
        return _signatures(disk, tools, dev)
    except (OSError, LayercakeError) as error:
        return f"? {error}"


def _signatures(disk: Disk, tools: Tools, dev: Path) -> str:
    """What a disk and its partitions are by their signatures. Raises OSError, LayercakeError."""
    whole = _probe(tools, dev / disk.name)
    parts = [_of_partition(part, _probe(tools, dev / part.name)) for part in disk.partitions]
    if whole or parts:
        return (_shown(whole) or "partitions") + (f": {', '.join(parts)}" if parts else "")
    return "" if is_even(dev / disk.name) else "data without a known signature"


def mark(disk: Disk, dev: Path = Path("/dev")) -> str:
    """Stands for what a disk holds now: a person's word is for that, and for nothing that comes
    there later."""
    digest = hashlib.blake2b(disk.holds.encode(), digest_size=8)
    try:
        for data in _edges(dev / disk.name):
            digest.update(data)
    except OSError as error:
        digest.update(str(error.errno).encode())
    return digest.hexdigest()


def is_even(device: Path) -> bool:
    """Whether both ends of a device are all zeros, or all ones. Raises OSError."""
    return all(
        data.count(data[:1]) == len(data) and data[:1] in (b"\0", b"\xff")
        for data in _edges(device)
    )


def _edges(device: Path) -> list[bytes]:
    handle = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.lseek(handle, 0, os.SEEK_END)
        return [
            os.pread(handle, min(EDGE, size), 0),
            os.pread(handle, min(EDGE, size), max(0, size - EDGE)),
        ]
    finally:
        os.close(handle)


def _probe(tools: Tools, device: Path) -> Mapping[str, str]:
    """blkid's low-level look. More than one signature is told by its status; that is one found,
    too."""
    output = tools.run("blkid", "-p", "-o", "export", str(device), well=(*_NOTHING, 8)).decode(
        errors="replace"
    )
    rows = dict(line.partition("=")[::2] for line in output.split("\n"))
    return {key: its for key, its in rows.items() if key in ("TYPE", "PTTYPE", "LABEL")}


def _shown(said: Mapping[str, str]) -> str:
    parts = [
        said.get("TYPE", ""),
        f"a {said['PTTYPE']} partition table" if "PTTYPE" in said else "",
    ]
    label = f" {said['LABEL'][:_WORDS]!r}" if said.get("LABEL") else ""
    return " and ".join(filter(None, parts)) + label


def _of_partition(part: Partition, said: Mapping[str, str]) -> str:
    name = f" {part.label[:_WORDS]!r}" if part.label else ""
    return f"{part.number}{name} {_shown(said) or 'unknown'}"
