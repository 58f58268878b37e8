"""The guard by itself, with a store, an engine that notes what is permitted, and witnesses that are
told what to say: what it keeps of nodes, what it marks, and what it shows."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import msgspec
import pytest

from layercake.features.guard import guard as guarding
from layercake.features.guard.guard import WRITTEN_S, Guard
from layercake.features.guard.settings import GuardSettings
from layercake.features.guard.verdict import kept_by
from layercake.features.guard.witness import Findings, Witnesses
from layercake.fleet.engine import Engine
from layercake.fleet.guard_state import GuardState, Order, Stop, Verdict, Why
from layercake.fleet.store import Hold, Record, Session, Store
from layercake.fleet.wishes import Wishes
from layercake.inventory.schema import Node
from layercake.kraken.converge import Permitted
from layercake.kraken.errors import Refused
from layercake.kraken.facts import NodeState
from layercake.kraken.planner import Planner
from tests.support import production
from tests.support.clock import FakeClock

PLANNER = production.planner()
BY_HAND = Planner(
    tuple(
        replace(mutation, person="press its button") if mutation.name == "power-on" else mutation
        for mutation in production.MUTATIONS
    ),
    production.VARIABLES,
)
JOINING = Planner(
    tuple(
        replace(mutation, joins=True) if mutation.name == "boot-wait" else mutation
        for mutation in production.MUTATIONS
    ),
    production.VARIABLES,
)
STOP = Stop("new DIMM", "ann", 100.0)
IN_SYNC = GuardState(ours=True, up=True)
SETTINGS = GuardSettings(outage_nodes=1, inrush_s=1.0, boots=2, remedies=2)


class Alone:
    """A guard, and all that it does elsewhere."""

    def __init__(self, settings: GuardSettings = SETTINGS) -> None:
        self.clock = FakeClock()
        self.wall = FakeClock(1000.0)
        self.store = Store(self.clock, self.wall)
        self.permitted: list[str] = []
        self.wanted_again: list[str] = []
        self.taken: list[tuple[str, str]] = []
        self.asked_at: list[tuple[str, float]] = []
        self.agent = False
        engine, witnesses = cast(Engine, self), cast(Witnesses, self)
        self.guard = Guard(self.store, engine, settings, witnesses, self, self.clock)

    def post(self, record: Record, event: Permitted) -> None:
        """As the engine."""
        self.permitted.append(f"{record.name} {event.mutation}")

    def want_again(self, record: Record) -> None:
        """As the head."""
        self.wanted_again.append(record.name)

    def take_over(self, record: Record, by: str) -> None:
        """As the head."""
        self.taken.append((record.name, by))

    async def collect(self, record: Record, now: float) -> Findings:
        """As the witnesses."""
        self.asked_at.append((record.name, now))
        return Findings(now, "ON", self.agent, False)

    def add(
        self,
        name: str,
        care: GuardState = IN_SYNC,
        power: str = "OFF",
        state: str = "up",
        wishes: Wishes | None = None,
        domains: tuple[str, ...] = ("left",),
        planner: Planner = PLANNER,
    ) -> Record:
        """A node."""
        parts = {"head": wishes} if wishes is not None else {}
        node = Node(f"id-{name}", name, (), "10.0.0.1", state=state, domains=domains, parts=parts)
        goal = production.off(planner) if state == "off" else production.up(planner)
        machine = NodeState(planner.layout.pack({"power": power}), goal)
        record = self.store.make(node, planner, machine)
        record.care = care
        self.store.adopt(record)
        return record

    def ask_for(self, record: Record, mutation: str) -> None:
        """The engine asks."""
        record.machine = waiting_for(record.machine, mutation)
        self.guard.asked(record, mutation)

    def marked(self) -> list[str]:
        """The nodes that are to be written, since the last time."""
        found = sorted(key.removeprefix("id-") for key in self.store.dirty)
        self.store.dirty.clear()
        return found

    def events(self) -> list[tuple[str, str, str]]:
        """(node, kind, text) of all events."""
        return [(event.node, str(event.kind), event.text) for event in self.store.events]

    def why(self, record: Record) -> Why | None:
        """Why its next step waits."""
        verdict = self.guard.why(record)
        return verdict.why if verdict is not None else None


def waiting_for(machine: NodeState, mutation: str) -> NodeState:
    """The machine, waiting for permission."""
    return NodeState(machine.state, machine.goal, asked=mutation)


@pytest.fixture
def alone() -> Alone:
    return Alone()


# -- a node that speaks


@pytest.mark.parametrize(
    "before",
    [
        GuardState(ours=False, up=True),
        GuardState(ours=True, up=False),
        GuardState(ours=True, up=True, busy=True),
        GuardState(ours=True, up=True, released=True),
        GuardState(ours=True, up=True, wished=5.0),
    ],
)
def test_a_node_that_speaks_is_ours_and_up_and_has_what_it_was_given(
    alone: Alone, before: GuardState
) -> None:
    record = alone.add("n0", before)
    alone.guard.node_spoke(record, "FREE")
    assert record.care == IN_SYNC and alone.marked() == ["n0"]
    alone.guard.node_spoke(record, "FREE")
    assert alone.marked() == [], "nothing is new"


def test_what_it_said_of_its_work_holds_until_it_says_something_else(alone: Alone) -> None:
    record = alone.add("n0")
    for said, busy in (("BUSY", True), ("UNKNOWN", True), ("FREE", False), ("", False)):
        alone.guard.node_spoke(record, said)
        assert record.care.busy is busy


def test_a_node_that_shall_be_off_is_not_up_when_it_speaks(alone: Alone) -> None:
    record = alone.add("n0", IN_SYNC, power="ON", state="off")
    alone.guard.node_spoke(record, "FREE")
    assert not record.care.up and record.care.ours


# -- what is seen of its power


def test_an_order_is_done_when_the_node_is_off(alone: Alone) -> None:
    record = alone.add(
        "n0", GuardState(ours=True, up=True, busy=True, order=Order("cycle", True, "ann", 0.0))
    )
    alone.guard.lost(record)
    alone.guard.changed(record)
    assert record.care == GuardState(ours=True, released=True) and alone.marked() == ["n0"]
    assert alone.events() == [("n0", "power.cycled", "is off, and is started again")]
    assert alone.wanted_again == ["n0"] and alone.guard.view()["silent"] == 0


def test_an_order_to_be_off_releases_nothing(alone: Alone) -> None:
    record = alone.add("n0", msgspec.structs.replace(IN_SYNC, order=Order("off", True, "ann", 0.0)))
    alone.guard.changed(record)
    assert record.care == GuardState(ours=True) and not alone.events()
    assert alone.wanted_again == ["n0"]


def test_a_node_that_was_meant_to_go_down_is_up_no_more(alone: Alone) -> None:
    record = alone.add("n0", GuardState(ours=True, up=True, busy=True), state="off")
    alone.guard.lost(record)
    alone.guard.changed(record)
    assert record.care == GuardState(ours=True) and alone.marked() == ["n0"]
    assert alone.guard.view()["silent"] == 0 and not alone.wanted_again


@pytest.mark.parametrize(("power", "state"), [("ON", "off"), ("OFF", "up")])
def test_one_that_is_on_or_meant_to_be_up_stays_as_it_was(
    alone: Alone, power: str, state: str
) -> None:
    record = alone.add("n0", IN_SYNC, power=power, state=state)
    alone.guard.changed(record)
    assert record.care == IN_SYNC and alone.marked() == []


def test_the_next_step_waits_until_the_order_is_written_but_not_for_ever(alone: Alone) -> None:
    record = alone.add("n0", msgspec.structs.replace(IN_SYNC, order=Order("cycle", True, "a", 0.0)))
    alone.guard.written = lambda key: False
    alone.guard.changed(record)
    alone.ask_for(record, "power-on")
    assert alone.why(record) is Why.UNWRITTEN and not alone.permitted
    assert WRITTEN_S == 5.0
    alone.clock.now += 4.5
    alone.guard.tick()
    assert not alone.permitted
    alone.clock.now += 0.5
    alone.guard.tick()
    assert alone.permitted == ["n0 power-on"] and alone.why(record) is None


def test_what_was_written_once_is_waited_for_no_more(alone: Alone) -> None:
    record = alone.add("n0", msgspec.structs.replace(IN_SYNC, order=Order("cycle", True, "a", 0.0)))
    alone.guard.changed(record)
    alone.ask_for(record, "power-on")
    alone.guard.written = lambda key: False
    alone.ask_for(record, "boot-arm")
    assert alone.permitted == ["n0 power-on", "n0 boot-arm"]


def test_nothing_of_a_forgotten_node_is_waited_for(alone: Alone) -> None:
    record = alone.add("n0", msgspec.structs.replace(IN_SYNC, order=Order("cycle", True, "a", 0.0)))
    alone.guard.written = lambda key: False
    alone.guard.changed(record)
    alone.guard.forget(record)
    alone.ask_for(record, "power-on")
    assert alone.permitted == ["n0 power-on"]


# -- what fails


def test_an_order_that_fails_for_good_is_over(alone: Alone) -> None:
    order = Order("cycle", True, "ann", 0.0)
    record = alone.add("n0", msgspec.structs.replace(IN_SYNC, order=order))
    alone.guard.lost(record)
    alone.guard.failed(record, "its BMC is dead", for_good=False)
    assert record.care.order is order and alone.guard.view()["silent"] == 1
    alone.guard.failed(record, "its BMC is dead", for_good=True)
    assert record.care.order is None and alone.marked() == ["n0"]
    assert alone.events() == [
        ("n0", "power.order-failed", "cycle ordered by ann has failed: its BMC is dead")
    ]
    assert alone.wanted_again == ["n0"] and alone.guard.view()["silent"] == 0


def test_a_soft_order_that_fails_stands(alone: Alone) -> None:
    order = Order("off", True, "ann", 0.0, soft=True)
    record = alone.add("n0", msgspec.structs.replace(IN_SYNC, order=order))
    alone.guard.lost(record)
    alone.guard.failed(record, "it goes on", for_good=True)
    assert record.care.order is order and not alone.wanted_again and alone.marked() == []
    ((_, kind, text),) = alone.events()
    assert kind == "power.order-failed" and text.startswith("off, softly, ordered by ann has")
    assert "`layercake power off n0` cuts its power" in text


def test_a_node_that_is_given_up_without_an_order_is_only_silent_no_more(alone: Alone) -> None:
    record = alone.add("n0")
    alone.guard.lost(record)
    alone.guard.failed(record, "no", for_good=True)
    assert not alone.events() and not alone.wanted_again and alone.guard.view()["silent"] == 0


# -- what may begin


def test_a_machine_that_is_switched_on_is_ours(alone: Alone) -> None:
    record = alone.add("n0", GuardState())
    alone.ask_for(record, "power-on")
    assert alone.permitted == ["n0 power-on"]
    assert record.care == GuardState(ours=True) and alone.marked() == ["n0"]
    alone.ask_for(record, "power-on")
    assert alone.marked() == []


def test_a_machine_that_is_ordered_off_is_not_ours_yet(alone: Alone) -> None:
    order = Order("cycle", True, "ann", 0.0)
    record = alone.add("n0", GuardState(order=order), power="ON")
    alone.ask_for(record, "power-off")
    assert alone.permitted == ["n0 power-off"] and not record.care.ours


def test_what_runs_and_is_not_ours_stays(alone: Alone) -> None:
    record = alone.add("n0", GuardState(), power="ON")
    alone.ask_for(record, "power-off")
    alone.ask_for(record, "power-off")
    assert not alone.permitted and not record.care.ours and not alone.taken
    (event,) = alone.store.events
    assert str(event.kind) == "node.found-running" and event.data == {"why": "found_running"}
    assert event.text.startswith("power-off has to wait: it was found running")


def test_the_inventory_may_have_it_taken(alone: Alone) -> None:
    record = alone.add("n0", GuardState(), power="ON", wishes=Wishes(adopt="reset"))
    alone.ask_for(record, "power-off")
    assert alone.taken == [("n0", "the inventory (adopt: reset)")] and not alone.events()


def test_a_change_of_the_reason_is_told_and_no_repetition(alone: Alone) -> None:
    record = alone.add("n0", msgspec.structs.replace(IN_SYNC, busy=True))
    for _ in range(3):
        alone.ask_for(record, "power-on")
    record.care = GuardState()
    record.machine = NodeState(PLANNER.layout.pack({"power": "ON"}), record.machine.goal)
    alone.ask_for(record, "power-off")
    assert [kind for _, kind, _ in alone.events()] == ["remedy.held", "node.found-running"]


def test_slots_are_bounded_and_given_on(alone: Alone) -> None:
    records = [alone.add(f"n{i}", GuardState(ours=True)) for i in range(4)]
    for record in records:
        alone.ask_for(record, "power-on")
    assert alone.permitted == ["n0 power-on", "n1 power-on"]
    assert [alone.why(record) for record in records[2:]] == [Why.QUEUE] * 2
    assert records[2].care.wished == 1000.0 and "n2" in alone.marked()
    assert alone.guard.view()["waiting"] == 2
    alone.clock.now += 30.0
    alone.guard.node_spoke(records[0], "FREE")
    assert alone.permitted[2:] == ["n2 power-on"]
    assert alone.guard.view()["boots"]["usual_s"] == 30.0
    alone.guard.failed(records[1], "no", for_good=False)
    assert alone.permitted[2:] == ["n2 power-on", "n3 power-on"]
    assert alone.guard.view()["boots"]["booting"] == 2


def test_who_comes_while_others_wait_waits_behind_them(alone: Alone) -> None:
    records = [alone.add(f"n{i}", GuardState(ours=True)) for i in range(3)]
    for record in records:
        alone.ask_for(record, "power-on")
    late = alone.add("m0", GuardState(ours=True), domains=("right",))
    alone.ask_for(late, "power-on")
    verdict = alone.guard.why(late)
    assert verdict is not None
    assert verdict.text == "it waits for its turn to boot"
    alone.guard.tick()
    assert alone.permitted[2:] == ["m0 power-on"], "its own rack has room"


def test_who_was_removed_or_wants_something_else_loses_its_turn(alone: Alone) -> None:
    records = [alone.add(f"n{i}", GuardState(ours=True)) for i in range(5)]
    for record in records:
        alone.ask_for(record, "power-on")
    alone.store.remove(records[2])
    records[3].machine = waiting_for(records[3].machine, "boot-arm")
    alone.guard.node_spoke(records[0], "FREE")
    assert alone.permitted[2:] == ["n4 power-on"]
    assert alone.guard.view()["waiting"] == 0 and alone.why(records[3]) is None


def test_a_node_that_is_forgotten_leaves_its_slot(alone: Alone) -> None:
    records = [alone.add(f"n{i}", GuardState(ours=True)) for i in range(3)]
    for record in records:
        alone.ask_for(record, "power-on")
    alone.guard.forget(records[0])
    assert alone.permitted[2:] == ["n2 power-on"]
    alone.guard.lost(records[1])
    alone.guard.forget(records[1])
    assert alone.guard.view()["silent"] == 0 and alone.why(records[1]) is None
    assert alone.guard.view()["boots"]["booting"] == 1


def test_a_node_that_is_forgotten_is_waited_for_no_more(alone: Alone) -> None:
    records = [alone.add(f"n{i}", GuardState(ours=True)) for i in range(4)]
    for record in records:
        alone.ask_for(record, "power-on")
    frozen = alone.add("n4", msgspec.structs.replace(IN_SYNC, freeze=STOP))
    alone.ask_for(frozen, "power-on")
    for record in (records[2], frozen):
        alone.guard.forget(record)
    assert alone.why(records[2]) is None
    assert alone.guard.view()["waiting"] == 1
    assert alone.guard.view()["boots"]["waiting"] == 1


def test_nobody_has_a_turn_while_the_site_is_frozen(alone: Alone) -> None:
    records = [alone.add(f"n{i}", GuardState(ours=True)) for i in range(3)]
    for record in records:
        alone.ask_for(record, "power-on")
    alone.guard.freeze = STOP
    alone.guard.node_spoke(records[0], "FREE")
    alone.guard.tick()
    assert len(alone.permitted) == 2 and alone.why(records[2]) is Why.QUEUE
    alone.guard.freeze = None
    alone.guard.tick()
    assert alone.permitted[2:] == ["n2 power-on"]


def test_a_frozen_node_waits_and_no_other(alone: Alone) -> None:
    frozen = alone.add("n0", msgspec.structs.replace(IN_SYNC, freeze=STOP))
    for record in (frozen, alone.add("n1")):
        alone.ask_for(record, "power-on")
    assert alone.why(frozen) is Why.FROZEN and alone.permitted == ["n1 power-on"]


def test_a_slot_is_free_when_the_goal_is_met_or_nothing_is_to_be_started(alone: Alone) -> None:
    records = [alone.add(f"n{i}", GuardState(ours=True)) for i in range(2)]
    for record in records:
        alone.ask_for(record, "power-on")
    alone.guard.tick()
    assert alone.guard.view()["boots"]["booting"] == 2
    state = PLANNER.layout.pack({"power": "ON", "run": "SYNC", "image": "ACTIVE"})
    records[0].machine = NodeState(state, records[0].machine.goal)
    alone.guard.tick()
    assert alone.guard.view()["boots"]["booting"] == 1
    records[1].held = Hold("it is released", "off")
    alone.guard.tick()
    assert alone.guard.view()["boots"]["booting"] == 0


def test_two_slots_that_get_free_together_are_both_given_on(alone: Alone) -> None:
    records = [alone.add(f"n{i}", GuardState(ours=True)) for i in range(5)]
    for record in records:
        alone.ask_for(record, "power-on")
    alone.clock.now += SETTINGS.inrush_s
    for record in records[:2]:
        record.held = Hold("it is released", "off")
    alone.guard.tick()
    assert alone.permitted[2:] == ["n2 power-on", "n3 power-on"]


def test_so_many_are_switched_on_at_once_and_other_steps_do_not_count() -> None:
    alone = Alone(GuardSettings(power_ons=1, inrush_s=2.0))
    records = [alone.add(f"n{i}", GuardState(ours=True)) for i in range(3)]
    alone.ask_for(records[0], "boot-arm")
    alone.ask_for(records[1], "power-on")
    alone.ask_for(records[2], "power-on")
    assert alone.permitted == ["n0 boot-arm", "n1 power-on"]
    verdict = alone.guard.why(records[2])
    assert verdict is not None and "just switched on" in verdict.text
    alone.clock.now += 2.0
    alone.guard.tick()
    assert alone.permitted[2:] == ["n2 power-on"]


def test_what_a_person_switches_takes_no_slot_and_waits_for_none() -> None:
    alone = Alone(GuardSettings(boots=1, power_ons=1, inrush_s=2.0))
    for name in ("n0", "n1"):
        alone.ask_for(alone.add(name, GuardState(ours=True), planner=BY_HAND), "power-on")
    alone.ask_for(alone.add("n2", GuardState(ours=True)), "power-on")
    alone.ask_for(alone.add("n3", GuardState(ours=True), planner=BY_HAND), "power-on")
    assert alone.permitted == [f"n{number} power-on" for number in range(4)]
    assert alone.guard.view()["boots"]["booting"] == 1


def test_who_waits_and_is_gone_or_wants_something_else_holds_up_nobody(alone: Alone) -> None:
    kept = msgspec.structs.replace(IN_SYNC, maintenance=STOP)
    records = [alone.add(f"n{i}", kept) for i in range(4)]
    for record in records:
        alone.ask_for(record, "power-on")
    alone.store.remove(records[0])
    records[1].machine = waiting_for(records[1].machine, "boot-arm")
    records[2].care = records[3].care = IN_SYNC
    alone.guard.tick()
    assert alone.permitted == ["n2 power-on", "n3 power-on"]
    assert alone.guard.view()["waiting"] == 0


def test_those_that_wait_are_looked_at_some_at_a_time(
    alone: Alone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guarding, "LOOKED_AT", 1)
    kept = msgspec.structs.replace(IN_SYNC, maintenance=STOP)
    records = [alone.add(f"n{i}", kept) for i in range(2)]
    for record in records:
        alone.ask_for(record, "power-on")
    alone.store.remove(records[0])
    records[1].care = IN_SYNC
    alone.guard.tick()
    assert alone.permitted == []
    alone.guard.tick()
    assert alone.permitted == ["n1 power-on"]


# -- witnesses


async def test_witnesses_are_asked_once_and_a_remedy_says_what_they_said(alone: Alone) -> None:
    record = alone.add("n0", IN_SYNC, power="HANG")
    for name in ("n1", "n2", "n3"):
        alone.add(name)
    alone.guard.lost(record)
    alone.clock.now += 20.0
    alone.ask_for(record, "power-reset")
    alone.guard.tick()
    assert alone.why(record) is Why.ASKING
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert alone.asked_at == [("n0", alone.clock.now)]
    assert alone.permitted == ["n0 power-reset"]
    (event,) = alone.store.events
    assert str(event.kind) == "remedy.begun"
    assert event.text.startswith("power-reset: silent for 20 s; its BMC: ON; its agent's TLS port:")


async def test_an_agent_that_answers_holds_a_remedy(alone: Alone) -> None:
    alone.agent = True
    record = alone.add("n0", IN_SYNC, power="HANG")
    for name in ("n1", "n2", "n3"):
        alone.add(name)
    alone.guard.lost(record)
    alone.ask_for(record, "power-reset")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert alone.why(record) is Why.ALIVE and not alone.permitted
    assert [kind for _, kind, _ in alone.events()] == ["remedy.held"]
    alone.guard.node_spoke(record, "FREE")
    assert alone.guard.view()["silent"] == 0


async def test_an_answer_about_a_node_that_was_removed_permits_nothing(alone: Alone) -> None:
    record = alone.add("n0", IN_SYNC, power="HANG")
    alone.ask_for(record, "power-reset")
    alone.guard.forget(record)
    alone.store.remove(record)
    await settled()
    assert alone.asked_at and not alone.permitted


async def test_the_firmware_that_was_seen_before_a_node_came_back_counts_no_more(
    alone: Alone,
) -> None:
    record = alone.add("n0", IN_SYNC, power="HANG")
    for name in ("n1", "n2", "n3"):
        alone.add(name)
    alone.guard.lost(record, firmware=True)
    alone.guard.node_spoke(record, "FREE")
    alone.guard.lost(record)
    alone.ask_for(record, "power-reset")
    assert alone.why(record) is Why.ASKING and not alone.permitted
    await alone.guard.stop()


async def settled() -> None:
    """Lets the witnesses answer."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_witnesses_are_asked_anew_when_what_they_said_is_old(alone: Alone) -> None:
    alone.agent = True
    record = alone.add("n0", IN_SYNC, power="HANG")
    for name in ("n1", "n2", "n3"):
        alone.add(name)
    alone.guard.lost(record)
    alone.ask_for(record, "power-reset")
    await settled()
    alone.clock.now += 16.0
    alone.guard.tick()
    await settled()
    assert len(alone.asked_at) == 2
    alone.guard.tick()
    await settled()
    assert len(alone.asked_at) == 2


