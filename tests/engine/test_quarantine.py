"""Failure leads somewhere: bounded attempts, a quarantine, and the ways out of it."""

from __future__ import annotations

import pytest

from layercake.kraken import converge
from layercake.kraken.converge import (
    NEVER,
    AttemptFailed,
    Barred,
    Cancel,
    Cleared,
    DesiredChanged,
    Failed,
    Quarantine,
    Quarantined,
    Start,
    Tick,
    Unquarantined,
    rest,
)
from layercake.kraken.mutation import Where
from layercake.kraken.planner import Planner
from layercake.kraken.views.explain import explain
from tests.support import production
from tests.support.machine import Machine

UP = {"power": "ON", "boot": "INIT", "run": "SYNC", "image": "ACTIVE", "busy": "FREE"}


@pytest.fixture(scope="module")
def planner() -> Planner:
    """One planner for all; it keeps nothing but caches."""
    return production.planner()


def used_up(planner: Planner) -> Machine:
    """A node whose power-on has failed three times."""
    m = Machine(planner, production.up(planner), power="OFF")
    m.post(Tick())
    for _ in range(2):
        m.fail("BMC says no")
        m.wake()
    m.fail("BMC says no")
    return m


def boot_in_vain(m: Machine) -> None:
    """Everything works but the boot: the node never joins. Runs until the engine waits for
    boot-wait, and lets that time out."""
    answers = {
        "power-discover": {"power": "ON"},
        "power-on": {"power": "ON"},
        "power-reset": {"power": "OFF"},
        "boot-arm": {"boot": "WAIT"},
    }
    while m.active != "boot-wait":
        if m.active:
            m.discover(**answers[m.active])
        else:
            m.wake()
    m.wake()


@pytest.mark.parametrize(
    ("failures", "seconds"), [(1, 5), (2, 10), (3, 20), (6, 160), (7, 300), (1000, 300)]
)
def test_back_off_doubles_up_to_a_cap(failures: int, seconds: float) -> None:
    assert rest(failures, 0.5) == seconds
    assert rest(failures, 0.0) == seconds / 2 and rest(failures, 0.999) < seconds * 1.5


def test_attempts_are_bounded(planner: Planner) -> None:
    m = used_up(planner)
    assert m.started() == ["power-on"] * 3
    failed, quarantined = m.effects[-2:]
    assert failed == AttemptFailed("power-on", 3, "BMC says no", None)
    assert isinstance(quarantined, Quarantined)
    assert quarantined.quarantine == Quarantine("power-on", "BMC says no", m.now, 3)
    assert m.node.wake == NEVER and m.active == ""


def test_what_is_spared_is_tried_again_and_does_not_count(planner: Planner) -> None:
    m = Machine(planner, production.up(planner), power="OFF")
    m.post(Tick())
    m.fail("BMC says no")
    m.wake()
    active = m.node.active
    assert active is not None and m.node.attempts == {"power-on": 1}
    for rest_s in (5, 10, 20, 40, 80, 80, 80, 80, 80):
        failed = Failed("power-on", active.attempt, "the rack is dark")
        m.node, effects = converge.step(
            planner, Where.HEAD, m.node, failed, m.now, lambda: 0.5, spared=True
        )
        (told,) = effects
        assert isinstance(told, AttemptFailed) and told.retry_at == m.now + rest_s
        m.discover(boot="UNKNOWN")
        assert m.active == "", "news of something else is no reason to try at once"
        m.now += rest_s
        m.post(Tick())
        assert m.active == "power-on"
    assert m.node.attempts["power-on"] == 1 and m.node.quarantine is None
    assert explain(m.planner, m.node, m.now).attempts == {"power-on": 1}
    m.fail("BMC says no")
    m.wake()
    m.fail("BMC says no")
    assert m.node.quarantine is not None, "what comes after it counts again"


def test_quarantined_node_is_left_alone(planner: Planner) -> None:
    m = used_up(planner)
    m.now += 1e6
    assert m.post(Tick()) == () and m.post(DesiredChanged(production.up(planner))) == ()
    assert m.discover(power="UNKNOWN")[1:] == () and m.active == ""


