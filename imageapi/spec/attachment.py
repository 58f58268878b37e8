"""How a node gets at an image's content without fetching it: where it is in a Ceph cluster, and the
hash tree to check it by."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from layercake.kraken.errors import InputError

BLOCK = 4096
"""Bytes of a block that dm-verity checks, and of a block of its tree."""

RBD_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")
"""A pool, image, snapshot, user or secret. The kernel splits its orders at blanks and commas, so
these are plain."""

_MONITOR = re.compile(r"([0-9]{1,3}(\.[0-9]{1,3}){3}|\[[0-9a-fA-F:]+\]):([0-9]{1,5})")


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
        raise InputError(
            f"cannot use image attach.monitors: got {str(monitors)[:80]!r}, expected a list of "
            "ADDRESS:PORT"
        )
    names = {field: data.get(field) for field in ("pool", "image", "snapshot", "user", "secret")}
    for field, value in names.items():
        if not isinstance(value, str) or not RBD_NAME.fullmatch(value):
            raise InputError(
                f"cannot use image attach.{field}: got {str(value)[:80]!r}, expected letters, "
                "digits, dots and dashes"
            )
    return RbdSource(tuple(monitors), **{field: str(value) for field, value in names.items()})


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
    root, salt, offset, blocks = (
        data.get(key) for key in ("root_hash", "salt", "hash_offset", "data_blocks")
    )
    if not isinstance(root, str) or not re.fullmatch("[0-9a-f]{64}", root):
        raise InputError(
            f"cannot use image verity.root_hash: got {str(root)[:80]!r}, expected 64 hex digits"
        )
    if not isinstance(salt, str) or not re.fullmatch("([0-9a-f]{2}){0,64}", salt):
        raise InputError(
            f"cannot use image verity.salt: got {str(salt)[:80]!r}, expected pairs of hex digits"
        )
    if not isinstance(blocks, int) or isinstance(blocks, bool) or not 0 < blocks < 1 << 40:
        raise InputError(
            f"cannot use image verity.data_blocks: got {str(blocks)[:80]!r}, expected a number of "
            "blocks"
        )
    if (
        not isinstance(offset, int)
        or isinstance(offset, bool)
        or offset % BLOCK
        or not blocks * BLOCK <= offset < 1 << 52
    ):
        raise InputError(
            f"cannot use image verity.hash_offset: got {str(offset)[:80]!r}, expected a block's "
            "start behind the data"
        )
    if data.get("block_size", BLOCK) != BLOCK:
        raise InputError(
            f"cannot use image verity.block_size: got {str(data.get('block_size'))[:80]!r}, "
            f"expected {BLOCK}"
        )
    return Verity(root, offset, blocks, salt)
