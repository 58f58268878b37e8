"""What the commands print: tables by rich on a terminal, plain columns elsewhere, one JSON document with --json.

Node names, event texts and logs come from machines that may be hostile: control characters are escaped before they
reach a terminal, and nothing is read as rich's markup.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

STYLES = {
    "converged": "green", "working": "cyan", "waiting": "yellow", "held": "yellow", "blocked": "red", "quarantined": "bold red",
    "running": "green", "ON": "green", "OFF": "dim", "HANG": "red", "UNKNOWN": "yellow", "SYNC": "green", "ERROR": "red",
    "FATAL": "bold red", "ACTIVE": "green", "UPDATE": "cyan", "BUSY": "magenta", "warning": "yellow", "error": "red",
    "done": "green", "failed": "bold red", "aborted": "red", "paused": "yellow", "rolling": "cyan", "staging": "cyan",
    "rolling back": "red", "rolled back": "red", "going back": "red", "to go back": "red", "busy": "magenta", "skipped": "yellow",
    "healthy": "green", "unhealthy": "red", "starting": "cyan", "dead": "bold red", "exited": "yellow",
    "switching": "cyan", "watching": "cyan", "debug": "dim", "add": "green", "remove": "red", "change": "yellow",
}
_GAP, _LEAST = 2, 4
_PIPE_WIDTH = 10_000  # not a terminal: never wrapped, never cut


@dataclass(frozen=True, slots=True)
class Column:
    """A table's column. A `flexible` one gives way (with an ellipsis) when the terminal is too narrow; `styled` ones
    colour the words of STYLES."""

    title: str
    flexible: bool = False
    right: bool = False
    styled: bool = False


def clean(text: object, *, lines: bool = False) -> str:
    """Text that cannot move the cursor, colour or lie: whatever is not printable is escaped. `lines` keeps line breaks and tabs."""
    kept = "\n\t" if lines else ""
    return "".join(c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in str(text))


class Output:
    """Standard output and error of one command."""

    def __init__(self) -> None:
        self.json = False
        self.terminal = sys.stdout.isatty()
        width = None if self.terminal else _PIPE_WIDTH
        self.console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False, width=width)

    def document(self, value: Any) -> None:
        """The one JSON document of a command."""
        sys.stdout.write(json.dumps(value, indent=2) + "\n")

    def json_line(self, value: Any) -> None:
        """One JSON object in a line, for streams."""
        sys.stdout.write(json.dumps(value, separators=(",", ":")) + "\n")
        sys.stdout.flush()

    def line(self, text: str, style: str = "") -> None:
        """A line; not wrapped, so that it can be copied and searched for."""
        self.console.print(Text(clean(text), style=style), soft_wrap=True)

    def flush(self) -> None:
        """Sends what was printed on its way; for streams."""
        sys.stdout.flush()

    def raw(self, text: str) -> None:
        """Text of several lines; escaped on a terminal, as it is elsewhere (a file may want it whole)."""
        sys.stdout.write((clean(text, lines=True) if self.terminal else text).rstrip("\n") + "\n" if text else "")

    def piece(self, data: bytes, *, error: bool = False) -> None:
        """A piece of a log or of a command's output, at once; escaped on a terminal, byte for byte elsewhere."""
        stream = sys.stderr if error else sys.stdout
        if stream.isatty():
            stream.write(clean(data.decode("utf-8", "replace").replace("\r\n", "\n"), lines=True))
        else:
            stream.flush()
            stream.buffer.write(data)
        stream.flush()

    def note(self, text: str) -> None:
        """A remark on standard error; does not disturb what is piped on."""
        sys.stderr.write(clean(text) + "\n")

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[object]], empty: str = "") -> None:
        """A table. `empty` is said instead when it has no rows."""
        cells = [list(row) for row in rows]
        if not cells and empty:
            self.line(empty)
            return
        with self.console.capture() as captured:
            self.console.print(build(columns, cells, self.console.width))
        # rich pads each line to the full width; a pipe wants none of that.
        sys.stdout.write("".join(line.rstrip() + "\n" for line in captured.get().splitlines()))


def build(columns: Sequence[Column], rows: Sequence[Sequence[object]], width: int) -> Table:
    """The rich table of some rows. Only flexible columns give way to a narrow terminal.

    The widths are worked out here: rich takes from all columns alike when no column may wrap, and cuts the names first.
    """
    longest = [max([len(column.title), *(cell_len(clean(row[i])) for row in rows)]) for i, column in enumerate(columns)]
    room = width - _GAP * (len(columns) - 1) - sum(n for n, column in zip(longest, columns, strict=True) if not column.flexible)
    flexible = sum(column.flexible for column in columns)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for column, needed in zip(columns, longest, strict=True):
        if column.flexible:
            # The first takes no more than it needs of its share; what it leaves is the next one's.
            given = min(needed, max(_LEAST, room // flexible))
            room, flexible = room - given, flexible - 1
        else:
            given = needed
        justify: JustifyMethod = "right" if column.right else "left"
        table.add_column(Text(column.title), no_wrap=True, overflow="ellipsis", justify=justify, width=given)
    for row in rows:
        table.add_row(*(_cell(column, value) for column, value in zip(columns, row, strict=True)))
    return table


def _cell(column: Column, value: object) -> Text:
    return Text(clean(value), style=STYLES.get(str(value), "") if column.styled else "")


def seconds(value: float | None) -> str:
    """A duration for a person; "-" when unknown."""
    if value is None:
        return "-"
    if value < 10:
        return f"{value:.1f}s"
    if value < 120:
        return f"{value:.0f}s"
    if value < 7200:
        return f"{value / 60:.0f}m"
    return f"{value / 3600:.0f}h" if value < 172800 else f"{value / 86400:.0f}d"


def size(value: float) -> str:
    """Bytes for a person."""
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def moment(at: object) -> str:
    """A Unix time as local date and time; other things as they are."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) if isinstance(at, int | float) else str(at)


def short(digest: str) -> str:
    """The beginning of a digest, enough to tell two apart."""
    return digest.rpartition(":")[2][:12]
