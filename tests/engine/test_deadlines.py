"""Deadlines: each key is told of once, at its last time, whatever was said of it before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from layercake.base.scheduling.deadlines import SLOT_S, Deadlines

KEYS = st.sampled_from(["n1", "n2", "n3", "n4"])
STEP = SLOT_S / 4
"""Times fall into one slot together, on the border of two, and far from each other."""


@given(st.lists(st.tuples(KEYS | st.none(), st.integers(0, 40)), min_size=1, max_size=60))
def test_as_one_that_looks_at_all_of_them(steps: list[tuple[str | None, int]]) -> None:
    deadlines, model, now = Deadlines(), dict[str, float](), 0.0
    for key, number in steps:
        if key is not None:
            deadlines.schedule(key, number * STEP)
            model[key] = number * STEP
        else:
            now = max(now, number * STEP)
            due = {key for key, at in model.items() if at <= now}
            assert deadlines.pop_due(now) == due
            model = {key: at for key, at in model.items() if key not in due}
        assert len(deadlines) == len(model)
    assert deadlines.pop_due(41 * STEP) == set(model)


def test_what_is_moved_a_hundred_thousand_times_leaves_nothing_behind() -> None:
    deadlines = Deadlines()
    for number in range(100_000):
        deadlines.schedule("n1", 1e9 + number)
    assert len(deadlines) == 1
    assert deadlines.pop_due(2e9) == {"n1"}
    assert deadlines.pop_due(3e9) == set()
