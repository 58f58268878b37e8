"""Console bytes as lines: ends, times, what is harmless."""

from __future__ import annotations

import pytest

from layercake.base.clock import stamp
from powerman.console.lines import IDLE_S, LONGEST, STAMP, Lines, harmless, parse_stamp

T = 1769860800.0  # 2026-01-31T12:00:00Z


def texts(found: str) -> list[str]:
    """The lines without their times."""
    return [line[STAMP + 1 :] for line in found.splitlines()]


def test_a_time_is_read_as_it_was_written() -> None:
    assert (
        stamp(T + 0.25) == "2026-01-31T12:00:00.250Z" and parse_stamp(stamp(T + 0.25)) == T + 0.25
    )
    assert parse_stamp("yesterday") is None


def test_lines_end_where_they_end_whatever_the_pieces_are() -> None:
    whole = b"one\r\ntwo\nthree\rfour\r\r\n\r\nfive\n"
    for size in range(1, len(whole) + 1):
        lines = Lines()
        found = "".join(lines.add(whole[at : at + size], T) for at in range(0, len(whole), size))
        assert texts(found) == ["one", "two", "three", "four", "five"], size


def test_a_line_has_the_time_of_its_first_byte() -> None:
    lines = Lines()
    assert lines.add(b"half", T) == ""
    found = lines.add(b" of it\nnext", T + 60) + lines.add(b"\n", T + 90)
    assert [parse_stamp(line[:STAMP]) for line in found.splitlines()] == [T, T + 60]


def test_a_prompt_is_kept_when_nothing_follows() -> None:
    lines = Lines()
    lines.add(b"login: ", T)
    assert (
        lines.idle(T + IDLE_S - 1) == ""
        and texts(lines.idle(T + IDLE_S)) == ["login:"]
        and not lines.waiting
    )


def test_a_note_stands_in_a_line_of_its_own() -> None:
    lines = Lines()
    lines.add(b"[   12.3] usb", T)
    assert texts(lines.note("the BMC has ended it", T)) == [
        "[   12.3] usb",
        "--- the BMC has ended it",
    ]


def test_a_line_without_an_end_is_cut() -> None:
    assert [len(text) for text in texts(Lines().add(b"x" * (2 * LONGEST + 10), T))] == [
        LONGEST,
        LONGEST,
    ]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"\x1b[1;31mpanic\x1b[0m", "panic"),
        (b"\x1b]0;owned\x07prompt", "prompt"),
        (b"\x1b]52;c;ZXZpbA==\x1b\\x", "x"),
        (b"\x1bPq#0;2;0;0;0\x1b\\sixel", "sixel"),
        (b"a\x1b(Bb\x1b7c\x1b=d", "abcd"),
        (b"bell\x07 back\x08 del\x7f", "bell back del"),
        (b"tab\there", "tab here"),
        ("grün €".encode(), "grün €"),
        (b"\xff\xfe", "��"),
        ("\x9b2J csi".encode(), "�2J csi"),
        ("\u202egnp.exe".encode(), "�gnp.exe"),
        (b"\x1b[" + b"9" * 100 + b"m", "9" * 36 + "m"),
    ],
)
def test_what_a_terminal_would_act_on_is_left_out(raw: bytes, text: str) -> None:
    found = harmless(raw)
    assert found == text and found.isprintable()


def test_no_bytes_at_all_make_something_that_is_not_printable() -> None:
    for first in range(256):
        for second in (0x1B, 0x5B, 0x9B, 0x07, 0x41, 0xC2):
            assert harmless(bytes((first, second, 0x1B, first, second))).isprintable()
