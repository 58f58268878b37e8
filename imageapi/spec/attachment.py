"""How a node gets at an image's content without fetching it: where it is in a Ceph cluster, and the
hash tree to check it by."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeGuard

from imageapi.spec.fields import fail, matching
from layercake.kraken.errors import InputError

BLOCK = 4096
"""Bytes of a block that dm-verity checks, and of a block of its tree."""

RBD_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")
"""A pool, image, snapshot, user or secret. The kernel splits its orders at blanks and commas, so
these are plain."""

_MONITOR = re.compile(r"([0-9]{1,3}(\.[0-9]{1,3}){3}|\[[0-9a-fA-F:]+\]):([0-9]{1,5})")


_ROOT_HASH = re.compile("[0-9a-f]{64}")
_SALT = re.compile("([0-9a-f]{2}){0,64}")


@dataclass(frozen=True, slots=True)
class RbdSource:
    """A snapshot in a Ceph cluster: "attach" of the desired document. `secret` names the key that
    the head hands out."""

    monitors: tuple[str, ...]
    pool: str
    image: str
    snapshot: str
    user: str
    secret: str

    def to_wire(self) -> dict[str, Any]:
        """The form that `parse_rbd` reads. There is no key in it."""
        return {"kind": "rbd", **asdict(self), "monitors": list(self.monitors)}

    @property
    def text(self) -> str:
        """How people write it."""
        return f"{self.pool}/{self.image}@{self.snapshot}"


def parse_rbd(data: object) -> RbdSource:
    """A snapshot from its wire form. Raises InputError that names the field."""
    if not isinstance(data, Mapping) or data.get("kind") != "rbd":
        raise InputError("cannot use image attach: expected a mapping of kind rbd")
    monitors = data.get("monitors")
    if (
        not isinstance(monitors, list)
        or not monitors
        or not all(isinstance(m, str) and _MONITOR.fullmatch(m) for m in monitors)
    ):
        raise fail("attach.monitors", monitors, "a list of ADDRESS:PORT")
    names = {
        field: matching(
            data.get(field), f"attach.{field}", RBD_NAME, "letters, digits, dots and dashes"
        )
        for field in ("pool", "image", "snapshot", "user", "secret")
    }
    return RbdSource(tuple(monitors), **names)


@dataclass(frozen=True, slots=True)
class Verity:
    """A hash tree: "verity" of the desired document. `hash_offset` is in bytes from the device's
    start; sha256 over blocks."""

    root_hash: str
    hash_offset: int
    data_blocks: int
    salt: str

    def to_wire(self) -> dict[str, Any]:
        """The form that `parse_verity` reads."""
        return {**asdict(self), "block_size": BLOCK}


def parse_verity(data: object) -> Verity:
    """A hash tree from its wire form. Raises InputError that names the field."""
    if not isinstance(data, Mapping):
        raise InputError("cannot use image verity: expected a mapping")
    blocks = data.get("data_blocks")
    offset = data.get("hash_offset")
    if not _is_whole(blocks) or not 0 < blocks < 1 << 40:
        raise fail("verity.data_blocks", blocks, "a number of blocks")
    if not _is_whole(offset) or offset % BLOCK or not blocks * BLOCK <= offset < 1 << 52:
        raise fail("verity.hash_offset", offset, "a block's start behind the data")
    if data.get("block_size", BLOCK) != BLOCK:
        raise fail("verity.block_size", data.get("block_size"), str(BLOCK))
    return Verity(
        matching(data.get("root_hash"), "verity.root_hash", _ROOT_HASH, "64 hex digits"),
        offset,
        blocks,
        matching(data.get("salt"), "verity.salt", _SALT, "pairs of hex digits"),
    )


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
