"""Defects of the original that this engine must not have (numbers as in the project's list of
them)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from layercake.kraken.converge import Await, Cleared, Held, NoChain, NodeState, Tick
from layercake.kraken.mutation import Where
from layercake.kraken.planner import Planner
from layercake.kraken.views.explain import explain
from tests.support import production
from tests.support.machine import Machine

UP = {"power": "ON", "boot": "INIT", "run": "SYNC", "image": "ACTIVE", "busy": "FREE"}
DESTRUCTIVE = {"power-off", "power-reset", "image-stop", "image-drop", "detach"}


@pytest.fixture(scope="module")
def planner() -> Planner:
    """One planner for all; it keeps nothing but caches."""
    return production.planner()


def test_defect_1_a_dead_node_heals(planner: Planner) -> None:
    m = Machine(planner, production.up(planner), **UP)
    m.post(Tick())
    m.discover(run="ERROR")
    answers = {
        "power-reset": {"power": "OFF"},
        "power-on": {"power": "ON"},
        "boot-arm": {"boot": "WAIT"},
        "boot-wait": {"boot": "INIT", "run": "INIT"},
        "attach": {"run": "SYNC"},
        "image-discover": {"image": "IDLE"},
        "image-start": {"image": "ACTIVE"},
    }
    for _ in range(20):
        if m.active in answers:
            m.discover(**answers[m.active])
        elif not m.node.goal.met(m.node.state):
            m.wake()
    assert m.node.goal.met(m.node.state)
    assert m.started() == [
        "await-return",
        "power-reset",
        "power-on",
        "boot-arm",
        "boot-wait",
        "attach",
    ]


@pytest.mark.parametrize(
    ("actor", "first"), [(Where.HEAD, Await("image-start", 310)), (Where.NODE, None)]
)
def test_defect_1_fatal_images_recover_by_discovery(
    planner: Planner, actor: Where, first: object
) -> None:
    """Nothing leads out of FATAL by itself; a clear or a new image set makes the node discover IDLE
    or UPDATE."""
    m = Machine(planner, production.up(planner), actor, **UP | {"image": "ERROR"})
    m.post(Tick())
    assert m.discover(image="FATAL")[-1] == NoChain()
    assert "image=FATAL" in explain(planner, m.node, m.now).summary
    m.post(Cleared("alice"))
    effects = m.discover(image="IDLE")
    assert m.active == "image-start" and (first is None or effects[-1] == first)
    m.discover(image="ACTIVE")
    m.discover(image="FATAL")
    m.discover(image="UPDATE")
    assert m.active == "image-update"


@pytest.mark.parametrize(
    "order",
    [
        ["power", "run", "image", "busy"],
        ["run", "image", "busy", "power"],
        ["image", "busy", "run", "power"],
        ["busy", "power", "image", "run"],
    ],
)
@pytest.mark.parametrize("held", [True, False])
def test_defect_2_a_restart_of_the_head_touches_no_healthy_node(
    planner: Planner, order: list[str], held: bool
) -> None:
    """Facts come back one by one, in any order. Without a hold a boot window may open meanwhile;
    that harms nobody."""
    m = Machine(planner, production.up(planner))
    m.node = NodeState.fresh(m.node.goal)
    if held:
        m.post(Held(m.now + 50))
    m.post(Tick())
    for variable in order:
        m.now += 2
        m.discover(**{variable: UP[variable]})
    m.now += 1e5
    m.post(Tick())
    assert m.node.goal.met(m.node.state) and m.active == "" and m.value("busy") == "FREE"
    assert not DESTRUCTIVE & set(m.started())
    assert not (held and m.started())


def test_defect_4_a_node_that_never_does_dhcp_is_not_power_cycled_for_ever(
    planner: Planner,
) -> None:
    m = Machine(planner, production.up(planner))
    answers = {
        "power-discover": {"power": "OFF"},
        "power-on": {"power": "ON"},
        "power-reset": {"power": "OFF"},
        "boot-arm": {"boot": "WAIT"},
    }
    m.post(Tick())
    for _ in range(1000):
        if m.active in answers:
            m.discover(**answers[m.active])
        elif m.node.quarantine is None:
            m.wake()
    assert (
        m.started().count("boot-wait") == 3
        and m.started().count("power-on") == 3
        and m.started().count("power-reset") == 2
    )
    told = explain(planner, m.node, m.now)
    assert told.summary.startswith(
        "in quarantine after 3 attempts at boot-wait: boot-wait was not done after 180 s"
    )
    assert "layercake node clear" in told.summary and told.attempts == {"boot-wait": 3}
    assert [s.name for s in told.chain or ()][:2] == ["power-reset", "power-on"]


def test_defect_4_power_is_what_was_read_back(planner: Planner) -> None:
    """Success of the call is no discovery: without one, the attempt times out."""
    m = Machine(planner, production.up(planner), power="OFF")
    m.post(Tick())
    m.wake()
    assert m.value("power") == "HANG" and m.node.attempts == {"power-on": 1}


def test_defect_9_the_graph_is_the_same_in_every_run() -> None:
    code = (
        "import hashlib\nfrom layercake.kraken.views.draw import dot, svg\nfrom tests.support "
        "import production\n"
        "p = production.planner()\nprint(p.graph.fingerprint(), hashlib.sha256((dot(p) + "
        "svg(p)).encode()).hexdigest())"
    )
    root = Path(__file__).parents[2]
    seen = set()
    for seed in ("1", "2", "3"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)}
        run = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            cwd=root,
            env=environment,
        )
        seen.add(run.stdout)
    assert len(seen) == 1 and len(seen.pop()) == 98