async def test_what_was_said_before_a_node_came_back_counts_no_more(alone: Alone) -> None:
    record = alone.add("n0", IN_SYNC, power="HANG")
    for name in ("n1", "n2", "n3"):
        alone.add(name)
    alone.guard.lost(record)
    alone.ask_for(record, "power-reset")
    await settled()
    assert alone.permitted == ["n0 power-reset"]
    alone.guard.node_spoke(record, "FREE")
    alone.guard.lost(record)
    alone.ask_for(record, "power-reset")
    assert alone.why(record) is Why.ASKING and len(alone.permitted) == 1
    await alone.guard.stop()


@pytest.mark.parametrize("joined", [False, True])
async def test_a_step_that_ends_a_session_needs_witnesses(alone: Alone, joined: bool) -> None:
    record = alone.add("n0", IN_SYNC, power="ON", planner=JOINING)
    for name in ("n1", "n2", "n3"):
        alone.add(name)
    record.session = Session(1, b"k" * 32, "boot", 0.0) if joined else None
    alone.ask_for(record, "boot-arm")
    assert alone.permitted == ["n0 boot-arm"]
    alone.ask_for(record, "boot-wait")
    assert alone.permitted[1:] == ([] if joined else ["n0 boot-wait"])
    await alone.guard.stop()


