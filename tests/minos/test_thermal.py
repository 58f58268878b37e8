"""How warm a node is by the files of sysfs, what its agent tells of it, and its processors'
governor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minos.agent.thermal.governor import Governors
from minos.agent.thermal.monitor import ThermalMonitor
from minos.agent.thermal.reading import Reading, judge, read
from minos.events import GOVERNOR, THERMAL


def put(directory: Path, files: dict[str, str]) -> str:
    """A sysfs with these files."""
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(f"{text}\n")
    return str(directory)


ZONE = "class/thermal/thermal_zone0"
CHIP = "class/hwmon/hwmon3"
SERVER = {
    f"{ZONE}/type": "x86_pkg_temp",
    f"{ZONE}/temp": "71000",
    f"{ZONE}/trip_point_0_type": "passive",
    f"{ZONE}/trip_point_0_temp": "0",
    "class/thermal/thermal_zone1/type": "acpitz",
    "class/thermal/thermal_zone1/temp": "27800",
    "class/thermal/thermal_zone1/trip_point_0_type": "critical",
    "class/thermal/thermal_zone1/trip_point_0_temp": "105000",
    "class/thermal/thermal_zone1/trip_point_1_type": "passive",
    "class/thermal/thermal_zone1/trip_point_1_temp": "95000",
    "class/thermal/thermal_zone1/trip_point_2_type": "hot",
    "class/thermal/thermal_zone1/trip_point_2_temp": "100000",
    "class/thermal/cooling_device0/type": "Processor",
    f"{CHIP}/name": "coretemp",
    f"{CHIP}/temp1_input": "72000",
    f"{CHIP}/temp1_label": "Package id 0",
    f"{CHIP}/temp1_max": "82000",
    f"{CHIP}/temp1_crit": "92000",
    f"{CHIP}/temp2_input": "70000",
    f"{CHIP}/temp2_crit": "100000",
    f"{CHIP}/temp2_max": "100000",
    f"{CHIP}/fan1_input": "3000",
    "class/hwmon/hwmon4/name": "drivetemp",
    "class/hwmon/hwmon4/temp1_input": "38000",
    "class/hwmon/hwmon4/temp1_max": "60000",
}


def test_what_a_server_says(tmp_path: Path) -> None:
    assert read(put(tmp_path, SERVER)) == [
        Reading("acpitz", 27.8, 95.0, 97.0),
        Reading("coretemp Package id 0", 72.0, 82.0, 89.0),
        Reading("coretemp temp2", 70.0, 90.0, 97.0),
        Reading("drivetemp temp1", 38.0, 60.0, None),
    ]


@pytest.mark.parametrize(
    "files",
    [
        {},
        {f"{CHIP}/temp1_input": "71000"},
        {f"{CHIP}/temp1_input": "", f"{CHIP}/temp1_crit": "90000"},
        {f"{CHIP}/temp1_input": "-128000", f"{CHIP}/temp1_crit": "90000"},
        {f"{CHIP}/temp1_input": "71000", f"{CHIP}/temp1_crit": "0"},
        {f"{CHIP}/temp1_input": "7e4", f"{CHIP}/temp1_crit": "90000"},
        {f"{CHIP}/temp1_input": "71000", f"{CHIP}/temp1_max": "65261850"},
        {
            f"{ZONE}/temp": "71000",
            f"{ZONE}/trip_point_0_type": "active",
            f"{ZONE}/trip_point_0_temp": "50000",
        },
        {f"{ZONE}/temp": "71000", f"{ZONE}/trip_point_0_type": "critical"},
    ],
    ids=str,
)
def test_a_sensor_that_makes_no_sense_says_nothing(tmp_path: Path, files: dict[str, str]) -> None:
    assert read(put(tmp_path, files)) == []


def test_names_of_sensors_are_printable(tmp_path: Path) -> None:
    (found,) = read(
        put(
            tmp_path,
            {
                f"{ZONE}/type": "a\x1b[2J" + "b" * 100,
                f"{ZONE}/temp": "50000",
                f"{ZONE}/trip_point_0_type": "critical",
                f"{ZONE}/trip_point_0_temp": "99000",
            },
        )
    )
    assert found.name.isprintable() and len(found.name) == 60


CPU = Reading("cpu", 0.0, 80.0, 90.0)


@pytest.mark.parametrize(
    ("before", "celsius", "state"),
    [
        ("", 79.9, "NORMAL"),
        ("", 80.0, "HIGH"),
        ("", 90.0, "CRITICAL"),
        ("NORMAL", 80.0, "HIGH"),
        ("HIGH", 77.0, "HIGH"),
        ("HIGH", 76.9, "NORMAL"),
        ("CRITICAL", 87.0, "CRITICAL"),
        ("CRITICAL", 86.9, "HIGH"),
        ("CRITICAL", 77.5, "HIGH"),
        ("CRITICAL", 20.0, "NORMAL"),
        ("NORMAL", 79.0, "NORMAL"),
        ("HIGH", 89.0, "HIGH"),
    ],
)
def test_a_state_is_over_only_some_degrees_below(before: str, celsius: float, state: str) -> None:
    assert judge([CPU._replace(celsius=celsius)], before) == (state, CPU._replace(celsius=celsius))


def test_the_worst_sensor_counts() -> None:
    disk = Reading("disk", 61.0, 60.0, None)
    assert judge([CPU._replace(celsius=79.0), disk], "") == ("HIGH", disk)
    assert judge([disk._replace(celsius=30.0), CPU._replace(celsius=40.0)], "")[1] == CPU._replace(
        celsius=40.0
    )
    assert judge([], "HIGH") == ("", None)


class Node:
    """A node whose processor is as warm as the test wants, and what it tells."""

    def __init__(self, directory: Path) -> None:
        cpus = {
            f"devices/system/cpu/cpufreq/policy{n}/scaling_{what}": word
            for n in range(2)
            for what, word in (
                ("governor", f"own{n}"),
                ("available_governors", f"performance powersave own{n}"),
            )
        }
        self.sys, self.kept = put(directory / "sys", cpus), directory / "governors.json"
        self.celsius, self.told = 50.0, list[tuple[str, str, dict[str, Any]]]()
        self.keeper = self.agent()

    def agent(self) -> ThermalMonitor:
        """An agent that takes over."""
        return ThermalMonitor(
            self._event,
            Governors(self.kept, self.sys),
            lambda: [CPU._replace(celsius=self.celsius)],
        )

    def _event(self, kind: Any, text: str, severity: Any = None, **data: Any) -> None:
        self.told.append((kind.name, text, data))

    def at(self, celsius: float) -> list[str]:
        """What it tells at so many degrees."""
        self.celsius, before = celsius, len(self.told)
        self.keeper.round()
        return [text for _, text, _ in self.told[before:]]

    @property
    def governors(self) -> list[str]:
        """Of its processors."""
        return [
            (Path(self.sys, f"devices/system/cpu/cpufreq/policy{n}/scaling_governor"))
            .read_text()
            .strip()
            for n in range(2)
        ]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node."""
    return Node(tmp_path)


