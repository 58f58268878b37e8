"""What BMCs measure, for numbers that are read all the time: nobody is kept waiting for it."""

from __future__ import annotations

from typing import Any

import pytest

from layercake.kraken.errors import Refused, Unreachable


async def test_a_bmc_that_answers_says_what_it_measures(world: Any) -> None:
    await world.poll()
    said = await world.service.call("power.reading", {"node": "n1"})
    assert said == await world.service.call("power.sensors", {"node": "n1"})
    assert said


async def test_one_that_is_silent_is_not_asked(world: Any) -> None:
    world.drivers["n1"].answers = False
    await world.poll()
    world.drivers["n1"].answers = True
    with pytest.raises(Unreachable):
        await world.service.call("power.reading", {"node": "n1"})


async def test_one_that_somebody_is_at_is_left_to_him(world: Any) -> None:
    await world.poll()
    async with world.service.asking("n1"):
        with pytest.raises(Refused, match="somebody is at its BMC"):
            await world.service.call("power.reading", {"node": "n1"})