async def test_the_firmware_is_witness_enough(alone: Alone) -> None:
    record = alone.add("n0", IN_SYNC, power="HANG")
    for name in ("n1", "n2", "n3"):
        alone.add(name)
    alone.guard.lost(record, firmware=True)
    alone.ask_for(record, "power-reset")
    assert alone.permitted == ["n0 power-reset"] and not alone.asked_at


async def test_a_guard_that_stops_asks_nobody(alone: Alone) -> None:
    record = alone.add("n0", IN_SYNC, power="HANG")
    alone.ask_for(record, "power-reset")
    await alone.guard.stop()
    assert not alone.asked_at and not alone.permitted


# -- outages


def test_an_outage_is_told_and_shown_and_so_is_its_end(alone: Alone) -> None:
    records = [alone.add(f"n{i}", IN_SYNC, power="ON") for i in range(4)]
    for record in records[:3]:
        alone.guard.lost(record)
    alone.clock.now += 5.0
    alone.guard.tick()
    alone.ask_for(records[0], "power-off")
    alone.ask_for(records[3], "power-on")
    assert alone.why(records[0]) is Why.OUTAGE and alone.permitted == ["n3 power-on"]
    records[0].machine = waiting_for(records[0].machine, "")
    called = [event for event in alone.store.events if str(event.kind) == "outage.called"]
    assert called == [], "it may be one of more than that"
    alone.clock.now += 60.0
    alone.guard.tick()
    (shown,) = alone.guard.view()["outages"]
    assert shown == {
        "domain": "left",
        "where": "domain left",
        "domains": [],
        "seconds": 65.0,
        "silent": 3,
        "members": 4,
        "nodes": ["n0", "n1", "n2"],
    }
    assert alone.guard.view(lambda record: record.name == "n1")["outages"][0]["nodes"] == ["n1"]
    assert alone.guard.view(lambda record: record.name == "n3")["outages"] == []
    called = [event for event in alone.store.events if str(event.kind) == "outage.called"]
    assert [event.data for event in called] == [{"domain": "left", "nodes": 3, "domains": []}]
    assert called[0].text.startswith("an outage of domain left: 3 of 4 nodes fell silent together")
    alone.guard.node_spoke(records[0], "FREE")
    alone.guard.tick()
    alone.clock.now += SETTINGS.outage_settle_s
    alone.guard.tick()
    over = [event for event in alone.store.events if str(event.kind) == "outage.over"]
    assert [event.data for event in over] == [{"domain": "left", "nodes": 2, "domains": []}]
    assert over[0].text == "domain left: over after 3 min; 2 nodes still silent"
    assert alone.guard.view()["outages"] == [] and alone.guard.view()["silent"] == 2


