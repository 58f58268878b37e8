"""Garbage is found a little at a time, however few objects there are more than before."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from layercake.base import process


class Knot:
    """Holds itself."""

    def __init__(self) -> None:
        self.me = self


@pytest.mark.parametrize(("took", "rests"), [(0.01, process.TIDY_S), (0.0001, process.IDLE_S)])
async def test_what_is_new_is_looked_through_again_and_again(
    took: float, rests: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    times, rested, knots = [0.0], list[float](), list[weakref.ref[Knot]]()

    def timer() -> float:
        times.append(times[-1] + took)
        return times[-1]

    async def sleep(seconds: float) -> None:
        rested.append(seconds)
        assert all(knot() is None for knot in knots)
        if len(rested) == 3:
            raise asyncio.CancelledError
        knots.append(weakref.ref(Knot()))

    monkeypatch.setattr(asyncio, "sleep", sleep)
    gc.disable()  # nobody else finds them
    try:
        with pytest.raises(asyncio.CancelledError):
            await process.gc_loop(timer)
    finally:
        gc.enable()
    assert rested == [rests] * 3 and len(knots) == 2
