"""The rules of convergence, on the production table with a fake clock."""

from __future__ import annotations

import math

import pytest

from layercake.kraken.converge import (
    NEVER,
    AttemptFailed,
    Await,
    Cancel,
    Changed,
    Cleared,
    Completed,
    DesiredChanged,
    Failed,
    Held,
    NoChain,
    Progress,
    Quarantined,
    Released,
    Start,
    Tick,
)
from layercake.kraken.errors import DeclarationError
from layercake.kraken.mutation import Where, declare
from layercake.kraken.planner import Planner
from layercake.kraken.variables import Variable
from tests.support import production
from tests.support.machine import Machine

UP = {"power": "ON", "boot": "INIT", "run": "SYNC", "image": "ACTIVE", "busy": "FREE"}


@pytest.fixture(scope="module")
def planner() -> Planner:
    """One planner for all; it keeps nothing but caches."""
    return production.planner()


def up(planner: Planner, **state: str) -> Machine:
    """A node that should be up, in the given state."""
    return Machine(planner, production.up(planner), **state)


def test_cold_boot_step_by_step(planner: Planner) -> None:
    m = up(planner)
    assert m.post(Tick()) == (Start("power-discover", 1, 15),)
    m.now += 1
    effects = m.discover(power="OFF")
    assert isinstance(effects[0], Changed)
    assert effects[1:] == (Completed("power-discover", 1.0), Start("power-on", 1, 50))
    assert m.discover(power="ON")[-1] == Start("boot-arm", 1, 10)
    assert m.discover(boot="WAIT")[-1] == Start("boot-wait", 1, 180)
    assert m.discover(power="ON", boot="INIT", run="INIT")[-1] == Start("attach", 1, 30)
    assert m.discover(run="SYNC")[-1] == Await("image-discover", 30)
    assert m.discover(image="IDLE")[-1] == Await("image-start", 310)
    m.discover(image="ACTIVE")
    assert m.active == "" and m.node.wake == NEVER
    assert m.started() == ["power-discover", "power-on", "boot-arm", "boot-wait", "attach"]
    assert not m.of(Cancel) and not m.of(AttemptFailed)


def test_discovery_succeeds_with_any_known_value(planner: Planner) -> None:
    m = up(planner)
    m.post(Tick())
    assert m.discover(power="ON")[1:] == (
        Completed("power-discover", 0.0),
        Start("boot-arm", 1, 10),
    )


def test_met_goal_asks_for_nothing(planner: Planner) -> None:
    m = up(planner, **UP)
    assert m.post(Tick()) == () and m.active == "" and m.node.wake == NEVER


def test_step_that_changes_nothing_returns_the_same_node(planner: Planner) -> None:
    m = up(planner, **UP)
    m.post(Tick())
    before = m.node
    m.now += 5
    assert m.discover(run="SYNC", image="ACTIVE") == () and m.node is before


def test_unexpected_discovery_plans_anew(planner: Planner) -> None:
    m = up(planner, power="OFF")
    m.post(Tick())
    assert m.active == "power-on"
    effects = m.discover(power="ON", run="SYNC", image="ACTIVE")
    assert m.active == "" and effects[-1] == Completed("power-on", 0.0)


def test_unexpected_discovery_cancels_what_no_longer_applies(planner: Planner) -> None:
    m = up(planner, power="ON", boot="WAIT")
    m.post(Tick())
    effects = m.discover(power="OFF")
    assert effects[1:] == (
        Cancel("boot-wait", "it is no longer the next step"),
        Start("power-on", 1, 50),
    )
    assert m.value("boot") == "UNKNOWN"


def test_unrelated_discovery_keeps_what_is_under_way(planner: Planner) -> None:
    m = up(planner, power="ON", boot="INIT", run="SYNC", image="IDLE")
    m.post(Tick())
    before = m.node.active
    assert len(m.discover(busy="FREE")) == 1 and m.node.active == before


def test_effects_discovered_piece_by_piece_keep_the_mutation(planner: Planner) -> None:
    m = up(planner, power="ON", boot="WAIT")
    m.post(Tick())
    m.discover(boot="INIT")
    assert m.active == "boot-wait"
    assert Completed("boot-wait", 0.0) in m.discover(run="INIT")


