"""What machines draw and how warm they are: bytes of DCMI, JSON of Redfish, and a line for each
node, by API and command."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from layercake.features.power.views import sensors_view
from layercake.kraken.errors import Unreachable
from powerman.driver import Sensor
from powerman.ipmi.facts import dcmi_draw
from powerman.redfish.sensors import redfish_draw
from tests.support.api import served, token
from tests.support.world import INVENTORY, World


def reading(name: str, value: float | None, unit: str, health: str = "ok") -> dict[str, Any]:
    """As a call answers it."""
    return {"name": name, "value": value, "unit": unit, "health": health}


READINGS = [
    reading("Inlet", 21.0, "°C"),
    reading("CPU1", 71.5, "°C", "warning"),
    reading("Fan2", 3000.0, "RPM"),
    reading("Fan1", 0.0, "RPM", "critical"),
    reading("PSU1", 300.0, "W"),
    reading("Power draw", 412.0, "W"),
    reading("DIMM", None, "°C", "unknown"),
]


@pytest.mark.parametrize(
    ("answer", "watts"),
    [
        (bytes.fromhex("dc 9c01 6400 2003 9001 00e1f505 e8030000 40"), 412.0),
        (bytes.fromhex("dc 9c01 6400 2003 9001 00e1f505 e8030000 00"), None),
        (bytes.fromhex("00 9c01 6400 2003 9001 00e1f505 e8030000 40"), None),
        (b"\xdc", None),
        (b"", None),
    ],
)
def test_the_power_reading_of_dcmi(answer: bytes, watts: float | None) -> None:
    assert dcmi_draw(answer) == (None if watts is None else Sensor("Power draw", watts, "W", "ok"))


@pytest.mark.parametrize(
    ("power", "found"),
    [
        (
            {
                "PowerControl": [{"PowerConsumedWatts": 344, "Status": {"Health": "OK"}}],
                "PowerSupplies": [
                    {
                        "Name": "PSU 1",
                        "LastPowerOutputWatts": 172.5,
                        "Status": {"Health": "Warning"},
                    },
                    {"Name": "PSU 2"},
                ],
            },
            [Sensor("Power draw", 344.0, "W", "ok"), Sensor("PSU 1", 172.5, "W", "warning")],
        ),
        ({}, []),
        ({"PowerControl": "x", "PowerSupplies": [None, 3, {"LastPowerOutputWatts": True}]}, []),
        ({"PowerControl": [{"PowerConsumedWatts": None}]}, []),
        (
            {"PowerControl": [{"PowerConsumedWatts": 5, "Status": "x"}]},
            [Sensor("Power draw", 5.0, "W", "unknown")],
        ),
    ],
)
def test_what_a_chassis_says_of_its_power(power: Mapping[str, Any], found: list[Sensor]) -> None:
    assert redfish_draw(power) == found


def test_a_line_of_all_readings() -> None:
    view = sensors_view(READINGS)
    assert {k: v for k, v in view.items() if k != "readings"} == {
        "watts": 412.0,
        "hottest": 71.5,
        "hottest_name": "CPU1",
        "slowest_fan": 0.0,
        "health": "critical",
    }
    assert [one["name"] for one in view["readings"]][:2] == ["Fan1", "CPU1"] and len(
        view["readings"]
    ) == len(READINGS)
    assert sensors_view([reading("a", 5.0, "W"), reading("b", 7.0, "W")])["watts"] == 7.0
    nothing = sensors_view([])
    assert (nothing["watts"], nothing["hottest"], nothing["slowest_fan"], nothing["health"]) == (
        None,
        None,
        None,
        "unknown",
    )


@pytest.fixture
async def room(tmp_path: Any) -> Any:
    """A head whose n0 has sensors, and whose n1 has a BMC that is silent."""
    world = World(tmp_path)
    world.open()
    await world.ops.inventory.apply(INVENTORY, "rack.yaml", None, False)
    n1 = world.node("n1").node.id

    async def ask(module: str, method: str, params: Mapping[str, Any], timeout: float = 0.0) -> Any:
        assert (module, method) == ("powerman", "power.sensors") and timeout >= 30
        if params["node"] == n1:
            raise Unreachable("cannot reach the BMC at 10.2.0.1:623")
        return READINGS

    world.head.modules.host.call = ask  # type: ignore[method-assign]
    yield world
    await world.close_head()
    world.client.close()


async def test_many_nodes_in_one_answer(room: World) -> None:
    async with served(room.head, local=False) as api:
        async with api.get(
            "/v1/power/sensors?range=@all", headers=await token(room.head, "op", "operator")
        ) as answer:
            n0, n1 = sorted((await answer.json())["sensors"], key=lambda row: str(row["node"]))
        assert (n0["watts"], n0["error"], n1["health"], n1["readings"]) == (
            412.0,
            "",
            "unknown",
            [],
        ) and "10.2.0.1" in n1["error"]
        async with api.get(
            "/v1/power/sensors?range=@all", headers=await token(room.head, "eve", "viewer")
        ) as answer:
            assert "10.2.0.1" not in await answer.text()
        async with api.get(
            "/v1/power/sensors", headers=await token(room.head, "op2", "operator")
        ) as answer:
            assert answer.status == 400


ROWS = [
    {"node": "n0", "error": "", **sensors_view(READINGS)},
    {"node": "n1", "error": "cannot reach the BMC", **sensors_view([])},
    {
        "node": "n2",
        "error": "",
        **sensors_view([reading("Power draw", 1500.0, "W"), reading("\x1b[2JCPU", 80.0, "°C")]),
    },
]


@pytest.mark.parametrize(
    ("order", "names"),
    [
        ("name", ["n0", "n1", "n2"]),
        ("power", ["n2", "n0", "n1"]),
        ("temperature", ["n2", "n0", "n1"]),
        ("health", ["n0", "n2", "n1"]),
    ],
)
def test_the_command_sorts_and_sums(
    run: Callable[..., Any], head: Any, order: str, names: list[str]
) -> None:
    head.answers["GET /v1/power/sensors"] = (200, {"sensors": ROWS})
    result = run("sensors", "n[0-2]", "--sort", order)
    lines = result.out.splitlines()
    assert (
        [line.split()[0] for line in lines[1:4]] == names
        and result.code == 1
        and "\x1b" not in result.out
    )
    assert (
        lines[4] == "2 of 3 nodes draw 1,912 W"
        and "412 W" in result.out
        and "71.5 °C" in result.out
    )
    everything = run("sensors", "n[0-2]", "--all")
    assert "Fan1" in everything.out and "n1: cannot reach the BMC" in everything.err


def test_only_hot_machines_are_shown_and_those_that_do_not_say(
    run: Callable[..., Any], head: Any
) -> None:
    head.answers["GET /v1/power/sensors"] = (200, {"sensors": ROWS})
    hot = run("sensors", "n[0-2]", "--above", "75")
    assert [line.split()[0] for line in hot.out.splitlines()[1:3]] == ["n1", "n2"]
    well = [row for row in ROWS if not row["error"]]
    head.answers["GET /v1/power/sensors"] = (200, {"sensors": well})
    assert "no machine is above 99.5 °C" in run("sensors", "n[0-2]", "--above", "99.5").out


def test_the_earlier_name_of_sensors_is_an_alias(run: Callable[..., Any], head: Any) -> None:
    head.answers["GET /v1/power/sensors"] = (200, {"sensors": ROWS})
    new, old = run("sensors", "n[0-2]", "--all"), run("power", "sensors", "n[0-2]")
    assert (old.code, old.out) == (new.code, new.out)
    assert "deprecated" in old.err and "deprecated" not in new.err
    assert "layercake sensors" in run("power", "sensors", "--help").out
