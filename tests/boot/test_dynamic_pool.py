"""The pool of addresses for guests: who gets which, for how long, and what a crowd can do to it."""

from __future__ import annotations

import enum
import gc
from collections import Counter
from collections.abc import Sequence
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pxe.dynamic.pool import ASIDE_S, OF_ONE_MAC, OFFER_S, DynamicClient, Lease, Pool, State

LEASE_S = 600.0


def guest(number: int, id: bytes = b"") -> DynamicClient:
    return DynamicClient(b"\x02\0\0" + number.to_bytes(3, "big"), id)


def leased(pool: Pool, who: DynamicClient, now: float, wanted: int | None = None) -> int | None:
    """A guest asks for an address, and takes what it is offered."""
    offer = pool.offer(who, wanted, now)
    if offer is None:
        return None
    address = offer.address
    assert pool.grant(who, address, LEASE_S, "", now) is not None
    return address


def test_each_guest_gets_an_address_of_its_own_and_keeps_it() -> None:
    pool = Pool(range(100, 104))
    assert [leased(pool, guest(n), 0.0) for n in (1, 2, 1, 2)] == [100, 101, 100, 101]
    assert leased(pool, guest(1), LEASE_S + 1.0) == 100, (
        "the lease was over, and nobody else has it"
    )
    assert leased(pool, guest(1, b"\xffan-id"), LEASE_S + 1.0) == 102, (
        "a client identifier makes another guest of one card"
    )
    assert pool.used(LEASE_S + 1.0) == 2 and pool.size == 4


def test_a_guest_gets_what_it_wants_if_nobody_had_it() -> None:
    pool = Pool(range(100, 104))
    assert leased(pool, guest(1), 0.0, wanted=103) == 103
    assert leased(pool, guest(2), 0.0, wanted=103) == 100
    assert leased(pool, guest(3), 0.0, wanted=9) == 101


def test_addresses_that_nobody_had_go_first_then_those_that_are_over_the_longest() -> None:
    pool = Pool(range(100, 103))
    for n in (1, 2):
        leased(pool, guest(n), float(n))
    assert leased(pool, guest(3), LEASE_S + 5.0) == 102
    assert leased(pool, guest(4), LEASE_S + 5.0) == 100
    assert leased(pool, guest(1), LEASE_S + 5.0) == 101
    assert leased(pool, guest(2), LEASE_S + 5.0) is None, "all are leased"


def test_an_offer_is_held_for_a_while_and_goes_first_in_a_crowd() -> None:
    pool = Pool(range(100, 102))
    assert leased(pool, guest(1), 0.0) == 100
    for n in range(10, 1000):
        offer = pool.offer(guest(n), None, 0.0)
        assert offer is not None and offer.address == 101, "the one that is leased is never offered"
    assert pool.grant(guest(500), 101, LEASE_S, "", 0.0) is not None, (
        "it had the offer before, and nobody has the address"
    )
    assert pool.offer(guest(2000), None, 1.0) is None
    assert pool.of(guest(999), 1.0) is None and not pool.knows(guest(999).mac)


def test_an_offer_that_nobody_takes_leaves_nothing() -> None:
    pool = Pool(range(100, 102))
    pool.offer(guest(1), None, 0.0)
    assert pool.knows(guest(1).mac) and pool.of(guest(1), OFFER_S - 1) is not None
    assert pool.of(guest(1), OFFER_S + 1) is None and not pool.knows(guest(1).mac)
    assert pool.durable_leases() == []


def test_an_address_that_somebody_has_is_not_granted_to_another() -> None:
    pool = Pool(range(100, 103))
    leased(pool, guest(1), 0.0)
    assert pool.grant(guest(2), 100, LEASE_S, "", 1.0) is None
    assert pool.grant(guest(1), 101, LEASE_S, "", 1.0) is None, "it has another"
    assert pool.grant(guest(2), 99, LEASE_S, "", 1.0) is None, "it is not in the pool"
    assert pool.grant(guest(2), 102, LEASE_S, "", 1.0) is not None, (
        "as after a restart between offer and request"
    )


def test_a_lease_that_is_renewed_goes_on() -> None:
    pool = Pool([100])
    leased(pool, guest(1), 0.0)
    for now in range(300, 6000, 300):
        assert pool.grant(guest(1), 100, LEASE_S, "laptop", float(now)) is not None
        assert pool.offer(guest(2), None, float(now)) is None
    assert [(one.address, one.name, one.until) for one in pool.leases(5700.0)] == [
        (100, "laptop", 6300.0)
    ]
    assert pool.leases(6301.0) == [] and leased(pool, guest(2), 6301.0) == 100


def test_who_gives_its_address_back_gets_it_again_unless_it_is_needed() -> None:
    pool = Pool([100])
    leased(pool, guest(1), 0.0)
    assert not pool.release(guest(2), 100, 1.0) and not pool.release(guest(1), 101, 1.0)
    assert pool.release(guest(1), 100, 1.0) and pool.used(1.0) == 0
    assert leased(pool, guest(1), 2.0) == 100
    pool.release(guest(1), 100, 3.0)
    assert leased(pool, guest(2), 3.0) == 100
    assert leased(pool, guest(1), 3.0) is None


