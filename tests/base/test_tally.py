"""What repeats itself is told once and then counted, in bounded memory."""

from __future__ import annotations

import itertools

from layercake.base.tally import FIRST_S, LONGEST_S, Tally


def test_the_first_is_told_and_the_rest_counted() -> None:
    tally = Tally()
    assert [tally.admit("join", n % 7, f"from {n}", 0.0) for n in range(1000)] == [True] + [
        False
    ] * 999
    assert tally.due(FIRST_S - 1) == []
    assert tally.due(FIRST_S) == [("join", 999, 7, FIRST_S, "from 999")]


def test_what_goes_on_is_told_ever_more_rarely_and_what_ended_begins_anew() -> None:
    tally, now, told = Tally(), 0.0, []
    assert tally.admit("k", 0, "x", now)
    for _ in range(int(2 * LONGEST_S)):
        now += 5.0
        tally.admit("k", 0, "x", now)
        told += [now for _ in tally.due(now)]
    assert [b - a for a, b in itertools.pairwise(told)][:3] == [
        2 * FIRST_S,
        4 * FIRST_S,
        8 * FIRST_S,
    ]
    assert max(b - a for a, b in itertools.pairwise(told)) == LONGEST_S
    tally.due(now + LONGEST_S)
    assert tally.due(now + 2 * LONGEST_S) == []
    assert tally.admit("k", 0, "x", now + 2 * LONGEST_S), "it was quiet: it is told at once again"


def test_many_keys_are_counted_as_one() -> None:
    tally = Tally(keys=10)
    assert sum(tally.admit(n, n, "x", 0.0) for n in range(100_000)) == 11
    counts = tally.due(FIRST_S)
    assert [(c.key, c.times) for c in counts] == [(Tally.OTHERS, 100_000 - 11)]


def test_the_first_different_ones_are_told_one_by_one() -> None:
    tally = Tally(at_once=3)
    assert [tally.admit("mac", about, "x", 0.0) for about in "aabbccdd"] == [
        True,
        False,
        True,
        False,
        True,
        False,
        False,
        False,
    ]