def test_nodes_that_were_in_sync_are_silent_when_the_head_has_listened(alone: Alone) -> None:
    records = [alone.add(f"n{i}", IN_SYNC, power="ON") for i in range(3)]
    alone.add("n9", GuardState(ours=True), power="ON")
    alone.guard.load({}, alone.clock.now + 30.0)
    alone.guard.node_spoke(records[0], "FREE")
    alone.clock.now += 29.0
    alone.guard.tick()
    assert alone.guard.view()["silent"] == 0
    alone.clock.now += 1.0
    alone.guard.tick()
    assert alone.guard.view()["silent"] == 2
    alone.guard.node_spoke(records[1], "FREE")
    alone.clock.now += 1.0
    alone.guard.tick()
    assert alone.guard.view()["silent"] == 1, "it is expected no more"
    alone.guard.failed(records[2], "no", for_good=True)
    alone.clock.now += 1.0
    alone.guard.tick()
    assert alone.guard.view()["silent"] == 0


# -- what people say


def test_a_freeze_and_who_waited_are_found_again(alone: Alone) -> None:
    waiting = alone.add("n0", msgspec.structs.replace(IN_SYNC, wished=7.0))
    alone.add("n1", msgspec.structs.replace(IN_SYNC, wished=7.0), state="off")
    alone.add("n2", msgspec.structs.replace(IN_SYNC, wished=7.0), state="off")
    alone.add("n3")
    alone.guard.load({"guard/freeze": msgspec.json.encode(STOP)}, alone.clock.now)
    assert alone.guard.freeze == STOP and alone.guard.view()["boots"]["waiting"] == 1
    assert waiting.care.wished == 7.0 and alone.marked() == []
    assert alone.guard.view()["frozen"]["reason"] == "new DIMM"


