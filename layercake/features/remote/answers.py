"""What is answered about what is done on many nodes: a line for each node, as it comes."""

from __future__ import annotations

import msgspec


class Asked(msgspec.Struct):
    """The first line: the nodes that are asked, as a range, and how many they are."""

    range: str
    count: int


class NodeAnswer(msgspec.Struct, omit_defaults=True):
    """How it went on a node. `begun` is false where nothing was done, `error` says why, or why
    nobody knows how it ended. Of a command: `exit` is its status (below 0: killed by that signal),
    none if it was killed after its time; `out` and `err` are what it wrote, in base64, and `cut`
    the bytes of it that were dropped. Of a log: `text`. Of a copy: `changed`, whether the file was
    another one before."""

    node: str
    begun: bool = True
    seconds: float = 0.0
    exit: int | None = None
    out: str = ""
    err: str = ""
    cut: int = 0
    text: str = ""
    changed: bool | None = None
    error: str = ""
    hint: str = ""
