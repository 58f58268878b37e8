"""What may be asked for on many nodes, checked."""

from __future__ import annotations

import binascii
import hashlib
from typing import Annotated

import msgspec
from msgspec import Meta

from layercake.agents.node_commands import Seconds
from layercake.base.files import is_plain_path
from layercake.features.remote.fan_out import Limits
from layercake.features.remote.settings import FanOutSettings
from layercake.kraken.errors import InputError

MAX_COPY = 8 << 20
"""Bytes of a file that is copied."""
COPY_BODY = MAX_COPY * 4 // 3 + (64 << 10)
"""Bytes of a request with such a file in base64."""
TotalSeconds = Annotated[float, Meta(ge=0.0, le=86400.0)]
AtOnce = Annotated[int, Meta(ge=0, le=10_000)]


class RangeExec(msgspec.Struct, forbid_unknown_fields=True):
    """A command for the nodes of a range, in a `container` there, or with "" in minOS itself. It
    has `timeout_s` on each node, and all together `total_s`, 0 for as long as it takes. No more
    than `fan_out` nodes run it at the same time; 0 for what the settings say."""

    range: str
    command: list[str]
    container: str = ""
    timeout_s: Seconds = 60.0
    total_s: TotalSeconds = 0.0
    fan_out: AtOnce = 0


class FileContent(msgspec.Struct, forbid_unknown_fields=True):
    """A file's content in base64. A struct of its own: of these the audit log keeps no values."""

    base64: str


class RangeCopy(msgspec.Struct, forbid_unknown_fields=True):
    """A file for the nodes of a range: its `content`, and its absolute `path` in a `container`
    there, or with "" in minOS itself. For the others see RangeExec."""

    range: str
    path: str
    content: FileContent
    mode: Annotated[int, Meta(ge=0, le=0o7777)] = 0o644
    owner: str = "root"
    group: str = "root"
    container: str = ""
    timeout_s: Seconds = 60.0
    total_s: TotalSeconds = 0.0
    fan_out: AtOnce = 0


def limits(order: RangeExec | RangeCopy, settings: FanOutSettings) -> Limits:
    """How many nodes at once, and how long in all."""
    at_once = order.fan_out or settings.at_once
    return Limits(at_once, strict=bool(order.fan_out), total_s=order.total_s or None)


def check_range(text: str) -> str:
    """A range that names its nodes. Raises InputError."""
    if not text:
        raise InputError("cannot do this: of which nodes?", hint="name them; @all is every node")
    return text


def check_path(path: str) -> str:
    """A path that a file can be copied to. Raises InputError."""
    if not is_plain_path(path):
        raise InputError(
            f"cannot copy to {path[:80]!r}: it is no absolute path of a file",
            hint="write RANGE:/PATH/NAME, without `..`",
        )
    return path


def check_owner(name: str) -> str:
    """The name or number of a user or group. Raises InputError."""
    if not name or len(name) > 64 or not all(c.isalnum() or c in "._-" for c in name):
        raise InputError(f"cannot use {name[:40]!r}: no user or group has such a name")
    return name


def content_of(content: FileContent) -> tuple[bytes, str]:
    """The content of a file, and its BLAKE2b digest. Raises InputError."""
    text = content.base64
    if len(text) > MAX_COPY * 4 // 3 + 4:
        raise InputError(
            f"cannot copy the file: it is larger than {MAX_COPY >> 20} MiB",
            hint="large files belong into an image, or on a file server",
        )
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except ValueError:  # binascii.Error, or what is not ASCII
        raise InputError("cannot copy the file: its content is not base64") from None
    return data, hashlib.blake2b(data, digest_size=32).hexdigest()