def test_clearing_ends_a_quarantine(planner: Planner) -> None:
    m = used_up(planner)
    assert m.post(Cleared("cleared by alice")) == (
        Unquarantined("cleared by alice"),
        Start("power-on", 1, 50),
    )


def test_a_barred_node_is_left_alone_until_a_person_has_looked(planner: Planner) -> None:
    m = Machine(planner, production.up(planner), power="OFF")
    m.post(Tick())
    assert m.active == "power-on"
    effects = m.post(Barred("two machines claim to be it"))
    assert [type(e) for e in effects] == [Quarantined, Cancel]
    for values in ({"power": "ON"}, UP, {"power": "OFF"}):
        m.discover(**values)
        m.now += 1e4
        m.post(Tick())
        assert m.node.quarantine is not None and m.active == "", "nothing that is seen ends it"
    assert m.post(Cleared("cleared by alice"))[0] == Unquarantined("cleared by alice")
    assert m.active == "power-on"


def test_another_goal_ends_a_quarantine(planner: Planner) -> None:
    m = used_up(planner)
    goal = planner.layout.goal({"power": "ON"})
    assert m.post(DesiredChanged(goal)) == (
        Unquarantined("the desired state has changed"),
        Start("power-on", 1, 50),
    )


def test_same_goal_with_new_meaning_ends_a_quarantine(planner: Planner) -> None:
    m = used_up(planner)
    assert isinstance(m.post(DesiredChanged(m.node.goal, fresh=True))[0], Unquarantined)


def test_what_was_given_up_on_coming_true_ends_a_quarantine(planner: Planner) -> None:
    m = used_up(planner)
    effects = m.discover(power="ON")
    assert effects[1:] == (
        Unquarantined("what power-on is for was discovered after all"),
        Start("boot-arm", 1, 10),
    )
    assert m.node.attempts == {}


def test_any_known_value_ends_the_quarantine_of_a_discovery(planner: Planner) -> None:
    m = Machine(planner, production.up(planner))
    m.post(Tick())
    for _ in range(2):
        m.fail("BMC is silent")
        m.wake()
    m.fail("BMC is silent")
    assert m.node.quarantine is not None and m.node.quarantine.mutation == "power-discover"
    assert Start("power-on", 1, 50) in m.discover(power="OFF")


def test_met_goal_ends_a_quarantine(planner: Planner) -> None:
    m = used_up(planner)
    m.discover(**UP)
    assert m.node.quarantine is None and m.node.wake == NEVER and m.active == ""


def test_attempts_are_counted_through_the_loop_of_resets(planner: Planner) -> None:
    m = Machine(planner, production.up(planner))
    for n in (1, 2, 3):
        boot_in_vain(m)
        assert m.node.attempts == {"boot-wait": n}
    assert m.node.quarantine is not None and m.node.quarantine.mutation == "boot-wait"
    assert m.started().count("power-on") == 2 and m.started().count("power-reset") == 2
    assert m.node.wake == NEVER


def test_node_that_joins_after_all_leaves_quarantine_and_is_not_reset(planner: Planner) -> None:
    """power=HANG was only assumed; evidence of life makes it UNKNOWN, and it is looked up."""
    m = Machine(planner, production.up(planner))
    for _ in range(3):
        boot_in_vain(m)
    m.discover(boot="INIT", run="INIT")
    assert m.value("power") == "UNKNOWN" and m.value("run") == "INIT"
    assert m.node.quarantine is None and m.active == "power-discover"
    m.discover(power="ON")
    assert m.active == "attach" and "power-off" not in m.started()


def test_node_that_is_heard_again_is_not_reset(planner: Planner) -> None:
    m = Machine(planner, production.up(planner), **UP | {"run": "ERROR"})
    m.post(Tick())
    m.wake()
    assert m.value("power") == "HANG"
    m.discover(power="ON", run="SYNC", image="ACTIVE", busy="FREE")
    m.now += 1000
    m.post(Tick())
    assert m.started() == ["await-return"] and m.node.wake == NEVER


