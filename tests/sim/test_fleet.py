"""A simulated fleet and its head: from cold to running, and what is left when it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.launched import launched
from tests.sim.played import all_up, playing, wait_until

pytestmark = pytest.mark.root


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A path that is not there yet, and short enough for a socket."""
    return tmp_path_factory.mktemp("s") / "d"


def test_two_hundred_nodes_come_from_cold_to_running_by_real_joins_and_nothing_is_left(
    place: Path,
) -> None:
    with playing(place, nodes=200) as sim:
        all_up(sim, 200)
        assert sim.count("node.joined", 0) == 200 and sim.count("join.refused", 0) == 0
        one = sim.get("/v1/nodes/r0003n07")["node"]
        assert (
            one["state"]["run"] == "SYNC"
            and one["state"]["image"] == "ACTIVE"
            and one["ip"] == "10.1.0.127"
        )
        # Off, by its agent's leave, and a cycle: what people do to machines reaches the simulated
        # ones.
        sim.api.request("POST", "/v1/nodes/state", {"range": "r0000n[00-09]", "state": "off"})
        sim.until(
            "off", lambda: sim.get("/v1/nodes/r0000n05")["node"]["state"]["power"] == "OFF", 30
        )
        sim.api.request("POST", "/v1/nodes/state", {"range": "r0000n[00-09]", "state": "up"})
        sim.until("up again", lambda: sim.nodes()["converged"] == 200, 60)
        head = int((place / "head.lock").stat().st_ino)
        assert sim.end() == 0
    assert not place.exists() and head
    assert not [
        line for line in Path("/proc/net/unix").read_text().splitlines() if str(place) in line
    ]


def test_machines_that_ask_by_dhcp_boot_by_what_they_are_told(place: Path) -> None:
    with playing(place, nodes=40, dhcp=True) as sim:
        all_up(sim, 40)
        assert sim.count("boot.offer", 0) >= 40


def test_an_image_is_rolled_over_a_simulated_fleet(place: Path) -> None:
    with playing(place, nodes=60) as sim:
        all_up(sim, 60)
        sim.api.request(
            "POST",
            "/v1/rolls",
            {"range": "@all", "image": "two", "batch": "50%", "health_timeout_s": 0.0},
        )
        sim.until("rolled", lambda: sim.get("/v1/rolls")["rolls"][0]["counts"] == {"done": 60}, 60)


@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGTERM, "starting a head"),
        (signal.SIGHUP, "starting a head"),
        (signal.SIGKILL, "starting a head"),
        (signal.SIGINT, "3 simulated nodes"),
        (signal.SIGKILL, "3 simulated nodes"),
    ],
)
def test_a_simulation_that_is_ended_leaves_nothing(
    tmp_path_factory: pytest.TempPathFactory, number: int, moment: str
) -> None:
    with launched(tmp_path_factory.mktemp("s"), "--nodes", "3") as sim:
        sim.line(moment)
        assert sim.end(number) == (-number if number == signal.SIGKILL else 0)
        wait_until(lambda: not sim.left(), 60)
        assert sim.left() == []


def test_a_simulation_whose_own_process_is_killed_leaves_nothing(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with launched(tmp_path_factory.mktemp("s"), "--nodes", "3") as sim:
        sim.line("3 simulated nodes")
        children = (
            Path(f"/proc/{sim.process.pid}/task/{sim.process.pid}/children").read_text().split()
        )
        os.kill(int(children[0]), signal.SIGKILL)
        assert sim.process.wait(60) != 0
        wait_until(lambda: not sim.left(), 60)
        assert sim.left() == []


def test_a_directory_of_somebody_else_is_left_alone(place: Path) -> None:
    place.mkdir()
    (place / "config.yaml").write_text("interface: eth0\n")
    with playing(place, nodes=3) as sim:
        assert sim.process.wait(60) == 2
        sim.until("told", lambda: sim.lines, 10) if not sim.lines else None
    assert "no simulation has made it" in sim.lines[0]
    assert os.listdir(place) == ["config.yaml"]


def test_the_network_of_this_machine_is_refused(place: Path) -> None:
    words = [
        sys.executable,
        "-m",
        "layercake.sim.play",
        json.dumps({"directory": str(place), "nodes": 3}),
    ]
    if Path("/proc/net/dev").read_text().count(":") < 2:
        pytest.skip("this machine has no network beside loopback")
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1 and "cannot simulate here" in done.stderr and not place.exists()
