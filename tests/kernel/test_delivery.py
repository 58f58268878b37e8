"""What is delivered at least once: tried again until it is taken, its failure told once."""

from __future__ import annotations

import pytest

from layercake.kernel import delivery
from layercake.kernel.delivery import Delivery
from layercake.kraken.errors import Unreachable


async def test_it_is_tried_until_it_is_taken_and_its_failure_is_told_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delivery, "FIRST_S", 0.001)
    told = list[str]()
    answers = ["", *("it hangs" for _ in range(4))]
    one = Delivery(0.004, told.append)

    async def send() -> str:
        if why := answers.pop():
            raise Unreachable(why, hint="wait")
        return "taken"

    assert one.taken() is None, "nothing had failed"
    assert await one.until_taken(send) == "taken"
    assert (answers, told) == ([], ["it hangs (hint: wait)"])
    failing_s = one.taken()
    assert failing_s is not None and failing_s >= 0.8 * (0.001 + 0.002 + 0.004 + 0.004)
    assert one.taken() is None
    answers = ["", "it is away"]
    await one.until_taken(send)
    assert told == ["it hangs (hint: wait)", "it is away (hint: wait)"]


async def test_a_bug_is_not_tried_again() -> None:
    async def send() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await Delivery(1.0, lambda why: None).until_taken(send)