def test_observed_power_off_wins_over_a_late_datagram(planner: Planner) -> None:
    m = Machine(planner, production.off(planner), power="OFF")
    m.discover(run="SYNC", image="ACTIVE")
    assert m.value("run") == m.value("image") == "UNKNOWN" and m.active == ""


def test_attempts_reset_when_the_mutation_completes(planner: Planner) -> None:
    m = Machine(planner, production.up(planner), power="OFF")
    m.post(Tick())
    m.fail()
    m.wake()
    m.discover(power="ON")
    assert m.node.attempts == {}


def flap(m: Machine, up_for: float) -> None:
    """A node at its goal stays there for a while, falls silent, is reset and comes back."""
    m.now += up_for
    m.discover(run="ERROR")
    m.wake()
    if m.node.quarantine is None:
        m.discover(power="ON", boot="INIT", run="SYNC", image="ACTIVE", busy="FREE")


def test_failures_are_not_forgotten_by_a_goal_met_in_passing(planner: Planner) -> None:
    m = Machine(planner, production.up(planner), **UP)
    m.post(Tick())
    for _ in range(3):
        flap(m, 30)
    assert m.node.quarantine is not None and m.node.quarantine.mutation == "await-return"


def test_failures_are_forgotten_when_the_goal_is_met_and_stays(planner: Planner) -> None:
    m = Machine(planner, production.up(planner), **UP)
    m.post(Tick())
    for _ in range(6):
        flap(m, converge.STABLE_S)
        assert m.node.attempts == {"await-return": 1}
    assert m.node.quarantine is None


def test_success_that_does_not_last_is_bounded_too(planner: Planner) -> None:
    m = Machine(planner, production.up(planner), power="OFF")
    m.post(Tick())
    for _ in range(1000):
        m.now += 1
        m.discover(power="ON")
        m.now += 1
        m.discover(power="OFF")
    assert m.started().count("power-on") == converge.ROUNDS_LIMIT
    assert m.node.quarantine is not None and "does not stay" in m.node.quarantine.reason
    m.post(Cleared("bob"))
    assert m.active == "power-on"


def test_many_rolls_in_a_row_are_no_loop_when_each_is_wanted(planner: Planner) -> None:
    m = Machine(planner, production.up(planner), Where.NODE, **UP)
    for _ in range(converge.ROUNDS_LIMIT * 2):
        m.post(DesiredChanged(m.node.goal))
        m.discover(image="UPDATE")
        assert m.active == "image-update"
        m.discover(image="ACTIVE")
    assert m.node.quarantine is None


def test_the_head_does_not_count_what_it_only_awaits(planner: Planner) -> None:
    """Rolls that a node does by itself are its business; only its failures are the head's."""
    m = Machine(planner, production.up(planner), **UP)
    for _ in range(converge.ROUNDS_LIMIT * 2):
        m.discover(image="UPDATE")
        m.discover(image="ACTIVE")
    assert m.node.quarantine is None and m.node.goal.met(m.node.state)


def test_assumption_that_was_looked_up_is_none_any_more(planner: Planner) -> None:
    m = Machine(planner, production.up(planner), **UP | {"run": "ERROR"})
    m.post(Tick())
    m.wake()
    assert m.value("power") == "HANG"
    m.discover(power="OFF")
    m.discover(run="SYNC")
    assert m.value("power") == "OFF" and m.value("run") == "UNKNOWN", (
        "a late datagram does not undo what the BMC has said"
    )


def test_quarantine_stops_what_is_under_way(planner: Planner) -> None:
    m = used_up(planner)
    assert not m.of(Cancel) and m.node.active is None


def test_node_that_fails_the_awaited_mutation_is_quarantined_by_the_head(planner: Planner) -> None:
    m = Machine(planner, production.up(planner), **UP | {"image": "IDLE"})
    m.post(Tick())
    while m.node.quarantine is None:
        m.wake()
    assert m.node.quarantine.mutation == "image-start" and m.node.quarantine.attempts == 3
    assert not m.started() and m.value("image") == "IDLE"
    m.discover(image="ACTIVE")
    assert m.node.quarantine is None
