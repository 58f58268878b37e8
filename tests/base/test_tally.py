"""What repeats itself is told once and then counted, in bounded memory."""

from __future__ import annotations

import itertools

from layercake.base.tally import FIRST_S, LONGEST_S, Change, Condition, Tally


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


def test_a_trouble_is_told_once_and_its_end_once() -> None:
    condition = Condition()
    seen = [condition.update(trouble, at) for at, trouble in enumerate(("", "a", "b", "", ""))]
    assert seen == [None, Change.RAISED, None, Change.CLEARED, None]
    assert condition.since == 1.0 and not condition.trouble


def test_another_trouble_is_told_too_where_that_is_wanted() -> None:
    condition = Condition(each=True)
    seen = [condition.update(trouble, at) for at, trouble in enumerate(("a", "a", "b", "b", ""))]
    assert seen == [Change.RAISED, None, Change.RAISED, None, Change.CLEARED]
    assert condition.since == 0.0, "it was not well in between"


def test_what_comes_and_goes_is_told_when_it_lasts() -> None:
    condition = Condition(60.0)
    assert condition.update("a", 0.0) is Change.RAISED
    assert condition.update("", 5.0) is Change.CLEARED
    assert condition.update("a", 10.0) is None and condition.trouble == "a"
    assert condition.view(15.0) == {"well": False, "trouble": "a", "since_s": 5.0}
    assert condition.update("", 20.0) is None, "its beginning was not told"
    assert condition.update("a", 50.0) is None
    assert condition.update("a", 60.0) is Change.RAISED
    assert condition.update("", 61.0) is Change.CLEARED
    assert condition.view(62.0) == {"well": True, "trouble": "", "since_s": None}