def test_a_maintenance_ends_in_its_time(alone: Alone) -> None:
    stop = Stop("new DIMM", "ann", 900.0, 1060.0)
    record = alone.add("n0", msgspec.structs.replace(IN_SYNC, maintenance=stop))
    endless = alone.add("n1", msgspec.structs.replace(IN_SYNC, maintenance=STOP))
    alone.guard.tick()
    assert record.care.maintenance is stop
    alone.wall.now = 1060.0
    alone.guard.tick()
    assert record.care.maintenance is None and alone.marked() == ["n0"]
    (past,) = record.care.past
    assert (past.ended, past.ended_by) == (1060.0, "its time")
    assert alone.events() == [("n0", "maintenance.ended", "its time is over: new DIMM")]
    assert endless.care.maintenance is STOP


def test_why_a_node_is_to_be_left_alone_is_said(alone: Alone) -> None:
    record = alone.add("n0")
    assert alone.guard.stopped(record) == ""
    record.care = msgspec.structs.replace(IN_SYNC, maintenance=STOP)
    assert alone.guard.stopped(record) == "in maintenance by ann: new DIMM"
    record.held = Hold("it is being released")
    assert alone.guard.stopped(record) == "it is being released"
    record.care = msgspec.structs.replace(IN_SYNC, freeze=Stop("mine", "bob", 1.0))
    assert alone.guard.stopped(record) == "frozen by bob: mine"
    alone.guard.freeze = Stop("audit", "eve", 1.0)
    assert alone.guard.stopped(record) == "frozen by eve: audit"


