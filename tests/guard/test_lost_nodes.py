"""What is done at once about a node that fell silent."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from layercake.agents.sync import Loss
from layercake.features.guard.lost_nodes import LostNodes, power_of
from layercake.fleet.engine import Engine
from layercake.fleet.store import Record
from layercake.kraken.converge import Discovered
from layercake.kraken.errors import Unreachable
from layercake.modules.manual_power import ManualPower
from tests.guard.test_alone import BY_HAND, Alone


class Heard:
    """All that is done elsewhere."""

    def __init__(self) -> None:
        self.alone = Alone()
        self.posted: list[tuple[str, Discovered]] = []
        self.restarted_by_hand: list[tuple[str, str]] = []
        self.calls: list[tuple[str, Mapping[str, Any]]] = []
        self.answered = asyncio.Event()
        self.answered.set()
        engine, manual = cast(Engine, self), cast(ManualPower, self)
        self.lost = LostNodes(engine, self.alone.guard, manual, self.ask)

    def post(self, record: Record, event: Discovered) -> None:
        """As the engine."""
        self.posted.append((record.name, event))

    def restarted(self, record: Record, why: str) -> None:
        """As what watches machines without a BMC."""
        self.restarted_by_hand.append((record.name, why))

    async def ask(
        self, call: str, params: Mapping[str, Any], timeout: float = 10.0
    ) -> Mapping[str, Any]:
        """As the power module, which does not reach the BMC."""
        self.calls.append((call, params))
        await self.answered.wait()
        raise Unreachable("cannot reach the BMC: no answer")


@pytest.fixture
async def heard() -> Heard:
    return Heard()


@pytest.mark.parametrize("loss", [Loss.SILENT, Loss.BMC_OFF])
async def test_the_bmc_of_a_silent_node_is_asked_at_once(heard: Heard, loss: Loss) -> None:
    record = heard.alone.add("n0")
    heard.lost.report(record, loss, "nothing came")
    await asyncio.sleep(0)
    assert heard.calls == [("power.refresh", {"node": "id-n0"})]
    assert "id-n0" in heard.alone.guard.silent.since and not heard.alone.guard.silent.dead
    assert not heard.posted and not heard.restarted_by_hand
    await heard.lost.stop()


async def test_a_node_whose_firmware_asks_hangs_and_is_dead(heard: Heard) -> None:
    record = heard.alone.add("n0")
    heard.lost.report(record, Loss.FIRMWARE, "its firmware asked")
    await asyncio.sleep(0)
    assert heard.posted == [("n0", Discovered({"power": "HANG"}, "its firmware asked"))]
    assert "id-n0" in heard.alone.guard.silent.dead
    assert not heard.calls and not heard.restarted_by_hand


async def test_a_machine_without_a_bmc_was_started_by_hand(heard: Heard) -> None:
    record = heard.alone.add("n0", planner=BY_HAND)
    heard.lost.report(record, Loss.FIRMWARE, "its firmware asked")
    await asyncio.sleep(0)
    assert heard.restarted_by_hand == [("n0", "its firmware asked")]
    assert not heard.posted and not heard.calls


async def test_questions_under_way_end_with_the_head(heard: Heard) -> None:
    heard.answered.clear()
    heard.lost.report(heard.alone.add("n0"), Loss.SILENT, "nothing came")
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == 2
    await heard.lost.stop()
    assert len(asyncio.all_tasks()) == 1


async def test_what_a_bmc_does_not_say_is_not_known(heard: Heard) -> None:
    async def ask(call: str, params: Mapping[str, Any], timeout: float = 10.0) -> Mapping[str, Any]:
        return answer

    record = heard.alone.add("n0")
    answer: dict[str, Any] = {"power": "OFF"}
    assert await power_of(ask, record) == "OFF"
    answer = {}
    assert await power_of(ask, record) == "UNKNOWN"
