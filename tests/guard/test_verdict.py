"""Whether a step may begin: pure, so each rule is a row, and the rows before it are stronger."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from layercake.features.guard.outage import Outage, Whole, when
from layercake.features.guard.settings import GuardSettings
from layercake.features.guard.verdict import FRESH_S, Case, judge
from layercake.features.guard.witness import Findings
from layercake.fleet.guard_state import GuardState, Order, Stop, Why
from layercake.fleet.wishes import Wishes

NOW, WALL = 5000.0, 1.8e9
STOP = Stop("new DIMM", "ann", WALL - 300)
ORDER = Order("cycle", True, "ann", NOW)
OUTAGE = Whole(Outage("left", NOW - 60, frozenset({"a", "b", "c", "d"}), 8))
HOLD, NEVER = Wishes(remedy="hold"), Wishes(remedy="never")
DEAF = Findings(NOW, "ON", agent=False, arp=False)
"""Nobody answers but the BMC."""
SETTINGS = GuardSettings()
SILENT = Case(
    "n0", GuardState(ours=True, up=True), Wishes(), ends=True, silent=100.0, findings=DEAF
)
"""A node that was in sync, fell silent, and would be reset."""
CARE = {"ours", "up", "busy", "released", "maintenance", "order"}


def case(**facts: Any) -> Case:
    """The silent node, but for some facts of it or of its care."""
    care = msgspec.structs.replace(SILENT.care, **{k: v for k, v in facts.items() if k in CARE})
    return replace(SILENT, care=care, **{k: v for k, v in facts.items() if k not in CARE})


FREEZE_FIRST = {"freeze": STOP, "order": ORDER, "released": True, "off": True}


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({}, None),
        # people
        (FREEZE_FIRST, Why.FROZEN),
        (
            {
                "order": ORDER,
                "ours": False,
                "maintenance": STOP,
                "outage": OUTAGE,
                "wishes": NEVER,
                "findings": None,
            },
            None,
        ),
        ({"maintenance": STOP}, Why.MAINTENANCE),
        ({"maintenance": STOP, "off": True}, Why.MAINTENANCE),
        ({"maintenance": STOP, "up": False}, Why.MAINTENANCE),
        ({"maintenance": STOP, "starts": False}, None),
        ({"maintenance": STOP, "released": True}, None),
        # whose machine it is
        ({"ours": False}, Why.FOUND_RUNNING),
        ({"ours": False, "starts": False}, Why.FOUND_RUNNING),
        ({"ours": False, "off": True}, None),
        ({"ours": False, "firmware": True}, Why.FOUND_RUNNING),
        ({"ours": False, "released": True}, Why.FOUND_RUNNING),
        # a node that was never in sync, or is on its way down, is treated for nothing
        (
            {
                "up": False,
                "expected": True,
                "outage": OUTAGE,
                "wishes": NEVER,
                "busy": True,
                "findings": None,
            },
            None,
        ),
        (
            {"starts": False, "outage": OUTAGE, "wishes": NEVER, "busy": True, "findings": None},
            None,
        ),
        # the head listens first
        ({"expected": True}, Why.ASKING),
        ({"expected": True, "released": True}, Why.ASKING),
        ({"expected": True, "outage": OUTAGE}, Why.ASKING),
        ({"expected": True, "off": True}, None),
        # outages
        ({"outage": OUTAGE}, Why.OUTAGE),
        ({"outage": OUTAGE, "wishes": NEVER, "busy": True}, Why.OUTAGE),
        ({"outage": OUTAGE, "ends": False}, Why.OUTAGE),
        ({"outage": OUTAGE, "off": True}, None),
        ({"outage": OUTAGE, "firmware": True}, None),
        ({"outage": OUTAGE, "released": True}, None),
        # the inventory, and the node's last word
        ({"wishes": NEVER}, Why.NEVER),
        ({"wishes": HOLD}, Why.HOLD),
        ({"busy": True}, Why.BUSY),
        ({"wishes": NEVER, "busy": True}, Why.NEVER),
        ({"wishes": HOLD, "off": True}, Why.HOLD),
        ({"busy": True, "off": True}, Why.BUSY),
        ({"wishes": NEVER, "busy": True, "released": True}, None),
        # witnesses
        ({"findings": None}, Why.ASKING),
        ({"findings": None, "ends": False}, None),
        ({"findings": None, "off": True}, None),
        ({"findings": None, "firmware": True}, None),
        ({"findings": None, "released": True}, None),
        ({"findings": replace(DEAF, agent=True)}, Why.ALIVE),
        ({"findings": replace(DEAF, agent=True), "silent": 1e6}, Why.ALIVE),
        ({"findings": replace(DEAF, arp=True)}, Why.ALIVE),
        ({"findings": replace(DEAF, arp=True), "silent": SETTINGS.patience_s}, None),
        ({"findings": replace(DEAF, agent=None, arp=None)}, None),
        ({"findings": replace(DEAF, bmc="no answer yet")}, None),
        ({"findings": replace(DEAF, agent=True), "released": True}, None),
    ],
)
def test_who_has_to_wait_and_why(facts: dict[str, Any], why: Why | None) -> None:
    verdict = judge(case(**facts), SETTINGS, NOW, WALL).verdict
    assert (verdict and verdict.why) is why


def test_a_site_may_let_busy_nodes_be_treated() -> None:
    assert judge(case(busy=True), GuardSettings(busy="auto"), NOW, WALL).verdict is None


@pytest.mark.parametrize(
    ("facts", "ask"),
    [
        ({"findings": None}, True),
        ({"findings": DEAF}, False),
        ({"findings": replace(DEAF, at=NOW - FRESH_S)}, False),
        ({"findings": replace(DEAF, at=NOW - FRESH_S - 1)}, True),
        ({"findings": replace(DEAF, at=NOW - FRESH_S - 1, agent=True)}, True),
        ({"findings": None, "outage": OUTAGE}, False),
        ({"findings": None, "wishes": HOLD}, False),
        ({"findings": None, "off": True}, False),
        ({"findings": None, "freeze": STOP}, False),
        ({"findings": None, "ends": False}, False),
    ],
)
def test_witnesses_are_asked_when_it_depends_on_them(facts: dict[str, Any], ask: bool) -> None:
    assert judge(case(**facts), SETTINGS, NOW, WALL).ask is ask


RELEASE = " (hint: `layercake node remedy n0` lets it go on)"


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"freeze": STOP}, "frozen by ann for 5 min: new DIMM"),
        ({"maintenance": STOP}, "in maintenance by ann for 5 min: new DIMM"),
        (
            {"ours": False},
            "it was found running and is not ours (hint: `layercake node take n0` starts it anew)",
        ),
        ({"wishes": HOLD}, "the inventory says remedy: hold" + RELEASE),
        ({"wishes": NEVER}, "the inventory says remedy: never" + RELEASE),
        ({"busy": True}, "the last that it said was that it must not be interrupted" + RELEASE),
        (
            {"outage": OUTAGE},
            "an outage of domain left: 4 of 8 nodes fell silent together, and nothing is done to "
            "them until they are back",
        ),
        ({"expected": True}, "the head has started anew, and listens for it first"),
        ({"findings": None}, "its BMC, its agent's TLS port and ARP are asked whether it is alive"),
        (
            {"findings": replace(DEAF, arp=True)},
            "its kernel answers ARP; it is waited for until it was silent for 300 s; its BMC: ON; "
            "its agent's TLS port: no answer; ARP: answers",
        ),
        (
            {"findings": replace(DEAF, agent=True)},
            "its agent answers at its TLS port, so only datagrams are lost; its BMC: ON; its "
            "agent's TLS port: answers; ARP: no answer",
        ),
    ],
)
def test_the_reason_is_in_words(facts: dict[str, Any], text: str) -> None:
    verdict = judge(case(**facts), SETTINGS, NOW, WALL).verdict
    assert verdict is not None and verdict.text == text


@pytest.mark.parametrize("step", [-20 * 365 * 86400.0, -3600.0, 3600.0, 20 * 365 * 86400.0])
def test_a_step_of_peoples_clock_changes_no_verdict(step: float) -> None:
    for facts in (
        {},
        {"maintenance": STOP},
        {"freeze": STOP},
        {"findings": replace(DEAF, arp=True)},
    ):
        then, now = (
            judge(case(**facts), SETTINGS, NOW, wall).verdict for wall in (WALL, WALL + step)
        )
        assert (then and then.why) is (now and now.why)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5.0, "0 s"),
        (119.4, "119 s"),
        (120.0, "2 min"),
        (7199.0, "120 min"),
        (7200.0, "2 h"),
        (12600.0, "4 h"),
        (270.0, "4 min"),
    ],
)
def test_how_long_ago_is_said_roughly(seconds: float, text: str) -> None:
    assert when(NOW, NOW + seconds) == text
