"""Who boots next: by priority, by who was wanted first, lane by lane, over a restart, and until
when."""

from __future__ import annotations

import random

import pytest

from layercake.features.guard.guard import Guard
from layercake.features.guard.settings import GuardSettings
from layercake.features.guard.turns.queue import Lane, Queue, Rank, Turn
from layercake.features.guard.turns.slots import Slots
from layercake.fleet.guard_state import GuardState
from layercake.fleet.wishes import wishes
from layercake.head.modules import standard
from layercake.inventory.load import load
from layercake.inventory.problems import InventoryErrors
from tests.guard.conftest import LEFT, RIGHT, Rack

LANE, OTHER = Lane(False, "", ("left",)), Lane(False, "", ("right",))


def admitted(queue: Queue, room: int, full: tuple[Lane, ...] = ()) -> list[str]:
    """Who gets a slot, with room for so many; lanes that are full get none."""
    given: list[str] = []

    def may(node: str, lane: Lane) -> Turn:
        if len(given) >= room:
            return Turn.ALL_FULL
        if lane in full:
            return Turn.LANE_FULL
        given.append(node)
        queue.leave(node)
        return Turn.GIVEN

    queue.admit(may)
    return given


def test_priority_goes_first_then_the_older_wish_then_the_name() -> None:
    queue = Queue()
    for name, below, since in (
        ("d", 0, 5.0),
        ("b", 0, 4.0),
        ("a", 0, 4.0),
        ("late", -9, 99.0),
        ("last", 7, 0.0),
    ):
        queue.enqueue(name, LANE if name != "a" else OTHER, Rank(below, since, name), None)
    assert admitted(queue, 2) == ["late", "a"] and len(queue) == 3
    assert admitted(queue, 9) == ["b", "d", "last"] and not len(queue)


def test_a_full_domain_holds_up_no_other_and_a_pass_looks_at_the_first_of_each_lane_only() -> None:
    queue, looked = Queue(), list[str]()
    for number in range(1000):
        queue.enqueue(f"l{number:04d}", LANE, Rank(0, 1.0, f"l{number:04d}"), None)
        queue.enqueue(f"r{number:04d}", OTHER, Rank(0, 2.0, f"r{number:04d}"), None)
    assert admitted(queue, 3, full=(LANE,)) == ["r0000", "r0001", "r0002"]

    def none(node: str, lane: Lane) -> Turn:
        looked.append(node)
        return Turn.LANE_FULL

    queue.admit(none)
    assert looked == ["l0000", "r0003"]
    looked.clear()
    queue.admit(lambda node, lane: [none(node, lane), Turn.ALL_FULL][1])
    assert looked == ["l0000"] and admitted(queue, 1) == ["l0000"]


def test_a_queue_is_like_a_sorted_list_whatever_comes_and_goes() -> None:
    draw, queue, model = random.Random(3), Queue(), dict[str, tuple[Rank, Lane]]()
    lanes = [Lane(bool(n % 2), f"net{n % 3}", (f"rack{n}",)) for n in range(7)]
    for step in range(4000):
        name = f"n{draw.randrange(60)}"
        if draw.random() < 0.6:
            model[name] = (
                Rank(draw.randrange(-2, 3), float(draw.randrange(5)), name),
                draw.choice(lanes),
            )
            queue.enqueue(name, model[name][1], model[name][0], None)
        elif draw.random() < 0.5:
            queue.leave(name)
            model.pop(name, None)
        elif step % 5 == 0:
            full = tuple(draw.sample(lanes, 3))
            wanted = [
                n
                for _, n in sorted(
                    (rank, n) for n, (rank, lane) in model.items() if lane not in full
                )
            ][:4]
            assert admitted(queue, 4, full) == wanted
            for gone in wanted:
                del model[gone]
        assert len(queue) == len(model)


def test_who_is_put_again_keeps_its_place_and_another_rank_moves_it() -> None:
    queue = Queue()
    for name in ("a", "b"):
        queue.enqueue(name, LANE, Rank(0, 1.0, name), None)
        queue.enqueue(name, LANE, Rank(0, 1.0, name), None)
    queue.enqueue("b", LANE, Rank(-1, 1.0, "b"), None)
    assert len(queue) == 2 and admitted(queue, 9) == ["b", "a"]
    queue.leave("a")
    assert admitted(queue, 9) == []


