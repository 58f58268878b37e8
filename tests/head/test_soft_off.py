"""A power off that the system inside does by itself: it never becomes one that cuts the power,
whatever happens to it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from layercake.kraken.converge import Discovered, Failed
from layercake.kraken.errors import InputError, Refused
from tests.support.api import served, token
from tests.support.world import INVENTORY, World

BMC = "ip: 10.1.0.10, bmc: {driver: ipmi, address: 10.2.0.10}"


class Room(World):
    """A head whose n0 has a BMC, and has left its bond because it is wanted off; what its power
    module is told."""

    def listen(self) -> None:
        """Notes what modules are told."""
        self.sent: list[tuple[str, dict[str, Any]]] = []

        def send(module: str, message: Any) -> bool:
            if message.HasField("mutate") and message.mutate.node == self.node("n0").node.id:
                self.sent.append((message.mutate.mutation, json.loads(message.mutate.params_json)))
            return True

        self.head.modules.host.send = send  # type: ignore[method-assign]

    def sees(self, **values: str) -> None:
        """The BMC says so."""
        self.head.engine.post(self.node("n0"), Discovered(values, "the BMC says so"))

    def under_way(self) -> str:
        """The step that the head does."""
        active = self.node("n0").machine.active
        return active.mutation if active is not None else ""

    def fails(self) -> None:
        """All attempts at what is under way fail, until the head gives up."""
        record = self.node("n0")
        while record.machine.quarantine is None:
            active = record.machine.active
            if active is not None:
                assert active.mutation in ("power-off", "power-reset")
                self.head.engine.post(
                    record, Failed(active.mutation, active.attempt, "its system does not")
                )
            self.tick(10)


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    """Such a head, asked to shut n0 down."""
    made = Room(tmp_path)
    made.open()
    made.listen()
    await made.ops.inventory.apply(INVENTORY.replace("ip: 10.1.0.10", BMC), "x.yaml", None, False)
    made.attach("n0")
    made.send(made.hello("n0"))
    await made.ops.nodes.set_state("n0", "off", False, "ann", soft=True)
    assert made.under_way() != "power-off", "its images stop first"
    made.send(made.hello("n0", run="INIT", image="UNKNOWN"))
    assert made.under_way() == "power-off" and made.sent[-1] == (
        "power-off",
        {"up": True, "gentle": True},
    )
    yield made
    await made.close_head()
    made.client.close()


async def test_a_node_that_shuts_down_stays_off(room: Room) -> None:
    room.sees(power="OFF")
    record = room.node("n0")
    assert record.care.order is None and record.node.state == "off" and room.under_way() == ""


async def test_one_that_does_not_is_left_on_until_a_person_says_more(room: Room) -> None:
    room.fails()
    record = room.node("n0")
    assert record.care.order is not None and record.care.order.soft
    (text,) = [e.text for e in room.events_of("n0") if e.kind == "power.order-failed"]
    assert (
        "off, softly, ordered by ann has failed" in text
        and "it is left on (hint: `layercake power off n0`" in text
    )
    before = len(room.sent)
    for _ in range(20):
        room.tick(60)
    assert len(room.sent) == before, "nothing more is done by itself"
    await room.ops.nodes.clear("n0")
    assert room.sent[before:] == [("power-off", {"up": True, "gentle": True})], "again, as gently"
    await room.ops.nodes.set_state("n0", "off", False, "ann")
    assert room.under_way() == "power-off" and record.care.order is None
    room.fails()
    assert room.sent[-1] == ("power-off", {"up": True}) or room.sent[-1] == (
        "power-reset",
        {"up": True},
    ), "now its power is cut"


async def test_after_that_a_plain_power_off_cuts_it(room: Room) -> None:
    room.fails()
    before = len(room.sent)
    await room.ops.nodes.set_state("n0", "off", False, "ann")
    assert room.node("n0").machine.quarantine is None and room.sent[before:] == [
        ("power-off", {"up": True})
    ]


async def test_one_that_hangs_is_asked_as_gently(room: Room) -> None:
    room.sees(power="HANG")
    room.tick(10)
    assert room.under_way() == "power-reset" and room.sent[-1] == (
        "power-reset",
        {"up": True, "gentle": True},
    )


async def test_the_order_outlives_the_head(room: Room) -> None:
    await room.restart()
    order = room.node("n0").care.order
    assert order is not None and order.soft and order.what == "off"


async def test_wanted_up_again_it_is_not_asked_any_more(room: Room) -> None:
    await room.ops.nodes.set_state("n0", "up", False, "ann")
    assert room.node("n0").care.order is None and room.node("n0").goal_values["power"] == "ON"


async def test_what_cannot_be_is_refused(room: Room) -> None:
    with pytest.raises(Refused, match="n1 softly: without a BMC, a person switches it"):
        await room.ops.nodes.set_state("n1", "off", False, soft=True)
    for state, force in (("off", True), ("up", False)):
        with pytest.raises(InputError, match="cannot shut down softly"):
            await room.ops.nodes.set_state("n0", state, force, soft=True)
    async with served(room.head, local=False) as api:
        operator = await token(room.head, "op", "operator")
        for action, status in (("off", 200), ("on", 400), ("cycle", 400)):
            async with api.post(
                "/v1/power", json={"range": "n0", "action": action, "soft": True}, headers=operator
            ) as answer:
                assert answer.status == status, await answer.text()
