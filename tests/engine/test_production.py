"""The chains that an operator expects of the production table."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from layercake.features.machines.module import HARDWARE
from layercake.features.thermal.module import THERMAL
from layercake.head import modules
from layercake.kraken.mutation import Mutation
from layercake.kraken.planner import Planner
from minos.disks.mutations import DISK
from powerman.mutations import HEALTH
from tests.support import production

COLD_BOOT = [
    "power-discover",
    "power-on",
    "boot-arm",
    "boot-wait",
    "attach",
    "image-discover",
    "image-start",
]
UP = {"power": "ON", "boot": "INIT", "run": "SYNC", "image": "ACTIVE", "busy": "FREE"}


@pytest.fixture(scope="module")
def planner() -> Planner:
    """One planner for all; it keeps nothing but caches."""
    return production.planner()


def chain(planner: Planner, goal: str, **state: str) -> list[str] | None:
    """Names of the chain to "up" or "off"."""
    wanted = production.up(planner) if goal == "up" else production.off(planner)
    found = planner.chain(planner.layout.pack(state), wanted)
    return None if found is None else [m.name for m in found]


def facts(mutations: Iterable[Mutation]) -> dict[str, tuple[object, ...]]:
    """What decides about the graph."""
    return {m.name: (m.changes, m.requires, m.excludes, m.where) for m in mutations}


def test_the_head_declares_what_this_copy_says() -> None:
    """Of a node with nothing special about it; what some nodes have beside (disks) has tests of its
    own."""
    assert facts(modules.standard().default_planner.mutations) == facts(production.MUTATIONS)


def test_variables_are_those_of_the_services() -> None:
    apart = (
        HARDWARE,
        HEALTH,
        THERMAL,
        DISK,
    )  # nothing changes the first three, and the last only on nodes with disks
    own = {v.name: v.values for v in modules.standard().variables if v not in apart}
    assert own == {v.name: v.values for v in production.VARIABLES}


def test_knowability(planner: Planner) -> None:
    """run needs no boot=WAIT (its discovery changes that itself), image no boot=INIT (nobody
    declared that)."""
    assert planner.graph.knowable == {
        "power": {},
        "boot": {"power": "ON"},
        "run": {"power": "ON"},
        "image": {"run": "SYNC"},
        "busy": {"run": "SYNC"},
    }


@pytest.mark.parametrize("power", ["OFF", "HANG", "UNKNOWN"])
def test_power_loss_makes_all_else_unknown(planner: Planner, power: str) -> None:
    stripped = planner.strip(planner.layout.pack(UP | {"power": power}))
    assert planner.layout.unpack(stripped) == dict.fromkeys(UP, "UNKNOWN") | {"power": power}


def test_cold_boot(planner: Planner) -> None:
    assert chain(planner, "up") == COLD_BOOT


@pytest.mark.parametrize("steps", range(1, len(COLD_BOOT)))
def test_cold_boot_goes_on_from_everywhere_on_its_way(planner: Planner, steps: int) -> None:
    state = 0
    for name in COLD_BOOT[:steps]:
        state = planner.after(name, state)
    assert chain(planner, "up", **planner.layout.unpack(state)) == COLD_BOOT[steps:]


def test_shutdown(planner: Planner) -> None:
    assert chain(planner, "off", **UP) == ["image-stop", "detach", "power-off"]


def test_roll(planner: Planner) -> None:
    assert chain(planner, "up", **UP | {"image": "UPDATE"}) == ["image-update"]


def test_up_without_images_drops_what_runs(planner: Planner) -> None:
    goal = planner.layout.goal({"power": "ON", "run": "SYNC", "image": "IDLE"})
    assert [
        m.name for m in planner.chain(planner.layout.pack(UP | {"image": "UPDATE"}), goal) or ()
    ] == ["image-drop"]


@pytest.mark.parametrize(
    ("goal", "image"), [("up", "UPDATE"), ("off", "ACTIVE"), ("off", "UPDATE")]
)
def test_busy_blocks_what_would_stop_running_work(planner: Planner, goal: str, image: str) -> None:
    assert chain(planner, goal, **UP | {"image": image, "busy": "BUSY"}) is None


def test_busy_does_not_block_a_start(planner: Planner) -> None:
    assert chain(planner, "up", **UP | {"image": "IDLE", "busy": "BUSY"}) == ["image-start"]


def test_a_node_in_sync_is_never_just_powered_off(planner: Planner) -> None:
    for state in planner.graph.states:
        if planner.layout.get(state, "run") == "SYNC":
            assert not planner.applies("power-off", state)


def test_attached_node_that_this_head_did_not_boot_needs_nothing(planner: Planner) -> None:
    """After a restart of the head boot is UNKNOWN; the state is not in the graph, and the goal is
    met all the same."""
    state = {"power": "ON", "run": "SYNC", "image": "ACTIVE", "busy": "FREE"}
    assert planner.layout.pack(state) not in planner.graph
    assert chain(planner, "up", **state) == []
    assert chain(planner, "up", power="ON", run="SYNC") == ["image-discover", "image-start"]
    assert chain(planner, "off", **state) == ["image-stop", "detach", "power-off"]


def test_hang_is_reset(planner: Planner) -> None:
    assert chain(planner, "up", power="HANG") == ["power-reset", *COLD_BOOT[1:]]


def test_silent_node_is_waited_for(planner: Planner) -> None:
    assert chain(planner, "up", power="ON", boot="INIT", run="ERROR") == [
        "await-return",
        "image-discover",
        "image-start",
    ]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"image": "ERROR"}, ["image-retry"]),
        ({"image": "FATAL"}, None),
        ({"image": "IDLE"}, ["image-start"]),
        ({}, ["image-discover", "image-start"]),
    ],
)
def test_image_errors(planner: Planner, state: dict[str, str], expected: list[str] | None) -> None:
    assert chain(planner, "up", power="ON", boot="INIT", run="SYNC", **state) == expected