def test_node_that_attaches_by_itself_ends_boot_wait(planner: Planner) -> None:
    """boot stays WAIT, so boot-wait is not complete; waiting for it any longer would end in the
    reset of a healthy node."""
    m = up(planner, power="ON", boot="WAIT")
    m.post(Tick())
    m.discover(run="SYNC")
    assert m.active == "image-discover"
    m.discover(image="ACTIVE")
    assert m.active == "" and m.node.wake == NEVER


def test_devolve(planner: Planner) -> None:
    m = up(planner, **UP)
    m.post(Tick())
    m.discover(run="ERROR")
    assert m.active == "await-return" and m.value("image") == m.value("busy") == "UNKNOWN"
    m.discover(power="OFF")
    assert m.active == "power-on"


def test_desired_change_in_flight_cancels_what_is_off_the_new_path(planner: Planner) -> None:
    m = up(planner, power="ON", boot="WAIT")
    m.post(Tick())
    effects = m.post(DesiredChanged(production.off(planner)))
    assert effects == (
        Cancel("boot-wait", "it is no longer the next step"),
        Start("power-off", 1, 30),
    )


def test_desired_change_in_flight_keeps_what_is_on_the_new_path(planner: Planner) -> None:
    m = up(planner)
    m.post(Tick())
    before = m.active
    assert m.post(DesiredChanged(production.off(planner))) == () and m.active == before


@pytest.mark.parametrize(
    ("actor", "at_once"), [(Where.NODE, True), (Where.NODE, False), (Where.HEAD, False)]
)
def test_an_image_that_is_wanted_anew_while_it_starts_has_not_failed(
    planner: Planner, actor: Where, at_once: bool
) -> None:
    m = Machine(planner, production.up(planner), actor, **{**UP, "image": "IDLE"})
    m.post(Tick())
    assert m.active == "image-start"
    found = {"image": "UPDATE"}
    m.post(DesiredChanged(m.node.goal, fresh=True, found=found if at_once else {}))
    if not at_once:
        m.discover(**found)
    assert m.active == "image-update" and not m.of(AttemptFailed) and not m.node.attempts
    assert actor is Where.HEAD or m.of(Cancel) == [
        Cancel("image-start", "image became UPDATE instead of ACTIVE")
    ]


def test_an_image_that_goes_astray_with_nothing_else_wanted_has_failed(planner: Planner) -> None:
    m = up(planner, **{**UP, "image": "IDLE"})
    m.post(Tick())
    m.discover(image="UPDATE")
    assert m.of(AttemptFailed) and m.node.attempts == {"image-start": 1}


def test_failed_attempt_backs_off_and_is_tried_again(planner: Planner) -> None:
    m = up(planner, power="OFF")
    m.post(Tick())
    assert m.fail("no route to BMC") == (AttemptFailed("power-on", 1, "no route to BMC", 1005.0),)
    assert m.node.wake == 1005.0 and m.active == ""
    m.now = 1004.9
    assert m.post(Tick()) == ()
    assert m.wake() == (Start("power-on", 2, 50),)
    assert m.fail() == (AttemptFailed("power-on", 2, "it broke", 1015.0),)


def test_another_next_step_does_not_wait_for_the_back_off(planner: Planner) -> None:
    m = up(planner, power="OFF")
    m.post(Tick())
    m.fail()
    assert m.discover(power="ON")[-1] == Start("boot-arm", 1, 10)


def test_failure_of_an_attempt_that_is_over_is_ignored(planner: Planner) -> None:
    m = up(planner, power="OFF")
    m.post(Tick())
    assert (
        m.post(Failed("power-on", 7, "late")) == ()
        and m.post(Failed("power-reset", 1, "other")) == ()
    )
    assert m.active == "power-on"
    m.fail()
    assert m.post(Failed("power-on", 1, "again")) == () and m.node.attempts == {"power-on": 1}


def test_timeout_to_a_value(planner: Planner) -> None:
    m = up(planner, power="ON", boot="WAIT")
    m.post(Tick())
    effects = m.wake()
    assert m.now == 1180.0 and m.value("power") == "HANG" and m.value("boot") == "UNKNOWN"
    assert effects[0] == Cancel("boot-wait", "it has timed out") and isinstance(effects[1], Changed)
    assert effects[2] == AttemptFailed("boot-wait", 1, "boot-wait was not done after 180 s", 1185.0)
    assert m.wake() == (Start("power-reset", 1, 30),)


