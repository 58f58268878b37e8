"""Who reads a console and who has the keyboard, by a clock that is made up."""

from __future__ import annotations

import pytest

from layercake.kraken.errors import NotFound, Refused
from powerman.console.readers import GONE_S, KEPT, KEPT_IDLE, MOST, Readers


def test_one_has_the_keyboard_and_the_next_one_takes_it() -> None:
    readers = Readers()
    alice = readers.attach("alice", 0.0, write=True, take=False)
    bob = readers.attach("bob", 0.0, write=True, take=False)
    readers.may_write(alice, 1.0)
    with pytest.raises(Refused, match="alice has the keyboard"):
        readers.may_write(bob, 1.0)
    readers.take_keyboard(bob, 2.0)
    assert readers.writing == "bob" and readers.names == ["alice", "bob"]
    readers.detach(bob)
    assert readers.writing == "" and readers.names == ["alice"]
    with pytest.raises(Refused, match="nobody"):
        readers.may_write(alice, 3.0)


def test_one_who_only_reads_has_no_keyboard() -> None:
    readers = Readers()
    readers.attach("eve", 0.0, write=False, take=False)
    assert readers.writing == ""


def test_who_is_away_for_too_long_is_gone_and_the_keyboard_free() -> None:
    readers = Readers()
    alice = readers.attach("alice", 0.0, write=True, take=False)
    readers.drop_absent(GONE_S)
    assert readers.knows(alice)
    readers.drop_absent(GONE_S + 1)
    assert not readers.any and readers.writing == ""
    with pytest.raises(NotFound):
        readers.mark_present(alice, GONE_S + 1)


def test_a_slow_reader_is_told_what_it_has_missed() -> None:
    readers = Readers()
    readers.attach("alice", 0.0, write=False, take=False)
    for _ in range(5):
        readers.add_output(bytes(KEPT))
    data, position, lost = readers.since(0, 1000)
    assert len(data) == 1000 and lost + 1000 == position and lost >= 3 * KEPT
    assert readers.since(position, 10 * KEPT)[2] == 0 and readers.since(readers.end, 10) == (
        b"",
        readers.end,
        0,
    )


def test_little_is_kept_while_nobody_reads() -> None:
    readers = Readers()
    for _ in range(1000):
        readers.add_output(bytes(1000))
    assert len(readers.since(0, 1 << 20)[0]) <= 2 * KEPT_IDLE + 1000


def test_readers_are_bounded() -> None:
    readers = Readers()
    for number in range(MOST):
        readers.attach(f"r{number}", 0.0, write=False, take=False)
    with pytest.raises(Refused, match="read it already"):
        readers.attach("one more", 0.0, write=False, take=False)
