"""Who gets a place, who goes for it, and who may knock how often."""

from __future__ import annotations

from layercake.base.quotas import RateLimiter, SlotPool
from tests.support.clock import FakeClock


def test_a_newcomer_gets_a_place_and_the_oldest_of_the_greediest_goes() -> None:
    slots: SlotPool[str] = SlotPool(each=3, most=5)
    assert [slots.add("evil", f"e{n}") for n in range(5)] == [None, None, None, "e0", "e1"]
    assert len(slots) == 3
    assert [slots.add("n0", "a"), slots.add("n1", "b")] == [None, None]
    assert slots.add("n2", "c") == "e2", "it is full: the owner with the most gives one up"
    assert [slots.add(f"x{n}", f"x{n}") for n in range(3)] == ["e3", "e4", "a"], (
        "of equals, who came first"
    )
    slots.remove("n2", "c")
    slots.remove("n2", "c")
    assert len(slots) == 4
    assert sorted(slots.holders()) == ["b", "x0", "x1", "x2"]
    assert [slots.evict() for _ in range(5)] == ["b", "x0", "x1", "x2", None]


def test_who_is_at_work_stays() -> None:
    working = {"a", "b"}
    slots: SlotPool[str] = SlotPool(each=2, most=9, stays=lambda guest: guest in working)
    assert [slots.add("n", "a"), slots.add("n", "b"), slots.add("n", "c")] == [None, None, "c"]
    working.discard("a")
    assert slots.add("n", "d") == "a"
    working |= {"d", "e"}
    assert slots.add("n", "e") == "e", "all are at work: the newest has done the least"


def test_a_pace_has_a_burst_and_then_waits_and_forgives() -> None:
    clock = FakeClock()
    limiter = RateLimiter(per_s=8.0, burst=3.0, clock=clock)
    assert [limiter.allow("x") for _ in range(5)] == [True, True, True, False, False]
    assert limiter.allow("y"), "each has its own"
    clock.now += 0.125
    assert [limiter.allow("x"), limiter.allow("x")] == [True, False]
    limiter.refund("x")
    assert limiter.allow("x"), "what came to something does not count"
    assert (limiter.charge("x"), limiter.charge("x")) == (0.125, 0.25), (
        "who is ahead waits longer each time"
    )
    clock.now += 100.0
    assert [limiter.allow("x") for _ in range(4)] == [True, True, True, False], (
        "it is never more than the burst"
    )


def test_a_pace_forgets_and_does_not_grow() -> None:
    clock = FakeClock()
    limiter = RateLimiter(per_s=1.0, burst=1.0, clock=clock)
    assert limiter.allow("me") and not limiter.allow("me")
    for number in range(RateLimiter.KEYS):
        limiter.allow(str(number))
    assert len(limiter) == RateLimiter.KEYS
