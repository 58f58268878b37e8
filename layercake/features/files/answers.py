"""What is answered about the files of nodes."""

from __future__ import annotations

import msgspec


class FileShown(msgspec.Struct):
    """A file: for which images (`*` is all, `minos` is minOS), where, how large in bytes, and what
    is done when it changes. `left`: the image's own is left there. `error` is why it could not be
    made."""

    targets: list[str] = msgspec.field(name="for")
    path: str
    size: int
    mode: str
    owner: str
    group: str
    on_change: str
    secret: bool
    left: bool
    error: str


class NodeFiles(msgspec.Struct):
    """A node's files. `current`: the node said that it has them as they are wanted now. `waiting`
    are those that images which run get when they are started next, `errors` what went wrong on the
    node."""

    node: str
    current: bool
    waiting: list[str]
    errors: list[str]
    files: list[FileShown]


class FileText(msgspec.Struct):
    """What is in a file; names in the place of secrets."""

    targets: list[str] = msgspec.field(name="for")
    text: str
    error: str


class FileTexts(msgspec.Struct):
    """The files of one path, one for each target."""

    files: list[FileText]


class FileDiff(msgspec.Struct):
    """The same change of a file on some nodes, as a unified diff, and what is done to running
    images then; "" for nothing: they have it when they are started next."""

    nodes: list[str]
    targets: str = msgspec.field(name="for")
    path: str
    diff: str
    on_change: str


class FileDiffs(msgspec.Struct):
    """All changes."""

    changes: list[FileDiff]


class SourceChange(msgspec.Struct):
    """A source of files that becomes another: how many lines come and go, and how many nodes use
    it."""

    path: str
    action: str
    added: int
    removed: int
    nodes: int