def test_the_end_is_estimated_by_the_limit_that_binds_most() -> None:
    queue, settings = (
        Queue(),
        GuardSettings(
            site_boots=100, boots=10, network_boots=50, site_power_ons=1000, power_ons=1000
        ),
    )
    assert queue.left_s(settings, 0) is None, "nobody knows how long a boot takes"
    for number in range(100):
        queue.enqueue(
            f"n{number}",
            Lane(False, "net", (f"rack{number % 20}",)),
            Rank(0, 0.0, f"n{number}"),
            60.0,
        )
    assert (
        queue.left_s(settings, 0) == 120.0
    )  # 100 in a network of which 50 boot at once: two rounds
    assert queue.left_s(settings, 5) == 180.0  # and those that boot now
    for number in range(100, 140):
        queue.enqueue(f"n{number}", Lane(False, "", ("rack0",)), Rank(0, 0.0, f"n{number}"), 60.0)
    assert queue.left_s(settings, 0) == 300.0  # 45 in a rack of which 10 boot at once
    slow = GuardSettings(
        site_boots=1000, boots=1000, network_boots=1000, site_power_ons=1, inrush_s=10.0
    )
    assert queue.left_s(slow, 0) == 1400.0
    queue.took(30.0)
    queue.enqueue("new", LANE, Rank(0, 0.0, "new"), None)
    assert queue.usual_s() == pytest.approx((140 * 60 + 30) / 141)


def test_a_network_and_the_power_of_the_site_have_limits() -> None:
    slots = Slots(GuardSettings(network_boots=2, site_power_ons=3, inrush_s=2.0))
    for number in range(2):
        slots.reserve(f"n{number}", (), remedy=False, network="a")
    assert "boots under way in network a" in slots.full((), remedy=False, now=0.0, network="a")
    assert not slots.full((), remedy=False, now=0.0, network="b")
    for _ in range(3):
        slots.switched((), 10.0)
    assert "just switched on at the site" in slots.full((), remedy=False, now=11.0, network="b")
    assert not slots.full((), remedy=False, now=12.0, network="b")


def storm(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    """All nodes are off and wanted up, one at a time."""
    monkeypatch.setattr(rack.head.part(Guard), "slots", Slots(GuardSettings(site_boots=1)))
    for name in (*RIGHT, *LEFT):
        rack.node(name).care = GuardState(ours=True)
        rack.clock.now += 1.0
        rack.sees_power(name, "OFF")


async def test_a_storm_goes_by_who_was_wanted_first_and_is_shown(
    rack: Rack, monkeypatch: pytest.MonkeyPatch
) -> None:
    storm(rack, monkeypatch)
    assert rack.started("power-on") == ["m0 power-on"]
    shown = rack.head.part(Guard).view()["boots"]
    assert (shown["booting"], shown["waiting"], shown["left_s"]) == (1, 15, None)
    rack.clock.now += 30.0
    rack.speak("m0")
    assert rack.started("power-on") == ["m0 power-on", "m1 power-on"], (
        "the slot is free: it is the next one's turn at once"
    )
    shown = rack.head.part(Guard).view()["boots"]
    assert (
        shown["waiting"] == 14
        and shown["usual_s"] == pytest.approx(45.0, abs=1.0)
        and shown["left_s"] > 14 * 40.0
    )


async def test_what_was_wanted_first_goes_first_after_a_restart(
    rack: Rack, monkeypatch: pytest.MonkeyPatch
) -> None:
    storm(rack, monkeypatch)
    for name in RIGHT:
        assert rack.node(name).care.wished or name == "m0"
    await rack.restart()
    rack.listen()
    monkeypatch.setattr(rack.head.part(Guard), "slots", Slots(GuardSettings(site_boots=1)))
    assert rack.head.part(Guard).view()["boots"]["waiting"] == 15
    for name in (*LEFT, *RIGHT[1:]):  # the last that were wanted are the first that ask
        rack.sees_power(name, "OFF")
    rack.tick(1)
    assert rack.started("power-on")[-1] == "m1 power-on"


async def test_nobody_has_a_turn_while_the_site_is_frozen_or_itself_is(
    rack: Rack, monkeypatch: pytest.MonkeyPatch
) -> None:
    storm(rack, monkeypatch)
    await rack.ops.care.freeze("m1", "no", "ann")
    rack.speak("m0")
    assert rack.started("power-on")[-1] == "m2 power-on"
    await rack.ops.care.freeze("", "no", "ann")
    rack.speak("m2")
    rack.tick(3)
    assert rack.started("power-on")[-1] == "m2 power-on"
    await rack.ops.care.thaw("", "ann")
    rack.tick(1)
    assert rack.started("power-on")[-1] == "m3 power-on"


@pytest.mark.parametrize("value", ["101", "-101", "high", "true", "1.5"])
def test_a_priority_is_a_whole_number(value: str) -> None:
    text = 'nodes: {n0: {mac: "52:54:00:00:00:10", ip: 10.1.0.10, priority: %s}}'
    with pytest.raises(InventoryErrors, match="inventory") as error:
        load(text % value, parts=standard().parts)
    assert "whole number from -100 to 100" in str(error.value.problems[0].message)
    assert wishes(load(text % "-7", parts=standard().parts).nodes["n0"]).priority == -7
