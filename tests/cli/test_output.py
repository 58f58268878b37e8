"""Tables on terminals and in pipes; numbers for people."""

from __future__ import annotations

import os
import shutil

import pytest

from layercake.client.output import (
    Column,
    Output,
    clean,
    format_duration,
    format_size,
    short_digest,
    width,
)

COLUMNS = (Column("NODE"), Column("STATUS", styled=True), Column("DETAIL", flexible=True))
ROWS = [["n0", "quarantined", "d" * 200]]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Output:
    """A terminal without colours, 40 columns wide."""
    monkeypatch.setattr(
        shutil, "get_terminal_size", lambda fallback=(80, 24): os.terminal_size((40, 24))
    )
    out = Output()
    out.terminal = True
    return out


def test_a_narrow_terminal_cuts_the_flexible_column_only(terminal: Output) -> None:
    lines = terminal.table_lines(COLUMNS, ROWS)
    assert len(lines) == 2
    assert lines[1].startswith("n0    quarantined  ddd") and lines[1].endswith("…")
    assert len(lines[1]) == 40


def test_wide_characters_take_two_columns_and_combining_ones_none(terminal: Output) -> None:
    assert (width("abc"), width("机架"), width("e\u0301")) == (3, 4, 1)
    lines = terminal.table_lines(
        (Column("A"), Column("B", right=True), Column("C", flexible=True)),
        [["机架", 1, "x"], ["rack", 22, "架" * 40]],
    )
    assert lines[:2] == ["A      B  C", "机架   1  x"]
    assert width(lines[2]) in (39, 40) and lines[2].endswith("架…")


def test_status_words_are_coloured_on_a_terminal(terminal: Output) -> None:
    terminal.colour = True
    lines = terminal.table_lines(COLUMNS, ROWS)
    assert "\x1b[1;31mquarantined\x1b[0m  ddd" in lines[1]
    assert lines[0].startswith("\x1b[1mNODE")


def test_a_pipe_gets_whole_lines_without_colours(capsys: pytest.CaptureFixture[str]) -> None:
    Output().table(COLUMNS, ROWS)
    assert (
        capsys.readouterr().out
        == "NODE  STATUS       DETAIL\nn0    quarantined  " + "d" * 200 + "\n"
    )


def test_lines_are_not_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    Output().line("word " * 100 + "end")
    assert capsys.readouterr().out == "word " * 100 + "end\n"


def test_logs_in_a_pipe_are_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    Output().raw("a\x1b[31mb\n\n")
    assert capsys.readouterr().out == "a\x1b[31mb\n"
    terminal = Output()
    terminal.terminal = True
    terminal.raw("a\x1b[31m\tb\n")
    assert capsys.readouterr().out == "a\\x1b[31m\tb\n"


def test_clean_escapes_what_is_not_printable() -> None:
    assert clean("a\x1b\n\u202eb é") == "a\\x1b\\n\\u202eb é"


DURATIONS = [
    (None, "-"),
    (0.44, "0.4s"),
    (59.6, "60s"),
    (600.0, "10m"),
    (7300.0, "2h"),
    (200000.0, "2d"),
]
SIZES = [(999, "999 B"), (12_345, "12.3 kB"), (123_456_789, "123 MB"), (5_100_000_000, "5.1 GB")]


@pytest.mark.parametrize(("value", "text"), DURATIONS)
def test_durations(value: float | None, text: str) -> None:
    assert format_duration(value) == text


@pytest.mark.parametrize(("value", "text"), SIZES)
def test_sizes(value: int, text: str) -> None:
    assert format_size(value) == text


def test_short_digests() -> None:
    assert short_digest("blake2b:0123456789abcdef") == "0123456789ab"