def test_what_is_news_is_told(node: Node) -> None:
    assert node.at(50.0) == ["NORMAL: cpu has 50 °C"]
    assert node.told[0] == (
        THERMAL.name,
        "NORMAL: cpu has 50 °C",
        {"state": "NORMAL", "sensor": "cpu", "celsius": 50.0, "limit": 80.0},
    )
    assert node.at(70.0) == []
    assert node.at(81.0) == ["HIGH: cpu has 81 °C"]
    assert node.at(85.0) == [] and node.at(86.0) == ["HIGH: cpu has 86 °C"]
    assert node.at(91.0) == ["CRITICAL: cpu has 91 °C"] and node.told[-1][2]["limit"] == 90.0
    node.keeper.report_again()
    assert node.at(91.0) == ["CRITICAL: cpu has 91 °C"] and node.at(91.0) == []
    assert node.at(60.0) == ["NORMAL: cpu has 60 °C"]


def test_processors_go_slower_while_it_is_too_warm(node: Node) -> None:
    node.keeper.set_desired({"thermal": {"HIGH": "powersave", "CRITICAL": "powersave"}})
    assert node.at(50.0) == ["NORMAL: cpu has 50 °C"] and node.governors == ["own0", "own1"]
    assert (
        node.at(81.0)[1:] == ["the processors' governor is powersave"]
        and node.governors == ["powersave"] * 2
    )
    assert node.told[-1][0] == GOVERNOR.name and node.at(91.0) == ["CRITICAL: cpu has 91 °C"]
    node.keeper = node.agent()  # another agent has taken over
    node.keeper.set_desired({"thermal": {"HIGH": "powersave", "CRITICAL": "powersave"}})
    assert node.at(91.0) == ["CRITICAL: cpu has 91 °C"]
    assert node.at(50.0)[1:] == ["the processors' governor is as before"] and node.governors == [
        "own0",
        "own1",
    ]
    assert not node.kept.exists() and node.at(50.0) == []


def test_without_the_wish_they_go_back_to_what_they_were(node: Node) -> None:
    node.keeper.set_desired({"thermal": {"HIGH": "powersave"}})
    node.at(81.0)
    node.keeper.set_desired({})
    assert node.at(81.0) == ["the processors' governor is as before"] and node.governors == [
        "own0",
        "own1",
    ]


@pytest.mark.parametrize(
    "said",
    [{"thermal": ["powersave"]}, {"thermal": {"HIGH": 7}}, {"thermal": {"HIGH": "../x"}}, {}],
    ids=str,
)
def test_what_is_no_governor_is_not_set(node: Node, said: dict[str, Any]) -> None:
    node.keeper.set_desired(said)
    assert node.at(81.0) == ["HIGH: cpu has 81 °C"] and node.governors == ["own0", "own1"]


def test_processors_that_have_it_not_are_told_of_once(node: Node, tmp_path: Path) -> None:
    node.keeper.set_desired({"thermal": {"HIGH": "ondemand"}})
    assert node.at(81.0)[1:] == [
        "the processors' governor could not be ondemand: they do not have it"
    ]
    assert node.at(82.0) == [] and node.governors == ["own0", "own1"]
    assert Governors(tmp_path / "x.json", str(tmp_path / "none")).be("powersave") == (
        "the processors have no governor that could be powersave"
    )
