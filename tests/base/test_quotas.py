"""Who gets a place, who goes for it, and who may knock how often."""

from __future__ import annotations

from layercake.base.places import Pace, Places
from tests.support.clock import FakeClock


def test_a_newcomer_gets_a_place_and_the_oldest_of_the_greediest_goes() -> None:
    places: Places[str] = Places(each=3, most=5)
    assert [places.take("evil", f"e{n}") for n in range(5)] == [None, None, None, "e0", "e1"]
    assert (len(places), places.of("evil")) == (3, 3)
    assert [places.take("n0", "a"), places.take("n1", "b")] == [None, None]
    assert places.take("n2", "c") == "e2", "it is full: the owner with the most gives one up"
    assert [places.take(f"x{n}", f"x{n}") for n in range(3)] == ["e3", "e4", "a"], (
        "of equals, who came first"
    )
    places.leave("n2", "c")
    places.leave("n2", "c")
    assert (len(places), places.of("n2")) == (4, 0)
    assert sorted(places.guests()) == ["b", "x0", "x1", "x2"]
    assert [places.shed() for _ in range(5)] == ["b", "x0", "x1", "x2", None]


def test_who_is_at_work_stays() -> None:
    working = {"a", "b"}
    places: Places[str] = Places(each=2, most=9, stays=lambda guest: guest in working)
    assert [places.take("n", "a"), places.take("n", "b"), places.take("n", "c")] == [
        None,
        None,
        "c",
    ]
    working.discard("a")
    assert places.take("n", "d") == "a"
    working |= {"d", "e"}
    assert places.take("n", "e") == "e", "all are at work: the newest has done the least"


def test_a_pace_has_a_burst_and_then_waits_and_forgives() -> None:
    clock = FakeClock()
    pace = Pace(per_s=8.0, burst=3.0, clock=clock)
    assert [pace.may("x") for _ in range(5)] == [True, True, True, False, False]
    assert pace.may("y"), "each has its own"
    clock.now += 0.125
    assert [pace.may("x"), pace.may("x")] == [True, False]
    pace.refund("x")
    assert pace.may("x"), "what came to something does not count"
    assert (pace.wait("x"), pace.wait("x")) == (0.125, 0.25), "who is ahead waits longer each time"
    clock.now += 100.0
    assert [pace.may("x") for _ in range(4)] == [True, True, True, False], (
        "it is never more than the burst"
    )


def test_a_pace_forgets_and_does_not_grow() -> None:
    clock = FakeClock()
    pace = Pace(per_s=1.0, burst=1.0, clock=clock)
    assert pace.may("me") and not pace.may("me")
    for number in range(Pace.KEYS):
        pace.may(str(number))
    assert len(pace) == Pace.KEYS
