"""Do no harm: what the head must never do to machines that run, each with a head that would do it
without the guard."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from layercake.features.guard import guard
from layercake.features.guard.guard import WRITTEN_S, Guard
from layercake.features.guard.settings import GuardSettings
from layercake.features.guard.turns.slots import Slots
from layercake.features.nodes.causes import CauseFinder
from layercake.features.nodes.explain import explain_view
from layercake.features.nodes.views import Status, status_of
from layercake.features.status.views import Observed, head_status
from layercake.fleet.guard_state import GuardState, Order
from layercake.kraken.converge import Discovered, Failed
from layercake.kraken.errors import InputError, NotFound, Refused
from tests.guard.conftest import LEFT, RACK, RIGHT, Rack


async def settled() -> None:
    """Lets the witnesses' tasks end."""
    for _ in range(20):
        await asyncio.sleep(0)


def why(rack: Rack, name: str) -> str:
    return " | ".join(explain_view(rack.node(name), rack.clock(), rack.head.part(Guard))["blocked"])


async def test_a_switch_that_restarts_power_cycles_nobody(rack: Rack) -> None:
    rack.pass_time(100)  # nobody speaks, and the BMCs cannot be reached either
    assert rack.started() == []
    (told,) = rack.told("outage.called")
    assert told.endswith("until they are back; domains left,right")
    (view,) = (await head_status(rack.head.part(Observed)))["guard"]["outages"]
    assert (view["where"], view["domains"]) == ("the site", ["left", "right"])
    assert view["nodes"] == sorted((*LEFT, *RIGHT))
    rack.pass_time(300)
    await settled()
    assert rack.started() == [] and "outage" in why(rack, "n0")
    rack.speak(*LEFT, *RIGHT)
    rack.pass_time(5, *LEFT, *RIGHT)
    assert not rack.head.part(Guard).outages.whole and rack.started() == []
    assert all(rack.node(n).machine.goal.met(rack.node(n).machine.state) for n in (*LEFT, *RIGHT))


