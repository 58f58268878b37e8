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


class Recorder:
    """Records what is asked of the engine, the BMC and who watches machines without one."""

    def __init__(self) -> None:
        self.alone = Alone()
        self.posted: list[tuple[str, Discovered]] = []
        self.restarted_by_hand: list[tuple[str, str]] = []
        self.calls: list[tuple[str, Mapping[str, Any]]] = []
        self.ended: list[str] = []
        self.answered = asyncio.Event()
        self.answered.set()
        engine = cast(Engine, self)
        self.lost = LostNodes(engine, self.alone.guard, cast(ManualPower, self), self.call_module)

    def post(self, record: Record, event: Discovered) -> None:
        """As the engine."""
        self.posted.append((record.name, event))

    def restarted(self, record: Record, why: str) -> None:
        """As what watches machines without a BMC."""
        self.restarted_by_hand.append((record.name, why))

    async def call_module(
        self, call: str, params: Mapping[str, Any], timeout: float = 10.0
    ) -> Mapping[str, Any]:
        """As the power module, which does not reach the BMC."""
        self.calls.append((call, params))
        try:
            await self.answered.wait()
        except asyncio.CancelledError:
            self.ended.append(call)
            raise
        raise Unreachable("cannot reach the BMC: no answer")


@pytest.fixture
async def recorder() -> Recorder:
    return Recorder()


@pytest.mark.parametrize("loss", [Loss.SILENT, Loss.BMC_OFF])
async def test_the_bmc_of_a_silent_node_is_asked_at_once(recorder: Recorder, loss: Loss) -> None:
    record = recorder.alone.add("n0")
    recorder.lost.report(record, loss, "nothing came")
    await asyncio.sleep(0)
    assert recorder.calls == [("power.refresh", {"node": "id-n0"})]
    assert "id-n0" in recorder.alone.guard.silent.since and not recorder.alone.guard.silent.dead
    assert not recorder.posted and not recorder.restarted_by_hand
    await recorder.lost.stop()


async def test_a_node_whose_firmware_asks_hangs_and_is_dead(recorder: Recorder) -> None:
    record = recorder.alone.add("n0")
    recorder.lost.report(record, Loss.FIRMWARE, "its firmware asked")
    await asyncio.sleep(0)
    assert recorder.posted == [("n0", Discovered({"power": "HANG"}, "its firmware asked"))]
    assert "id-n0" in recorder.alone.guard.silent.dead
    assert not recorder.calls and not recorder.restarted_by_hand


async def test_a_machine_without_a_bmc_was_started_by_hand(recorder: Recorder) -> None:
    record = recorder.alone.add("n0", planner=BY_HAND)
    recorder.lost.report(record, Loss.FIRMWARE, "its firmware asked")
    await asyncio.sleep(0)
    assert recorder.restarted_by_hand == [("n0", "its firmware asked")]
    assert not recorder.posted and not recorder.calls


async def test_questions_under_way_end_with_the_head(recorder: Recorder) -> None:
    recorder.answered.clear()
    recorder.lost.report(recorder.alone.add("n0"), Loss.SILENT, "nothing came")
    await asyncio.sleep(0)
    assert recorder.calls and not recorder.ended
    await recorder.lost.stop()
    assert recorder.ended == ["power.refresh"]


async def test_what_a_bmc_does_not_say_is_not_known(recorder: Recorder) -> None:
    async def call_module(
        call: str, params: Mapping[str, Any], timeout: float = 10.0
    ) -> Mapping[str, Any]:
        return answer

    record = recorder.alone.add("n0")
    answer: dict[str, Any] = {"power": "OFF"}
    assert await power_of(call_module, record) == "OFF"
    answer = {}
    assert await power_of(call_module, record) == "UNKNOWN"
