"""What the commands print: tables, lines and progress for people, one JSON document with --json.

Node names, event texts and logs come from machines that may be hostile: control characters are
escaped before they reach a terminal.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from layercake.kraken.errors import InputError

GREEN = "32"
RED = "31"
YELLOW = "33"
_CYAN = "36"
_MAGENTA = "35"
BOLD = "1"
DIM = "2"
_WORDS = {
    GREEN: "converged running ON SYNC ACTIVE done healthy add",
    RED: "blocked HANG FOREIGN ERROR error aborted unhealthy remove",
    f"{BOLD};{RED}": "quarantined silent unwell FATAL failed dead",
    YELLOW: "waiting held asking UNKNOWN warning paused skipped exited change",
    _CYAN: "working UPDATE rolling staging starting switching watching",
    _MAGENTA: "BUSY busy",
    DIM: "OFF debug",
}
STYLES = {word: code for code, words in _WORDS.items() for word in words.split()} | dict.fromkeys(
    ("rolling back", "rolled back", "going back", "to go back"), RED
)
"""Words that mean something, and the colour (an SGR code) that says so."""

_GAP = "  "
_LEAST = 4
_SPAN = re.compile(r"([0-9]{1,6})([smhd])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True)
class Column:
    """A table's column. A `flexible` one gives way (with an ellipsis) when the terminal is too
    narrow; `styled` ones colour the words of STYLES."""

    title: str
    flexible: bool = False
    right: bool = False
    styled: bool = False


Show = Callable[[Sequence[str], Callable[[], Sequence[str]]], None]
"""Shows progress: the lines that are news, and what a terminal shows now in place of what it showed
before."""


def clean(text: object, *, lines: bool = False) -> str:
    """Text that cannot move the cursor, colour or lie: whatever is not printable is escaped.
    `lines` keeps line breaks and tabs."""
    plain = str(text)
    if plain.isprintable():
        return plain
    allowed = "\n\t" if lines else ""
    return "".join(
        c if c.isprintable() or c in allowed else c.encode("unicode_escape").decode() for c in plain
    )


class Output:
    """Standard output and error of one command. `terminal`: whether a person looks at it; `colour`:
    whether in colours."""

    def __init__(self) -> None:
        self.json = False
        self.terminal = sys.stdout.isatty()
        self.colour = (
            self.terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        )

    @property
    def height(self) -> int:
        """The lines of the terminal."""
        return shutil.get_terminal_size().lines

    @property
    def width(self) -> int:
        """The columns of the terminal."""
        return shutil.get_terminal_size().columns

    def document(self, value: Any) -> None:
        """The one JSON document of a command."""
        sys.stdout.write(json.dumps(value, indent=2) + "\n")

    def json_line(self, value: Any) -> None:
        """One JSON object in a line, for streams."""
        sys.stdout.write(json.dumps(value, separators=(",", ":")) + "\n")
        sys.stdout.flush()

    def line(self, text: str, style: str = "") -> None:
        """A line, at once; not wrapped, so that it can be copied and searched for. `style` is an
        SGR code."""
        sys.stdout.write(self.styled(clean(text), style) + "\n")
        sys.stdout.flush()

    def lines(self, text: str) -> None:
        """The lines of a text."""
        for line in text.splitlines():
            self.line(line)

    def progress_line(self, text: str) -> None:
        """A line on the way, before the command's answer; none with --json."""
        if not self.json:
            self.line(text)

    def raw(self, text: str) -> None:
        """Text of several lines; escaped on a terminal, as it is elsewhere (a file may want it
        whole)."""
        sys.stdout.write(
            (clean(text, lines=True) if self.terminal else text).rstrip("\n") + "\n" if text else ""
        )

    def piece(self, data: bytes, *, error: bool = False) -> None:
        """A piece of a log or of a command's output, at once; escaped on a terminal, byte for byte
        elsewhere."""
        stream = sys.stderr if error else sys.stdout
        if stream.isatty():
            stream.write(clean(data.decode("utf-8", "replace").replace("\r\n", "\n"), lines=True))
        else:
            stream.flush()
            stream.buffer.write(data)
        stream.flush()

    def note(self, text: str, style: str = "") -> None:
        """A remark on standard error, at once; does not disturb what is piped on. `style` is an SGR
        code."""
        sys.stderr.write(self.styled(clean(text), style) + "\n")
        sys.stderr.flush()

    def styled(self, text: str, style: str) -> str:
        """A text in a colour, where colours are shown."""
        return f"\x1b[{style}m{text}\x1b[0m" if style and self.colour else text

    def table(
        self,
        columns: Sequence[Column],
        rows: Iterable[Sequence[object]],
        empty: str = "",
        *,
        header: bool = True,
    ) -> None:
        """A table. `empty` is said instead when it has no rows; without `header` its rows alone."""
        cells = list(rows)
        if not cells and empty:
            self.line(empty)
        else:
            lines = self.table_lines(columns, cells, header=header)
            sys.stdout.write("".join(f"{line}\n" for line in lines))

    def table_lines(
        self, columns: Sequence[Column], rows: Sequence[Sequence[object]], *, header: bool = True
    ) -> list[str]:
        """The lines of a table: not wider than the terminal, and elsewhere as wide as they come."""
        cells = [
            list(map(str, texts_of_column)) for texts_of_column in zip(*rows, strict=True)
        ] or [[]] * len(columns)
        # Of thousands of nodes most cells of a column are alike: each text is looked at once.
        texts = [
            {cell: clean(cell) for cell in {*(header * (column.title,)), *texts_of_column}}
            for column, texts_of_column in zip(columns, cells, strict=True)
        ]
        widths = [max(map(width, shown.values())) for shown in texts]
        if self.terminal:
            widths = _fitted(columns, widths, self.width)
        lines = []
        for column, texts_of_column, shown, room in zip(columns, cells, texts, widths, strict=True):
            drawn = {cell: self._cell(column, text, room) for cell, text in shown.items()}
            title = self.styled(_padded(column.title, room, column.right), BOLD)
            lines.append([*(header * (title,)), *(drawn[cell] for cell in texts_of_column)])
        return [_GAP.join(line).rstrip() for line in zip(*lines, strict=True)]

    def _cell(self, column: Column, text: str, room: int) -> str:
        padded = _padded(text, room, column.right)
        style = STYLES.get(text, "") if column.styled else ""
        return padded.replace(text, self.styled(text, style), 1) if style else padded

    @contextlib.contextmanager
    def progress(self) -> Iterator[Show]:
        """How progress is shown: a picture that changes on a terminal, a line for each change
        elsewhere, nothing with --json."""
        if self.json:
            yield lambda news, picture: None
        elif self.terminal:
            from rich.live import Live  # slow to import, and only a terminal wants it
            from rich.text import Text

            with Live(refresh_per_second=8, transient=True) as live:
                yield lambda news, picture: live.update(
                    Text.from_ansi("\n".join(picture()), no_wrap=True)
                )
        else:

            def lines(news: Sequence[str], picture: Callable[[], Sequence[str]]) -> None:
                for line in news:
                    self.line(line)

            yield lines