def test_frozen_and_held_nodes_are_refused_and_ten_are_named(alone: Alone) -> None:
    records = [alone.add(f"n{i:02d}") for i in range(12)]
    alone.guard.refuse_frozen(records, "cycle")
    records[0].care = msgspec.structs.replace(IN_SYNC, maintenance=STOP)
    alone.guard.refuse_frozen(records, "cycle")
    records[3].held = Hold("it is being released")
    with pytest.raises(Refused, match=r"^cannot cycle n03: it is being released") as refused:
        alone.guard.refuse_frozen(records, "cycle")
    assert refused.value.hint.startswith("`layercake thaw` ends a freeze; see `layercake node rel")
    for record in records:
        record.care = msgspec.structs.replace(IN_SYNC, freeze=STOP)
    with pytest.raises(Refused, match=r"n08, n09 and 2 more: frozen by ann: new DIMM"):
        alone.guard.refuse_frozen(records, "cycle")
    with pytest.raises(Refused, match=r"n08, n09 and 1 more: frozen"):
        alone.guard.refuse_frozen(records[:11], "cycle")
    with pytest.raises(Refused, match=r"n08, n09: frozen"):
        alone.guard.refuse_frozen(records[:10], "cycle")


def test_a_site_that_is_well_shows_nothing(alone: Alone) -> None:
    assert alone.guard.view() == {
        "frozen": None,
        "outages": [],
        "waiting": 0,
        "silent": 0,
        "boots": {"booting": 0, "waiting": 0, "usual_s": None, "left_s": None},
    }