@pytest.mark.parametrize("at_once", [guard.LOOKED_AT, 1])
async def test_those_that_stay_away_are_treated_some_at_a_time(
    rack: Rack, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many of those that wait are looked at in a second: each has its turn."""
    monkeypatch.setattr(guard, "LOOKED_AT", at_once)
    rack.pass_time(100, *RIGHT)
    back, away = LEFT[:5], LEFT[5:]
    rack.pass_time(60, *RIGHT, *back)
    assert rack.head.part(Guard).outages.whole and not rack.started(), (
        "they may be a moment behind the others"
    )
    rack.pass_time(round(rack.head.settings.guard.outage_settle_s), *RIGHT, *back)
    assert not rack.head.part(Guard).outages.whole
    for _ in range(4):
        rack.pass_time(5, *RIGHT, *back)
        await settled()
    treated = [s.split()[0] for s in rack.started("power-reset")]
    assert len(treated) == rack.head.settings.guard.remedies and set(treated) < set(away)
    (waiting,) = set(away) - set(treated)
    assert "remedies under way in domain left, no more at once" in why(rack, waiting)


async def test_what_fails_in_an_outage_counts_against_no_node(rack: Rack) -> None:
    """A failure of before, and those while all of it is dark, quarantined 22 of 3,309."""
    record = rack.node("n0")
    allowed = record.planner.mutation("power-discover").retries

    def fails(times: int) -> None:
        done = 0
        while done < times:
            active = record.machine.active
            if active is not None:
                failed = Failed(active.mutation, active.attempt, "no answer")
                rack.head.engine.post(record, failed)
                done += 1
            rack.pass_time(10, *RIGHT)

    rack.pass_time(100, *RIGHT)
    assert rack.head.part(Guard).outages.whole
    rack.head.engine.post(record, Discovered({"power": "UNKNOWN"}, "its BMC is dark, too"))
    fails(allowed + 3)
    assert record.machine.quarantine is None and "power-discover" not in record.machine.attempts
    assert rack.head.part(Guard).spares(record) and not rack.head.part(Guard).spares(
        rack.node("m0")
    )


async def test_one_dead_node_is_treated_after_witnesses_were_asked(rack: Rack) -> None:
    rack.pass_time(100, *LEFT[1:], *RIGHT)
    await settled()
    rack.pass_time(2, *LEFT[1:], *RIGHT)
    assert rack.said.asked == ["n0"] and rack.started() == ["n0 power-reset"]
    assert "ARP: no answer" in rack.told("remedy.begun")[0]


async def test_a_node_that_is_off_for_its_bmc_is_started_at_once(rack: Rack) -> None:
    rack.pass_time(17, *LEFT[1:], *RIGHT)
    rack.sees_power("n0", "OFF")
    assert rack.started() == ["n0 power-on"] and rack.said.asked == []


async def test_a_node_whose_agent_answers_is_not_reset(rack: Rack) -> None:
    rack.said.agent = True
    for _ in range(30):
        rack.pass_time(10, *LEFT[1:], *RIGHT)
        await settled()
    assert rack.started() == [] and "answers at its TLS port" in why(rack, "n0")
    assert len(rack.told("remedy.held")) == 1, "told once"


async def test_a_kernel_that_answers_arp_is_waited_for_and_not_for_ever(rack: Rack) -> None:
    rack.said.arp = True
    for _ in range(20):
        rack.pass_time(10, *LEFT[1:], *RIGHT)
        await settled()
    assert rack.started() == [] and "answers ARP" in why(rack, "n0")
    for _ in range(20):
        rack.pass_time(10, *LEFT[1:], *RIGHT)
        await settled()
    assert set(rack.started()) == {"n0 power-reset"}


async def test_a_busy_node_that_falls_silent_waits_for_a_person(rack: Rack) -> None:
    rack.speak("n0", busy="BUSY")
    for _ in range(30):
        rack.pass_time(10, *LEFT[1:], *RIGHT)
        await settled()
    assert rack.started() == [] and "must not be interrupted" in why(rack, "n0")
    await rack.ops.care.release("n0", "ann")
    rack.pass_time(2, *LEFT[1:], *RIGHT)
    assert rack.started() == ["n0 power-reset"]


@pytest.mark.parametrize("wish", ["hold", "never"])
async def test_the_inventory_says_who_is_not_treated(rack: Rack, wish: str) -> None:
    await rack.ops.inventory.apply(
        RACK.replace("left: {", f"left: {{remedy: {wish}, "), "rack.yaml", None, False
    )
    for _ in range(30):
        rack.pass_time(10, *LEFT[1:], *RIGHT)
        await settled()
    assert rack.started() == [] and f"remedy: {wish}" in why(rack, "n0")


async def test_an_outage_outlives_the_head(rack: Rack) -> None:
    rack.pass_time(30)
    await rack.restart()
    rack.listen()
    for name in (*LEFT, *RIGHT):
        rack.sees_power(name, "ON")
    rack.pass_time(400)
    await settled()
    assert rack.started() == [] and rack.head.part(Guard).outages.whole


async def test_an_outage_is_told_once_over_a_restart_and_so_is_its_end(rack: Rack) -> None:
    rack.pass_time(60, *RIGHT)
    assert len(rack.told("outage.called")) == 1
    await rack.restart()
    rack.listen()
    rack.pass_time(200, *RIGHT)
    await rack.restart()
    rack.listen()
    rack.pass_time(200, *RIGHT)
    outages = rack.head.part(Guard).outages.whole
    assert [one.outage.domain for one in outages] == ["left"]
    assert len(rack.told("outage.called")) == 1 and not rack.told("outage.over")
    rack.pass_time(200, *LEFT, *RIGHT)
    (over,) = rack.told("outage.over")
    assert over.startswith("domain left: over after ") and "min" in over
    await rack.restart()
    rack.pass_time(200, *LEFT, *RIGHT)
    assert len(rack.told("outage.over")) == 1


async def test_that_an_outage_is_over_is_told_also_if_that_was_while_the_head_was_away(
    rack: Rack,
) -> None:
    rack.pass_time(60, *RIGHT)
    await rack.restart()
    rack.listen()
    rack.pass_time(5, *LEFT, *RIGHT)
    assert not rack.told("outage.over"), "who is silent is not known yet"
    rack.pass_time(60, *LEFT, *RIGHT)
    assert len(rack.told("outage.called")) == 1 and len(rack.told("outage.over")) == 1


async def test_an_outage_that_a_person_has_ended_is_over_for_the_next_head_too(rack: Rack) -> None:
    rack.pass_time(60, *RIGHT)
    await rack.ops.care.end_outage("left", "ann")
    await rack.restart()
    rack.listen()
    rack.pass_time(5, *RIGHT)
    assert rack.told("outage.over") == ["domain left: ended by ann; 8 nodes still silent"]


async def test_a_person_ends_an_outage(rack: Rack) -> None:
    rack.pass_time(120, *RIGHT)
    assert rack.started() == []
    with pytest.raises(NotFound, match="there is none"):
        await rack.ops.care.end_outage("right", "ann")
    await rack.ops.care.end_outage("left", "ann")
    rack.pass_time(3, *RIGHT)
    assert len(rack.started("power-reset")) == rack.head.settings.guard.remedies


async def test_a_machine_found_running_is_left_alone_until_it_is_taken(rack: Rack) -> None:
    await rack.ops.inventory.apply(
        RACK + '  x0: {mac: "52:54:00:00:09:10", ip: 10.1.9.10}\n', "rack.yaml", None, False
    )
    rack.sees_power("x0", "ON")
    for _ in range(60):
        rack.pass_time(10, *LEFT, *RIGHT)
    assert rack.started() == [] and "found running" in why(rack, "x0")
    assert len(rack.told("node.found-running")) == 1
    await rack.ops.care.adopt("x0", "ann")
    assert rack.started() == ["x0 power-off"]
    rack.sees_power("x0", "OFF")
    assert rack.started()[-1] == "x0 power-on"


async def test_a_plan_says_what_becomes_of_new_machines_that_run(rack: Rack) -> None:
    """No BMC is asked before a node is known; once it is, the plan says what was found."""
    text = RACK + '  x0: {mac: "52:54:00:00:09:10", ip: 10.1.9.10}\n'
    also = text + '  x1: {mac: "52:54:00:00:09:11", ip: 10.1.9.11, adopt: reset}\n'
    planned = await rack.ops.inventory.plan(also, "rack.yaml")
    assert {p["node"]: p["adopt"] for p in planned["plans"]} == {"x0": "ask", "x1": "reset"}
    await rack.ops.inventory.apply(text, "rack.yaml", None, False)
    rack.sees_power("x0", "ON")
    (known,) = (await rack.ops.inventory.plan(text.replace("10.1.9.10", "10.1.9.20"), "rack.yaml"))[
        "plans"
    ]
    assert (known["found_running"], known["adopt"]) == (True, None)


async def test_adopt_reset_takes_a_machine_that_was_found_running(rack: Rack) -> None:
    text = RACK + '  x0: {mac: "52:54:00:00:09:10", ip: 10.1.9.10, adopt: reset}\n'
    await rack.ops.inventory.apply(text, "rack.yaml", None, False)
    rack.sees_power("x0", "ON")
    assert rack.started() == ["x0 power-off"] and "node.taken" in rack.kinds("x0")


async def test_a_frozen_site_stays_as_it_is(rack: Rack) -> None:
    await rack.ops.care.freeze("", "the auditors are here", "ann")
    with pytest.raises(Refused, match="frozen by ann: the auditors are here"):
        await rack.ops.power.cycle("n0", True)
    with pytest.raises(Refused, match="frozen"):
        await rack.ops.nodes.set_state("n0", "off", True)
    with pytest.raises(Refused, match="frozen"):
        await rack.ops.inventory.apply(
            RACK.replace("10.1.0.10", "10.1.0.99"), "rack.yaml", None, False
        )
    rack.sees_power("n1", "OFF")
    rack.sees_power("n2", "HANG")
    rack.pass_time(300, *LEFT[3:], *RIGHT)
    await rack.restart()
    rack.listen()
    rack.sees_power("n1", "OFF")
    rack.pass_time(300, *LEFT[3:], *RIGHT)
    assert rack.started() == [] and "frozen" in why(rack, "n1")
    assert (await head_status(rack.head.part(Observed)))["guard"]["frozen"][
        "reason"
    ] == "the auditors are here"
    await rack.ops.care.thaw("", "ann")
    rack.pass_time(2, *LEFT[3:], *RIGHT)
    await settled()
    assert rack.started()


async def test_power_on_in_an_outage_resets_nobody(rack: Rack) -> None:
    rack.pass_time(30)
    await rack.ops.nodes.set_state("@all", "up", False)
    rack.pass_time(300)
    await settled()
    assert rack.started() == []


async def test_a_freeze_of_some_nodes_holds_only_those(rack: Rack) -> None:
    with pytest.raises(InputError, match="no reason"):
        await rack.ops.care.freeze("n0", "  ", "ann")
    assert await rack.ops.care.freeze("n0", "mine", "ann") == ["n0"]
    rack.pass_time(17, *LEFT[2:], *RIGHT)
    rack.sees_power("n0", "OFF")
    rack.sees_power("n1", "OFF")
    assert rack.started() == ["n1 power-on"]
    assert await rack.ops.care.thaw("n0", "ann") == ["n0"]
    assert rack.started() == ["n1 power-on", "n0 power-on"]


async def test_maintenance_is_out_of_remedies_and_ends_by_itself(rack: Rack) -> None:
    for seconds in (0.0, -1.0, 366 * 86400.0 + 1.0, float("nan")):
        with pytest.raises(InputError, match="a year at most"):
            await rack.ops.care.begin("n0", "new DIMM", "ann", seconds)
    assert await rack.ops.care.begin("n1", "new disk", "ann", 366 * 86400.0) == ["n1"]
    await rack.ops.care.end("n1", "ann")
    assert await rack.ops.care.begin("n0", "new DIMM", "ann", 600.0) == ["n0"]
    with pytest.raises(Refused, match="there is one already"):
        await rack.ops.care.begin("n0", "again", "bob", None)
    rack.pass_time(17, *LEFT[1:], *RIGHT)
    rack.sees_power("n0", "OFF")
    rack.pass_time(300, *LEFT[1:], *RIGHT)
    assert rack.started() == [] and "in maintenance by ann" in why(rack, "n0")
    (cause,) = (await rack.head.part(CauseFinder).of([rack.node("n0")], False))["causes"]
    assert cause.command == "layercake node maintenance end n0"
    rack.pass_time(300, *LEFT[1:], *RIGHT)
    assert rack.started() == ["n0 power-on"]
    (past,) = rack.ops.care.maintenances("n0")
    assert (past["reason"], past["by"], past["ended_by"]) == ("new DIMM", "ann", "its time")


async def test_a_node_is_started_again_when_it_is_on_disk_that_its_cycle_is_half_done(
    rack: Rack,
) -> None:
    """A head that was killed in between would carry the order out once more: it cut the power of a
    node that booted."""
    rack.head.part(Guard).written = partial(rack.head.database.written, rack.head.store)
    await rack.ops.power.cycle("n0", True)
    rack.sees_power("n0", "OFF")
    assert rack.started("power-on") == [] and "must not carry its last order out once more" in why(
        rack, "n0"
    )
    await rack.head.database.flush(rack.head.store)
    rack.pass_time(1, *LEFT[1:], *RIGHT)
    assert rack.started("power-on") == ["n0 power-on"]


async def test_a_disk_that_takes_nothing_leaves_no_node_off(rack: Rack) -> None:
    rack.head.part(Guard).written = partial(rack.head.database.written, rack.head.store)
    await rack.ops.power.cycle("n0", True)
    rack.sees_power("n0", "OFF")
    rack.pass_time(round(WRITTEN_S) - 1, *LEFT[1:], *RIGHT)
    assert rack.started("power-on") == []
    rack.pass_time(2, *LEFT[1:], *RIGHT)
    assert rack.started("power-on") == ["n0 power-on"]


async def test_a_cycle_of_a_node_that_goes_off_before_it_is_written_is_done(rack: Rack) -> None:
    """Nothing more is seen of its power: it would stay off for ever, with the order."""
    record = rack.node("n0")
    order = Order("cycle", force=True, by="ann", at=rack.clock())
    async with rack.head.desire.transaction() as transaction:
        rack.head.kernel.orders.give(transaction, record, order)
        rack.sees_power("n0", "OFF")
    assert record.care.order is None and record.meant == "up"
    assert rack.told("power.cycled") == ["is off, and is started again"]
    rack.pass_time(WRITTEN_S + 1, *LEFT[1:], *RIGHT)
    assert rack.started()[-1] == "n0 power-on" and "n0 power-off" not in rack.started()


async def test_a_person_may_cycle_a_node_in_maintenance(rack: Rack) -> None:
    await rack.ops.care.begin("n0", "new DIMM", "ann", None)
    assert "in maintenance by ann" in why(rack, "n0")
    await rack.ops.power.cycle("n0", True)
    assert rack.started() == ["n0 power-off"]
    assert why(rack, "n0") == "", "what he asked for is under way"
    rack.sees_power("n0", "OFF")
    rack.pass_time(WRITTEN_S, *LEFT[1:], *RIGHT)
    assert rack.started() == ["n0 power-off", "n0 power-on"]


async def test_a_person_may_switch_a_node_in_maintenance_on_and_off(rack: Rack) -> None:
    await rack.ops.care.begin("n0", "new DIMM", "ann", None)
    await rack.ops.nodes.set_state("n0", "off", True)
    rack.sees_power("n0", "OFF")
    rack.pass_time(5, *LEFT[1:], *RIGHT)
    assert rack.started() == ["n0 power-off"]
    await rack.ops.nodes.set_state("n0", "up", False)
    assert rack.started() == ["n0 power-off", "n0 power-on"]


async def test_a_node_that_was_switched_off_in_maintenance_is_told_at_its_end(rack: Rack) -> None:
    for name, seconds in (("n0", None), ("n1", 600.0), ("n2", None)):
        await rack.ops.care.begin(name, "new DIMM", "ann", seconds)
    await rack.ops.nodes.set_state("n[0-1]", "off", True)
    for name in ("n0", "n1"):
        rack.sees_power(name, "OFF")
    assert rack.ops.nodes.left_off(["n0", "n2", "n3"]) == {"n0"}
    ended = await rack.ops.care.end("n[0,2]", "ann")
    assert ended == {"nodes": ["n0", "n2"], "off": ["n0"]}
    rack.pass_time(601, *LEFT[2:], *RIGHT)
    hint = "it is wanted off (hint: `layercake power on {}` boots it)"
    said = {
        name: [e.text for e in rack.events_of(name) if e.kind == "maintenance.ended"]
        for name in ("n0", "n1", "n2")
    }
    assert said == {
        "n0": [f"by ann; {hint.format('n0')}"],
        "n1": [f"its time is over: new DIMM; {hint.format('n1')}"],
        "n2": ["by ann"],
    }


async def test_a_node_in_maintenance_says_so_and_is_not_counted_as_converged(rack: Rack) -> None:
    rack.speak("n0")
    await rack.ops.care.begin("n0", "new DIMM", "ann", None)
    node = rack.node("n0")
    rack.pass_time(1, *LEFT, *RIGHT)
    assert status_of(node, rack.clock()) == (Status.MAINTENANCE, "in maintenance by ann: new DIMM")
    assert status_of(node, rack.clock(), brief=True) == (Status.MAINTENANCE, "in maintenance")
    await rack.ops.nodes.set_state("n0", "off", True)
    rack.sees_power("n0", "OFF")
    assert status_of(node, rack.clock()) == (
        Status.MAINTENANCE,
        "in maintenance by ann: new DIMM; wanted off, also when that is over",
    )
    found = await rack.head.part(CauseFinder).of([node], False)
    counts = (await head_status(rack.head.part(Observed)))["nodes"]
    assert (counts["maintenance"], counts["converged"]) == (1, len(rack.head.store) - 1)
    assert (found["well"], found["causes"], found["stopped"]) == (1, [], ["n0"])
    await rack.ops.care.end("n0", "ann")
    assert status_of(node, rack.clock()) == (Status.CONVERGED, "")


async def test_a_head_that_did_not_listen_declares_nobody_lost(rack: Rack) -> None:
    for record in rack.head.store:
        record.last_seen = rack.clock()
    rack.clock.now += 19.0  # the event loop stood still
    rack.head.sync.scan()
    assert not rack.told("sync.lost")
    rack.pass_time(14, *LEFT, *RIGHT)
    assert not rack.told("sync.lost")
    rack.pass_time(20, *LEFT, *RIGHT[1:])
    assert len(rack.told("sync.lost")) == 1, "it hears again who is silent"


async def test_a_hold_after_a_restart_ends_when_the_agent_is_back(rack: Rack) -> None:
    await rack.restart()
    record = rack.node("n0")
    assert record.machine.held_until > rack.clock()
    rack.speak("n0")
    assert record.machine.held_until == 0.0


async def test_boots_are_bounded(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rack.head.part(Guard), "slots", Slots(GuardSettings(boots=3)))
    for name in LEFT:
        rack.node(name).care = GuardState(ours=True)
        rack.sees_power(name, "OFF")
    assert len(rack.started("power-on")) == 3
    assert "3 boots under way in domain left, no more at once" in why(rack, LEFT[3])
    rack.speak(LEFT[0])
    rack.tick(1)
    assert len(rack.started("power-on")) == 4, "one is up: it is another's turn"


async def test_what_a_hello_says_again_is_not_written_again(rack: Rack) -> None:
    await rack.ops.nodes.set_state("n0", "off", False)
    rack.speak("n0", "n1")
    rack.head.store.dirty.clear()
    rack.speak("n0", "n1")
    assert not rack.head.store.dirty