def width(text: str) -> int:
    """The columns that a printable text takes on a terminal."""
    if text.isascii():
        return len(text)
    import unicodedata

    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def _padded(text: str, room: int, right: bool) -> str:
    if text.isascii() and len(text) <= room:
        return text.rjust(room) if right else text.ljust(room)
    if width(text) > room:
        cut = text[:room]
        while width(cut) > room - 1:
            cut = cut[:-1]
        text = cut + "…"
    space = " " * (room - width(text))
    return space + text if right else text + space


def _fitted(columns: Sequence[Column], widths: Sequence[int], room: int) -> list[int]:
    """The widths that fit into `room`: the flexible columns share what the others leave."""
    room -= len(_GAP) * (len(columns) - 1) + sum(
        w for w, column in zip(widths, columns, strict=True) if not column.flexible
    )
    flexible = sum(column.flexible for column in columns)
    fitted = []
    for needed, column in zip(widths, columns, strict=True):
        fitting = needed
        if column.flexible:
            # The first takes no more than it needs of its share; what it leaves is the next one's.
            fitting = min(needed, max(_LEAST, room // flexible))
            room = room - fitting
            flexible = flexible - 1
        fitted.append(fitting)
    return fitted


def format_duration(value: float | None) -> str:
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


def format_size(value: float) -> str:
    """Bytes for a person."""
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def parse_duration(text: str) -> float:
    """Seconds of "90s", "30m", "4h", "2d". Raises InputError."""
    match = _SPAN.fullmatch(text)
    if match is None or int(match[1]) == 0:
        raise InputError(f"cannot use {text[:40]!r} as a time: write 90s, 30m, 4h or 2d")
    return int(match[1]) * _UNITS[match[2]]


def format_time(at: object) -> str:
    """A Unix time as local date and time; other things as they are."""
    return (
        time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
        if isinstance(at, int | float)
        else str(at)
    )


def short_digest(digest: str) -> str:
    """The beginning of a digest, enough to tell two apart."""
    return digest.rpartition(":")[2][:12]
