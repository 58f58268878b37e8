"""How much happens at once: the limits, and what is said of who has to wait."""

from __future__ import annotations

import msgspec
import pytest

from layercake.features.guard.settings import GuardSettings
from layercake.features.guard.turns.slots import Slots


def full(slots: Slots, *domains: str, remedy: bool = False, now: float = 0.0, **of: str) -> str:
    """Why a node of these domains has to wait."""
    return slots.full(domains, remedy=remedy, now=now, **of)


def test_the_limits_without_a_setting() -> None:
    assert msgspec.structs.asdict(GuardSettings()) == {
        "outage_nodes": 3,
        "outage_share": 0.1,
        "outage_window_s": 90.0,
        "outage_settle_s": 120.0,
        "remedies": 2,
        "site_remedies": 8,
        "boots": 32,
        "site_boots": 128,
        "power_ons": 16,
        "site_power_ons": 128,
        "network_boots": 128,
        "inrush_s": 2.0,
        "busy": "hold",
        "patience_s": 300.0,
    }


@pytest.mark.parametrize(
    ("settings", "remedy", "why"),
    [
        (GuardSettings(remedies=1), True, "1 remedy under way in domain left, no more at once"),
        (GuardSettings(site_remedies=1), True, "1 remedy under way at the site, no more at once"),
        (GuardSettings(boots=1), False, "1 boot under way in domain left, no more at once"),
        (GuardSettings(site_boots=1), False, "1 boot under way at the site, no more at once"),
        (
            GuardSettings(network_boots=1),
            False,
            "1 boot under way in network of the head, no more at once",
        ),
        (GuardSettings(power_ons=1), False, "1 node just switched on in domain left"),
        (GuardSettings(site_power_ons=1), False, "1 node just switched on at the site"),
    ],
)
def test_who_has_to_wait_is_told_for_what(settings: GuardSettings, remedy: bool, why: str) -> None:
    slots = Slots(settings)
    assert full(slots, "left", remedy=remedy) == ""
    slots.reserve("n0", ("left",), remedy=remedy)
    slots.switched(("left",), 0.0)
    assert full(slots, "left", remedy=remedy) == why


def test_a_slot_that_is_given_back_is_one_others_not_two() -> None:
    slots = Slots(GuardSettings(boots=2, network_boots=2, remedies=2))
    for name in ("n0", "n1"):
        slots.reserve(name, ("left",), remedy=True, now=5.0)
    assert slots.free("n0") == 5.0 and slots.free("n0") is None
    assert full(slots, "left", remedy=True) == ""
    slots.reserve("n2", ("left",), remedy=True)
    assert full(slots, "left", remedy=True) and full(slots, "left") and full(slots)
    assert list(slots) == ["n1", "n2"] and len(slots) == 2 and "n0" not in slots


def test_who_has_a_slot_already_has_one() -> None:
    slots = Slots(GuardSettings(site_boots=2))
    for _ in range(3):
        slots.reserve("n0", (), remedy=False)
    assert not slots.none_left and full(slots) == ""
    slots.reserve("n1", (), remedy=False)
    assert slots.none_left


def test_networks_have_limits_of_their_own() -> None:
    slots = Slots(GuardSettings(network_boots=1))
    slots.reserve("n0", (), remedy=False, network="a")
    assert full(slots, network="a") == "1 boot under way in network a, no more at once"
    assert full(slots, network="b") == "" and full(slots) == "", "nor is the head's own full"


def test_a_power_supply_has_settled_after_its_time() -> None:
    slots = Slots(GuardSettings(power_ons=1, inrush_s=2.0))
    slots.switched(("left",), 10.0)
    assert full(slots, "left", now=11.9) and full(slots, "left", now=12.0) == ""
