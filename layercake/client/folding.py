"""What many nodes say, with the nodes that say the same together, as clubak does.

It is for people, in a pipe too (`| less -R`, a file that is looked at later): what a terminal would
act on is escaped. Byte for byte it is with --json, or of one node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from layercake.client.output import Output, clean
from layercake.inventory.ranges import fold

RULE = "-" * 15
MAX_KEPT = 64 << 20
"""Bytes of different texts that are kept until all nodes have answered; more than that is shown
as it comes."""


class Folding:
    """Gathers what nodes say. `title` is what stands behind the nodes, such as how it ended."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._groups: dict[tuple[str, str], list[str]] = {}
        self._kept = 0

    def add(self, node: str, title: str, text: str) -> None:
        """What a node says."""
        group = self._groups.setdefault((title, text), [])
        self._kept += len(text) if not group else 0
        group.append(node)
        if self._kept > MAX_KEPT:
            self.show()

    def show(self) -> None:
        """Shows what was gathered, the largest group first."""
        by_size = sorted(self._groups.items(), key=lambda group: (-len(group[1]), group[1][0]))
        for (title, text), nodes in by_size:
            behind = f": {title}" if title else ""
            self._out.line(RULE)
            self._out.line(f"{fold(nodes)} ({len(nodes)}){behind}")
            self._out.line(RULE)
            self._out.raw(clean(text.replace("\r\n", "\n"), lines=True))
        self._groups.clear()
        self._kept = 0


def fold_rows(rows: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Rows that begin with a node, as rows that begin with all nodes of which the rest is equal."""
    nodes: dict[tuple[str, ...], list[str]] = {}
    for node, *rest in rows:
        nodes.setdefault(tuple(rest), []).append(node)
    return [(fold(names), *rest) for rest, names in nodes.items()]


def counted(groups: Sequence[tuple[str, Sequence[str]]], name: Callable[[int], str]) -> str:
    """How many nodes ended in which way, and which these are where it was not as it should be: the
    first way is the usual one."""
    parts = []
    for number, (how, nodes) in enumerate(groups):
        which = f" ({fold(nodes)})" if number else ""
        if nodes:
            parts.append(f"{len(nodes)} {how}{which}")
    total = sum(len(nodes) for _, nodes in groups)
    return f"{name(total)}: {', '.join(parts) or 'none answered'}"