# -- by whose word a node is left as it is


@pytest.mark.parametrize(
    ("care", "state", "site", "why"),
    [
        ({}, "up", False, None),
        ({"freeze": STOP}, "up", False, Why.FROZEN),
        ({}, "up", True, Why.FROZEN),
        ({"freeze": STOP}, "off", False, Why.FROZEN),
        ({"freeze": STOP, "maintenance": STOP}, "up", False, Why.FROZEN),
        ({"maintenance": STOP}, "up", False, Why.MAINTENANCE),
        ({"maintenance": STOP}, "off", False, None),
        ({"maintenance": STOP, "released": True}, "up", False, None),
    ],
)
@pytest.mark.parametrize("as_wanted", [False, True])
def test_by_whose_word_a_node_is_left_as_it_is(
    alone: Alone, care: dict[str, Any], state: str, site: bool, why: Why | None, as_wanted: bool
) -> None:
    record = alone.add("n0", GuardState(**care), power="ON" if state == "off" else "OFF")
    record.node = replace(record.node, state=state)
    goal = production.off(PLANNER) if state == "off" else production.up(PLANNER)
    record.machine = NodeState(goal.value if as_wanted else record.machine.state, goal)
    assert goal.met(record.machine.state) is as_wanted
    assert kept_by(record, STOP if site else None) is (None if as_wanted else why)


def test_an_outage_is_the_reason_unless_the_node_may_be_treated(alone: Alone) -> None:
    record = alone.add("n0", power="ON")
    held = Verdict(Why.OUTAGE, "an outage of the site")
    alone.guard.outages.holds = {"id-n0": held}
    assert alone.guard.why(record) is held
    record.care = msgspec.structs.replace(IN_SYNC, released=True)
    assert alone.guard.why(record) is None
    record.care = IN_SYNC
    alone.guard.lost(record, firmware=True)
    assert alone.guard.why(record) is None