def test_an_address_that_something_else_uses_is_nobodys_for_an_hour() -> None:
    pool = Pool(range(100, 108))
    leased(pool, guest(1), 0.0)
    assert not pool.decline(guest(2), 100, 1.0)
    assert pool.decline(guest(1), 100, 1.0)
    assert leased(pool, guest(1), 1.0) == 101
    assert pool.grant(guest(2), 100, LEASE_S, "", 2.0) is None
    assert pool.used(2.0) == 2
    assert pool.grant(guest(2), 100, LEASE_S, "", ASIDE_S + 2.0) is not None


def test_strangers_can_set_only_a_part_of_the_pool_aside() -> None:
    pool = Pool(range(100, 108))
    for n in range(50):
        offer = pool.offer(guest(n), None, 0.0)
        assert offer is not None and pool.decline(guest(n), offer.address, 0.0)
    assert pool.used(1.0) == 2
    assert [leased(pool, guest(n), 1.0) is not None for n in range(100, 107)] == [True] * 6 + [
        False
    ]


def test_one_card_gets_so_many_addresses_and_no_more() -> None:
    pool = Pool(range(100, 200))
    mine = [leased(pool, guest(1, bytes([n])), 0.0) for n in range(20)]
    assert mine == [100, 101, 102, 103] + [None] * 16 and OF_ONE_MAC == 4
    assert pool.grant(guest(1, b"x"), 150, LEASE_S, "", 0.0) is None
    assert leased(pool, guest(1, b"new"), LEASE_S + 1.0) == 100, (
        "it takes over what the card has no use for"
    )
    assert len(pool.durable_leases()) == 4


@pytest.mark.parametrize("until", [700.0, 100.0])
def test_leases_are_taken_over_as_they_were(until: float) -> None:
    pool = Pool(range(100, 103))
    assert pool.restore(Lease(101, guest(1), State.LEASED, until, "laptop", True), 200.0)
    assert not pool.restore(Lease(101, guest(2), State.LEASED, until, "", True), 200.0), (
        "one guest for an address"
    )
    assert not pool.restore(Lease(102, guest(1), State.LEASED, until, "", True), 200.0), (
        "one address for a guest"
    )
    assert not pool.restore(Lease(50, guest(3), State.LEASED, until, "", True), 200.0), (
        "not in the pool"
    )
    assert pool.restore(Lease(100, DynamicClient(b""), State.ASIDE, 300.0), 200.0)
    assert pool.used(200.0) == (2 if until > 200 else 1)
    assert leased(pool, guest(2), 200.0) == 102
    assert leased(pool, guest(1), 200.0) == 101
    assert leased(pool, guest(3), 301.0) == 100


def reachable(root: object) -> list[object]:
    """All objects that are kept by one, classes and what they have left out."""
    found: dict[int, object] = {}
    todo = [root]
    while todo:
        one = todo.pop()
        if id(one) not in found and not isinstance(one, type | ModuleType | enum.Enum):
            found[id(one)] = one
            todo += gc.get_referents(one)
    return list(found.values())


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["offer", "grant", "take", "release", "decline"]),
        st.integers(0, 6),
        st.sampled_from([b"", b"\1", b"\2"]),
        st.integers(98, 106),
        st.sampled_from([0.0, 1.0, 20.0, 400.0, 4000.0]),
    ),
    max_size=60,
)


@given(STEPS, st.integers(1, 5))
def test_whatever_guests_do_no_address_has_two_and_none_is_lost(
    steps: Sequence[tuple[str, int, bytes, int, float]], size: int
) -> None:
    """Beside the pool: who believes to have an address, as the answers say."""
    pool, now = Pool(range(100, 100 + size)), 0.0
    believed: dict[int, tuple[DynamicClient, float]] = {}
    for what, number, id, address, passes in steps:
        now += passes
        who = guest(number, id)
        if what in ("offer", "take"):
            mine = [a for a, (owner, until) in believed.items() if owner == who and until > now]
            offer = pool.offer(who, address, now)
            assert offer is None or 100 <= offer.address < 100 + size
            assert not mine or (offer is not None and [offer.address] == mine), (
                "who has one is offered that"
            )
            others = {a for a, (owner, until) in believed.items() if owner != who and until > now}
            assert offer is None or offer.address not in others, (
                "what is leased is offered to nobody else"
            )
            address = offer.address if offer is not None and what == "take" else 0
        if (
            what in ("grant", "take")
            and address
            and pool.grant(who, address, LEASE_S, "", now) is not None
        ):
            owner, until = believed.get(address, (who, now))
            assert owner == who or until <= now, "an address has two"
            believed[address] = (who, now + LEASE_S)
        if what in ("release", "decline") and getattr(pool, what)(who, address, now):
            believed.pop(address, None)
        assert {one.address: one.guest for one in pool.leases(now)} == {
            a: owner for a, (owner, until) in believed.items() if until > now
        }
        held = reachable(pool)
        leases = [one for one in held if isinstance(one, Lease)]
        assert len({one.address for one in leases}) == len(leases), "each has one place"
        assert (
            max(Counter(one.guest.mac for one in leases if one.guest.mac).values(), default=0)
            <= OF_ONE_MAC
        )
        assert len(held) <= 40 * size + 200, "memory is bounded by the pool"
    now += ASIDE_S + LEASE_S
    crowd = [pool.offer(guest(1000 + number), None, now) for number in range(size + 1)]
    assert {one.address for one in crowd if one} == set(range(100, 100 + size)), "none is lost"
