"""A machine's health by its BMC: what it says, what is told of it once, and whom rolls leave
out."""

from __future__ import annotations

from typing import Any

import pytest

from layercake.features.rolls.manager import Rolls
from powerman.health import CRITICAL, OK, WARNING, Health
from powerman.inventory import Bmc
from powerman.ipmi.facts import ipmi_health
from powerman.module import held
from powerman.redfish.facts import redfish_health
from tests.power.conftest import World
from tests.support.world import World as Head


@pytest.mark.parametrize(
    ("status", "health"),
    [
        ("01 00 00", Health(OK)),
        ("00 10 40", Health(OK)),
        ("01", Health()),
        ("", Health()),
        ("01 00 08", Health(WARNING, "its cooling has a fault")),
        ("09 00 04", Health(CRITICAL, "its power supply has a fault, a drive has a fault")),
        ("03 00 00", Health(CRITICAL, "its power supply is overloaded")),
    ],
)
def test_the_faults_of_a_chassis(status: str, health: Health) -> None:
    assert ipmi_health(bytes.fromhex(status)) == health


@pytest.mark.parametrize(
    ("status", "value"),
    [
        ({"HealthRollup": "Critical", "Health": "OK"}, CRITICAL),
        ({"Health": "OK"}, OK),
        ({"Health": "Warning"}, WARNING),
        ({"HealthRollup": None}, "UNKNOWN"),
        ({"Health": "Splendid"}, "UNKNOWN"),
        ("OK", "UNKNOWN"),
        (None, "UNKNOWN"),
    ],
)
def test_the_status_of_a_system(status: Any, value: str) -> None:
    assert redfish_health({"Status": status}).value == value


async def test_what_changes_is_told_once(world: World) -> None:
    driver, told = world.drivers["n1"], []
    for health in (
        Health(OK),
        Health(OK),
        Health(WARNING, "its cooling has a fault"),
        Health(WARNING),
        Health(),
        Health(OK),
    ):
        driver.health = health
        await world.poll(120.0)
        told.append(len(world.events("power.health")))
    assert (
        told == [0, 0, 1, 1, 1, 2] and "its cooling has a fault" in world.events("power.health")[0]
    )
    assert [
        values["bmc-health"] for _, values, _ in world.link.discoveries if "bmc-health" in values
    ] == [OK, WARNING, OK]


async def test_what_the_head_knows_is_no_news_after_a_restart(world: World) -> None:
    await world.service.node_state("n1", {"power": "ON", "bmc-health": CRITICAL})
    world.drivers["n1"].health = Health(CRITICAL, "its power supply has a fault")
    await world.poll(120.0)
    assert not world.events("power.health")


@pytest.mark.parametrize(
    ("policy", "value", "out"),
    [
        ("report", CRITICAL, False),
        ("hold", CRITICAL, True),
        ("hold", WARNING, True),
        ("hold", OK, False),
        ("hold", "UNKNOWN", False),
    ],
)
def test_who_is_left_out(policy: Any, value: str, out: bool) -> None:
    bmc = Bmc(driver="ipmi", address="192.0.2.1", health=policy)
    assert bool(held(bmc, {"bmc-health": value})) is out and held(None, {"bmc-health": value}) == ""


async def test_rolls_leave_out_who_is_not_well(tmp_path: Any) -> None:
    head = Head(tmp_path)
    head.open()
    try:
        bmc = (
            "{driver: ipmi, address: 10.2.0.1, username: admin, password: {env: BMC}, health: hold}"
        )
        entry = f'{{mac: "52:54:00:00:00:10", ip: 10.1.0.10, bmc: {bmc}}}'
        await head.ops.inventory.apply(f"nodes: {{n0: {entry}}}", "rack.yaml", None, False)
        record = head.node("n0")
        assert head.head.part(Rolls).stopped(record) == ""
        head.head.listener.discovered(
            "powerman", record.node.id, {"bmc-health": "CRITICAL"}, "the BMC says so"
        )
        assert record.value(
            "bmc-health"
        ) == "CRITICAL" and "its health is CRITICAL" in head.head.part(Rolls).stopped(record)
    finally:
        await head.close_head()
        head.client.close()
