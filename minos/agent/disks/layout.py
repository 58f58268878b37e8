"""What the head wants of a node's disks, and the marks by which a layout is recognised.

A partition of ours is named `lc:NODE:M:DIGEST:LAYOUT` (GPT has 36 characters): the first 8 digits
of the node's id, how far it is (`n` being made, `s` a scratch, `k` kept), a digest of all that was
made, and the layout's name.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from layercake.kraken.errors import OperationFailed

_NAME = re.compile(r"[a-z][a-z0-9]{0,11}", re.ASCII)
_MARK = re.compile(r"lc:([0-9a-f]{8}):([nsk]):([0-9a-f]{8}):([a-z][a-z0-9]{0,11})", re.ASCII)
NEW = "n"
SCRATCH = "s"
KEPT = "k"


@dataclass(frozen=True, slots=True)
class Volume:
    """A file system or swap. `size` is in bytes, 0 for all that is left; `keeps`: what containers
    keep is on it."""

    name: str
    size: int
    type: str
    mount: str
    options: str
    label: str
    mode: str
    keeps: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """What becomes of some disks; `count` 0 is for all that match, `raid` "" for none. `encrypt` is
    "", "boot" or "kept"."""

    name: str
    match: Mapping[str, Any]
    count: int
    raid: str
    encrypt: str
    kept: bool
    wipe: tuple[str, ...]
    volumes: tuple[Volume, ...]

    @property
    def fingerprint(self) -> str:
        """Stands for all that is written to the disks by it; where it is mounted, and which disks
        match, is not."""
        facts = [
            self.name,
            self.raid,
            bool(self.encrypt),
            self.kept,
            [[v.name, v.size, v.type, v.label] for v in self.volumes],
        ]
        return hashlib.blake2b(json.dumps(facts).encode(), digest_size=4).hexdigest()

    def mark(self, node: str, stage: str = "") -> str:
        """The name of its partitions on a node, by the node's id."""
        stage = stage or (KEPT if self.kept else SCRATCH)
        return f"lc:{short(node)}:{stage}:{self.fingerprint}:{self.name}"


@dataclass(frozen=True, slots=True)
class Mark:
    """What a partition's name says."""

    node: str
    stage: str
    made: str
    layout: str


def short(node: str) -> str:
    """The first digits of a node's id."""
    return node.replace("-", "")[:8].lower()


def read_mark(name: str) -> Mark | None:
    """What a partition's name says, None for one that is not of Layercake."""
    match = _MARK.fullmatch(name)
    return Mark(*match.groups()) if match else None


def parse(data: object) -> tuple[Layout, ...]:
    """The layouts of a desired state. Raises OperationFailed."""
    try:
        return tuple(_layout(one) for one in data) if isinstance(data, list) else ()
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise OperationFailed(
            f"cannot take the disks' layouts: what the head says is not as agreed: {error!r}",
            hint="are head and minOS of the same version?",
        ) from None


def _layout(data: Mapping[str, Any]) -> Layout:
    return Layout(
        _name(data["name"]),
        dict(data["match"]),
        int(data["count"]),
        _of(str(data["raid"]), "", "0", "1", "10"),
        _of(str(data["encrypt"]), "", "boot", "kept"),
        bool(data["kept"]),
        tuple(map(str, data["wipe"])),
        tuple(
            Volume(
                _name(v["name"]),
                int(v["size"]),
                _of(v["type"], "ext4", "xfs", "swap"),
                _mount(str(v["mount"])),
                str(v["options"]),
                str(v["label"]),
                str(v["mode"]),
                bool(v["keeps"]),
            )
            for v in data["volumes"]
        ),
    )


def _name(word: str) -> str:
    if not _NAME.fullmatch(word):
        raise ValueError("a name is not as agreed")
    return word


def _of(word: str, *known: str) -> str:
    if word not in known:
        raise ValueError(f"{word[:20]!r} is none of {', '.join(known)}")
    return word


def _mount(word: str) -> str:
    if word and (not word.startswith("/") or ".." in word.split("/")):
        raise ValueError("a mount point is not as agreed")
    return word