def test_handler_that_gives_up_as_its_time_runs_out_is_a_timeout(planner: Planner) -> None:
    m = up(planner, power="ON", boot="WAIT")
    m.post(Tick())
    m.now += 179.5
    m.fail("no DHCP from it")
    assert m.value("power") == "HANG" and m.node.last_error == "no DHCP from it"


def test_early_failure_puts_down_no_value(planner: Planner) -> None:
    m = up(planner, power="ON", boot="WAIT")
    m.post(Tick())
    m.now += 20
    m.fail()
    assert m.value("power") == "ON"


@pytest.mark.parametrize(
    ("seconds", "after", "power"), [(20, "kernel sent", "HANG"), (20, "", "ON"), (59.5, "", "HANG")]
)
def test_what_has_stalled_hangs_and_is_started_anew_before_its_time(
    planner: Planner, seconds: float, after: str, power: str
) -> None:
    """A boot that was seen to get on has less time for its next step than for the whole: 60 s here.
    It was tried again without the machine being started anew, which nobody was there to see."""
    m = up(planner, power="ON", boot="WAIT")
    m.post(Tick())
    m.post(Progress("boot-wait", m.now + 60, sooner=True))
    m.now += seconds
    effects = m.post(Failed("boot-wait", 1, "kernel sent 20 s ago", after))
    assert (
        m.value("power") == power
        and m.node.attempts == {"boot-wait": 1}
        and m.node.last_error == "kernel sent 20 s ago"
    )
    assert effects[-1] == AttemptFailed("boot-wait", 1, "kernel sent 20 s ago", m.now + 5.0)
    assert m.wake() == (
        (Start("power-reset", 1, 30),) if power == "HANG" else (Start("boot-wait", 2, 180),)
    )


def test_a_boot_that_stalls_each_time_is_given_up_with_the_reason(planner: Planner) -> None:
    m = up(planner, power="ON", boot="WAIT")
    m.post(Tick())
    for attempt in range(1, 4):
        assert m.active == "boot-wait"
        m.now += 20
        effects = m.post(
            Failed(
                "boot-wait",
                attempt,
                "kernel sent 20 s ago, the initramfs was never fetched",
                "kernel sent",
            )
        )
        if attempt < 3:
            m.wake()
            m.discover(power="OFF")
            m.discover(power="ON")
            m.discover(boot="WAIT")
    assert m.node.quarantine is not None and m.node.quarantine.reason.startswith(
        "kernel sent 20 s ago"
    )
    assert effects[-1] == Quarantined(m.node.quarantine) and m.started().count("power-reset") == 2


def test_timeout_without_a_value_fails_the_attempt(planner: Planner) -> None:
    m = up(planner)
    m.post(Tick())
    m.wake()
    assert m.value("power") == "UNKNOWN" and m.node.attempts == {"power-discover": 1}


def test_success_at_the_last_moment_counts(planner: Planner) -> None:
    m = up(planner, power="OFF")
    m.post(Tick())
    m.now += 25
    assert Completed("power-on", 25.0) in m.discover(power="ON")
    assert not m.of(AttemptFailed)


def test_result_other_than_promised_is_a_failed_attempt(planner: Planner) -> None:
    m = up(planner, power="OFF")
    m.post(Tick())
    m.discover(power="HANG")
    assert (
        m.node.attempts == {"power-on": 1}
        and m.node.last_error == "power became HANG instead of ON"
    )


def test_progress_extends_the_deadline_up_to_three_timeouts(planner: Planner) -> None:
    m = up(planner, power="ON", boot="WAIT")
    m.post(Tick())
    m.post(Progress("boot-wait", 1300.0))
    assert m.node.active is not None and m.node.active.deadline == m.node.wake == 1300.0
    m.post(Progress("boot-wait", 1200.0))
    assert m.node.active.deadline == 1300.0
    m.post(Progress("boot-wait", 9999.0))
    assert m.node.active.deadline == 1540.0
    m.post(Progress("power-on", 99999.0))
    assert m.node.active.deadline == 1540.0


def test_progress_may_bring_the_deadline_forward(planner: Planner) -> None:
    m = up(planner, power="ON", boot="WAIT")
    m.post(Tick())
    m.post(Progress("boot-wait", 1050.0, sooner=True))
    assert m.node.active is not None and m.node.active.deadline == m.node.wake == 1050.0
    m.post(Progress("boot-wait", 9999.0, sooner=True))
    assert m.node.active.deadline == 1540.0


