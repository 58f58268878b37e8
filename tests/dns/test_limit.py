"""How often the same answer is given."""

from __future__ import annotations

from pxe.dns.limit import Limiter, Verdict, prefix
from tests.support.clock import FakeClock


def test_beyond_the_rate_every_second_slips_and_the_next_second_is_new(clock: FakeClock) -> None:
    limiter = Limiter(3, clock)
    given = [limiter.may(("10.0.0.1", "n1")) for _ in range(7)]
    assert given == [Verdict.SEND] * 3 + [Verdict.SLIP, Verdict.DROP, Verdict.SLIP, Verdict.DROP]
    assert (
        limiter.may(("10.0.0.1", "n2")) is Verdict.SEND
        and limiter.may(("10.0.0.2", "n1")) is Verdict.SEND
    )
    clock.now += 1
    assert limiter.may(("10.0.0.1", "n1")) is Verdict.SEND and len(limiter) == 1


def test_without_a_rate_nothing_is_counted(clock: FakeClock) -> None:
    limiter = Limiter(0, clock)
    assert {limiter.may("x", 1) for _ in range(100)} == {Verdict.SEND} and not len(limiter)


def test_made_up_addresses_fill_no_memory(clock: FakeClock) -> None:
    limiter = Limiter(3, clock)
    limiter.may("there before")
    for number in range(Limiter.KEYS + 1000):
        limiter.may(number)
    assert (
        len(limiter) == Limiter.KEYS
        and limiter.may("new") is Verdict.DROP
        and limiter.may("there before") is Verdict.SEND
    )


def test_a_network_of_strangers() -> None:
    assert prefix("192.0.2.77") == prefix("192.0.2.1") != prefix("192.0.3.1")
