"""A container that writes without end costs the head a part of its time, and the others nothing;
what is left out is counted."""

from __future__ import annotations

import asyncio

import pytest

from layercake.features.logs.budget import Budget
from layercake.features.logs.sources import Pieces
from tests.support.clock import FakeClock

FLOOD = b"y\n" * (32 << 10)


class Time:
    """A clock that sleep moves on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = FakeClock(1000.0)
        self.slept = 0.0

        async def sleep(seconds: float) -> None:
            self.slept += seconds
            self.clock.now += seconds

        monkeypatch.setattr("layercake.features.logs.budget.asyncio.sleep", sleep)


async def test_a_flood_is_read_at_a_pace_and_its_lines_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    time = Time(monkeypatch)
    found = Budget(time.clock)
    taken = 0
    for _ in range(160):  # 10 MiB
        taken += found.allows("loud", FLOOD)
        await found.pace("loud", len(FLOOD))
    assert 60 < time.slept < 80, "10 MiB but for the first, at 128 KiB/s"
    assert found.left_out("loud") == (160 - taken) * (32 << 10) and taken == 0
    assert found.left_out("loud") == 0, "told once"


async def test_who_says_little_is_heard_beside_a_flood(monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time(monkeypatch)
    found = Budget(time.clock)
    for _ in range(100):
        for name in range(8):
            found.allows(f"loud {name}", FLOOD)
        time.clock.now += 0.5
        assert found.allows("still", b"one line\nanother\n")
    assert found.left_out("still") == 0


def test_a_burst_is_heard_and_what_is_over_it_counts() -> None:
    clock = FakeClock(1000.0)
    found = Budget(clock)
    said = b"a line of some length\n" * 1000
    assert [found.allows("a", said) for _ in range(6)] == [True] * 4 + [False] * 2
    clock.now += 10.0
    assert found.allows("a", said) and found.left_out("a") == 2000


def test_all_together_have_a_budget_too() -> None:
    found = Budget(FakeClock(1000.0))
    said = b"a line\n" * 4000
    assert sum(found.allows(f"c{number}", said) for number in range(100)) == 16


def test_what_was_begun_before_a_gap_is_not_put_together_with_what_follows() -> None:
    pieces = Pieces()
    assert pieces.add(b"whole\nbegun \xc3") == ["whole"]
    pieces.cut()
    assert pieces.add(b"rest\nnext\n") == ["rest", "next"]


async def test_nothing_waits_that_keeps_to_its_pace() -> None:
    async with asyncio.timeout(5):
        for _ in range(1000):
            await Budget(FakeClock()).pace("a", 1000)