def test_hold_starts_nothing_until_it_ends(planner: Planner) -> None:
    m = up(planner)
    m.post(Held(1040.0))
    assert m.discover(power="ON") and m.active == "" and m.node.wake == 1040.0
    assert m.wake() == (Start("boot-arm", 1, 10),)


def test_hold_can_end_early(planner: Planner) -> None:
    m = up(planner)
    m.post(Held(1040.0))
    assert m.post(Released()) == (Start("power-discover", 1, 15),)


def test_no_chain_is_said_once_and_ends_by_itself(planner: Planner) -> None:
    m = up(planner, **UP | {"image": "UPDATE", "busy": "BUSY"})
    assert m.post(Tick()) == (NoChain(),)
    assert m.post(Tick()) == () and m.node.wake == NEVER
    assert m.discover(busy="FREE")[-1] == Await("image-update", 310)
    assert m.discover(busy="BUSY")[-1] == NoChain() and m.active == ""


def test_no_chain_is_said_again_for_another_goal(planner: Planner) -> None:
    m = up(planner, **UP | {"image": "UPDATE", "busy": "BUSY"})
    m.post(Tick())
    assert m.post(DesiredChanged(production.off(planner))) == (NoChain(),)


def test_discovery_of_two_variables_may_come_in_two_pieces() -> None:
    p = Planner(
        [declare("look", changes={"a": ("UNKNOWN", "OFF"), "b": ("UNKNOWN", "OFF")})],
        [Variable(n, ("UNKNOWN", "OFF", "ON")) for n in "ab"],
    )
    m = Machine(p, p.layout.goal({"b": "OFF"}))
    m.post(Tick())
    m.discover(a="ON")
    assert m.active == "look" and not m.of(Cancel)
    assert Completed("look", 0.0) in m.discover(b="OFF")


def test_head_awaits_the_node_with_a_deadline_and_puts_down_no_value(planner: Planner) -> None:
    m = up(planner, power="ON", boot="INIT", run="SYNC", image="IDLE")
    assert m.post(Tick()) == (Await("image-start", 310),)
    effects = m.wake()
    assert m.now == 1310.0 and m.value("image") == "IDLE"
    assert effects == (
        AttemptFailed("image-start", 1, "image-start was not done after 310 s", 1315.0),
    )


def test_node_awaits_the_head_for_ever(planner: Planner) -> None:
    m = Machine(
        planner,
        production.off(planner),
        Where.NODE,
        power="ON",
        run="SYNC",
        image="ACTIVE",
        busy="FREE",
    )
    assert m.post(Tick()) == (Start("image-stop", 1, 60),)
    assert m.discover(image="IDLE")[-1] == Start("detach", 1, 10)
    assert m.discover(run="INIT")[-1] == Await("power-off", math.inf)
    m.now += 1e6
    assert (
        m.post(Tick()) == ()
        and m.active == "power-off"
        and m.node.wake == NEVER
        and m.node.quarantine is None
    )


def test_node_heals_its_images_by_itself(planner: Planner) -> None:
    m = Machine(planner, production.up(planner), Where.NODE, **UP)
    m.post(Tick())
    m.discover(image="ERROR")
    assert m.active == "image-retry"
    m.discover(image="ACTIVE")
    assert m.active == "" and m.node.wake == NEVER


def test_cleared_starts_over_at_once(planner: Planner) -> None:
    m = up(planner, power="OFF")
    m.post(Tick())
    m.fail()
    assert m.post(Cleared("alice")) == (Start("power-on", 1, 50),)
    assert m.node.attempts == {} and m.node.last_error == ""


def test_mutation_that_is_no_longer_declared_is_dropped(planner: Planner) -> None:
    m = up(planner, power="OFF")
    m.post(Tick())
    m.planner = Planner(
        [x for x in production.MUTATIONS if x.name != "power-on"], production.VARIABLES
    )
    assert m.post(Tick()) == (
        Cancel("power-on", "there is no chain to the goal from here"),
        NoChain(),
    )


def test_discovery_of_an_undeclared_value_is_an_error(planner: Planner) -> None:
    with pytest.raises(DeclarationError, match="MELTED"):
        up(planner).discover(power="MELTED")
