"""What a BMC says of a node that speaks is not believed before the node was asked."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.guard.conftest import LEFT, RIGHT, Rack


def says_off(rack: Rack, name: str) -> None:
    """The power module says so, by the poller or on request."""
    rack.head.listener.discovered(
        "powerman", rack.node(name).node.id, {"power": "OFF"}, "the BMC says so"
    )


def answers_off(rack: Rack, name: str) -> None:
    """The power module says so as the result of the attempt under way."""
    record = rack.node(name)
    active = record.machine.active
    (flight,) = [
        f
        for f in rack.head.listener.dispatcher.flights.values()
        if active is not None and (f.node, f.mutation) == (record.node.id, active.mutation)
    ]
    rack.head.listener.result("powerman", flight.number, True, "", "", {"power": "OFF"})


@pytest.mark.parametrize("says", [says_off, answers_off])
async def test_an_order_is_not_done_while_the_node_speaks(
    rack: Rack, says: Callable[[Rack, str], None]
) -> None:
    await rack.ops.power.cycle("n0", True)
    says(rack, "n0")
    assert rack.node("n0").value("power") == "ON"
    rack.speak("n0")
    assert not rack.told("mutation.failed"), "that HELLO may have been on its way"
    rack.speak("n0")
    assert "its agent still answers" in rack.told("mutation.failed")[0]
    assert rack.node("n0").care.order is not None and not rack.told("power.cycled")


@pytest.mark.parametrize("says", [says_off, answers_off])
async def test_an_order_is_done_when_the_node_is_silent(
    rack: Rack, says: Callable[[Rack, str], None]
) -> None:
    await rack.ops.power.cycle("n0", True)
    says(rack, "n0")
    rack.speak("n0")
    rack.pass_time(5, *LEFT[1:], *RIGHT)
    assert (
        rack.told("power.cycled")
        and not rack.told("mutation.failed")
        and not rack.told("sync.lost")
    )
    assert rack.started() == ["n0 power-off", "n0 power-on"]


async def test_a_node_that_works_on_something_is_not_harmed(rack: Rack) -> None:
    rack.speak("n0", busy="BUSY")
    await rack.ops.nodes.set_state("n1", "off", False)  # n1 detaches: the head waits for it
    assert rack.node("n1").machine.active is not None
    for name in ("n0", "n1"):
        says_off(rack, name)
    rack.pass_time(10, *LEFT, *RIGHT)
    assert rack.started() == [] and not rack.told("sync.lost")
