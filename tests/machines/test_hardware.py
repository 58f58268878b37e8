"""The hardware of nodes against what was accepted of it, where they are against the inventory, and
who else claims to be one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from layercake.features.guard.guard import Guard
from layercake.features.machines.hardware import whereabouts
from layercake.features.machines.hardware.drift import differences
from layercake.features.machines.hardware.report import Report, read
from layercake.features.machines.manager import Machines
from layercake.features.machines.table import key_of_node
from layercake.features.machines.views import hardware_of
from layercake.features.nodes.explain import explain_text, explain_view
from layercake.features.rolls.manager import Rolls
from layercake.inventory.problems import InventoryErrors
from layercake.kraken.errors import OperationFailed
from minos.placeholders import is_placeholder
from tests.machines.test_discovery import FULL, Stranger, report
from tests.support.refusing import refusing
from tests.support.world import World

PLACED = """
nodes:
  n0: {mac: "52:54:00:00:00:10", ip: 10.1.0.10, place: {switch: SW1, port: 7}, hardware: hold}
  n1: {mac: "52:54:00:00:00:11", ip: 10.1.0.11, serial: SN-9}
"""


def without(**changes: Any) -> dict[str, Any]:
    return {**FULL, **changes}


@pytest.mark.parametrize(
    ("now", "line"),
    [
        (without(dimms=FULL["dimms"][:1]), "the DIMM in A2 is gone (4096 MB)"),
        (
            without(dimms=[FULL["dimms"][0], {"slot": "A2", "mb": 2048}]),
            "the DIMM in A2 has 2048 MB, it had 4096 MB",
        ),
        (
            without(disks=[{**FULL["disks"][0], "smart": "failing"}]),
            "disk sda (D 1) says that it is failing",
        ),
        (without(disks=[]), "disk D 1 is gone"),
        (without(disks=[{**FULL["disks"][0], "serial": "2"}]), "disk D 1 is gone"),
        (
            without(cards=[{**FULL["cards"][0], "mbps": 1000}]),
            "network card 02:00:00:00:00:01 has a link of 1000 Mb/s, it had 10000 Mb/s",
        ),
        (
            without(cards=[{**FULL["cards"][0], "link": False, "mbps": 0}]),
            "network card 02:00:00:00:00:01 has no link any more",
        ),
        (without(cards=[]), "network card 02:00:00:00:00:01 is gone"),
        (without(cpu={"logical": 2}), "it has 2 processors, it had 4"),
    ],
)
def test_what_differs(now: dict[str, Any], line: str) -> None:
    assert differences(read(FULL), read(now)) == (line,)
    assert differences(read(FULL), read(FULL)) == ()


MADE = {"system": {"serial": "S1"}, "board": {"serial": "B1"}, "chassis": {"serial": "C1"}}


@pytest.mark.parametrize(
    ("part", "line"),
    [
        ("system", "its serial number is X9, it was S1"),
        ("board", "its board's serial number is X9, it was B1"),
        ("chassis", "its case's serial number is X9, it was C1"),
    ],
)
def test_every_serial_number_of_the_machine_is_compared(part: str, line: str) -> None:
    was, now = read(without(smbios=MADE)), read(without(smbios={**MADE, part: {"serial": "X9"}}))
    assert differences(was, now) == (line,)


def test_a_dimm_is_known_by_its_serial_number() -> None:
    def fitted(*serials: str) -> Report:
        return read(
            without(dimms=[{"slot": f"A{n}", "mb": 4, "serial": s} for n, s in enumerate(serials)])
        )

    assert differences(fitted("D1", "D2"), fitted("D1")) == (
        "the DIMM in A1 is gone (4 MB, serial number D2)",
    )
    assert differences(fitted("D1", "D2"), fitted("D1", "D3")) == (
        "the DIMM in A1 is another: its serial number is D3, it was D2",
    )
    assert differences(fitted("D1", ""), fitted("D1", "D3")) == (), "nothing was known of it"


@pytest.mark.parametrize(
    "card",
    [
        {"driver": "cdc_ether"},
        {"slot": "1-3.2:2.0"},
        {"driver": "rndis_host"},
        {"kind": "ethernet"},
    ],
)
def test_a_usb_card_with_another_address_at_each_boot_is_no_drift(card: dict[str, Any]) -> None:
    was, now = (
        read(
            {**FULL, "cards": [*FULL["cards"], {"name": "usb0", "mac": mac, "link": True, **card}]}
        )
        for mac in ("be:3a:f2:b6:05:9f", "be:3a:f2:b6:05:a0")
    )
    assert differences(was, now) == ()
    assert "be:3a:f2:b6:05:9f" not in whereabouts.macs(was)


@pytest.mark.parametrize(
    "serial",
    [
        "To Be Filled By O.E.M.",
        "To be filled by O.E.M",
        "0x00000000",
        "0000000000",
        "0123456789",
        "Default string",
        "XXXXXXXXXX",
        "Not Specified",
        "03000200-0400-0500-0006-000700080009",
        "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
        " . ",
    ],
)
def test_what_many_boards_have_identifies_none(serial: str) -> None:
    assert is_placeholder(serial)
    assert whereabouts.serial(serial) is None


@pytest.mark.parametrize("serial", ["SN-5", "7C34K02", "S3Z8NB0K123456", "2M210000", "PF1"])
def test_what_one_board_has_identifies_it(serial: str) -> None:
    assert not is_placeholder(serial)


def test_what_could_not_be_looked_at_is_not_gone() -> None:
    blind = {
        "failed": {"smbios": "x", "disks": "x", "cards": "x", "pci": "x", "memory": "x", "cpu": "x"}
    }
    lines = differences(read({**FULL, "smbios": {}}), read(blind))
    assert lines == ()


async def survey(world: World, name: str, found: dict[str, Any]) -> None:
    await world.head.part(Machines).survey(world.node(name), found)
    world.tick(0.0)


def explained(world: World, name: str) -> str:
    record = world.node(name)
    return explain_text(
        explain_view(
            record,
            world.clock(),
            world.head.part(Guard),
            troubles={"hardware": hardware_of(record, world.head.part(Machines))},
        )
    )


async def test_drift_is_a_variable_with_a_policy(world: World) -> None:
    await world.ops.inventory.apply(PLACED, "x.yaml", None, False)
    assert world.node("n0").value("hardware") == "UNKNOWN"
    await survey(world, "n0", FULL)
    assert (
        world.node("n0").value("hardware") == "OK"
        and world.head.part(Rolls).stopped(world.node("n0")) == ""
    )
    for name in ("n0", "n1"):
        await survey(world, name, FULL)
        await survey(world, name, without(dimms=FULL["dimms"][:1]))
        assert world.node(name).value("hardware") == "DRIFTED" and "machine.drifted" in world.kinds(
            name
        )
    assert "the DIMM in A2 is gone" in world.head.part(Rolls).stopped(world.node("n0"))
    assert world.head.part(Rolls).stopped(world.node("n1")) == "", "of that one it is reported"
    assert "machine: differs: the DIMM in A2 is gone" in explained(world, "n0")
    await world.restart()
    world.tick(0.0)
    assert world.node("n0").value("hardware") == "DRIFTED"
    with (
        refusing(world.head.database, "machines", f"NEW.key = '{key_of_node(world.node('n1'))}'"),
        pytest.raises(OperationFailed),
    ):
        await world.ops.machines.accept("n[0-1]", "me")
    world.tick(0.0)
    assert world.node("n0").value("hardware") == "DRIFTED", "of all of them or none"
    assert await world.ops.machines.accept("n0", "me") == ["n0"]
    world.tick(0.0)
    assert (
        world.node("n0").value("hardware") == "OK"
        and world.head.part(Rolls).stopped(world.node("n0")) == ""
    )
    await survey(world, "n0", FULL)
    assert world.node("n0").value("hardware") == "OK", "more than was accepted is no drift"


async def test_a_moved_node_is_shown_as_moved(world: World) -> None:
    await world.ops.inventory.apply(PLACED, "x.yaml", None, False)
    await survey(world, "n0", report(port="7"))
    assert world.head.part(Machines).elsewhere(world.node("n0")) == []
    await survey(world, "n0", report(port="9"))
    assert "machine.moved" in world.kinds("n0")
    assert "machine: moved: it has port sw1 9, the inventory says sw1 7" in explained(world, "n0")


async def test_a_replaced_board_is_recognised_and_two_are_not(world: World) -> None:
    await world.ops.inventory.apply(PLACED, "x.yaml", None, False)
    await Stranger(world).says(report("SN-2", "7"))
    assert "machine.claims" in world.kinds("n0") and "machine.claims" not in world.kinds("n1")
    text = explained(world, "n0")
    assert (
        "02:00:00:00:00:01 at 10.1.0.200, which no inventory knows, has port sw1 7 of this node"
        in text
    )
    assert "layercake node set n0 mac=02:00:00:00:00:01" in text
    await Stranger(world, "02:00:00:00:00:02", "10.1.0.201").says(report("SN-3", "7", cards=[]))
    assert "2 machines claim to be it: none of them is taken for it" in explained(world, "n0")


async def test_a_stranger_that_claims_a_living_node_s_serial_number(world: World) -> None:
    await world.ops.inventory.apply(PLACED, "x.yaml", None, False)
    await survey(
        world, "n1", without(smbios={"system": {"serial": "SN-9"}}, neighbours={}, cards=[])
    )
    await Stranger(world).says(report("SN-9", "3"))
    assert "02:00:00:00:00:01 has serial sn-9 too" in explained(world, "n1")
    assert world.node("n1").node.macs == ("52:54:00:00:00:11",)
    assert "machine.disputed" in [e.kind for e in world.head.store.events]


@pytest.mark.parametrize(
    "line",
    [
        "serial: To be filled by O.E.M.",
        "place: {switch: sw1}",
        "place: sw1",
        "place: {switch: a, port: 1, x: 2}",
        "hardware: never",
    ],
)
async def test_mistakes_in_the_inventory(world: World, line: str) -> None:
    with pytest.raises(InventoryErrors):
        await world.ops.inventory.plan(
            f'nodes:\n  n0: {{mac: "52:54:00:00:00:10", ip: 10.1.0.10, {line}}}\n', "x.yaml"
        )


async def test_no_two_nodes_are_in_one_place(world: World) -> None:
    twice = PLACED.replace("serial: SN-9", "place: {switch: sw1.site, port: '7'}")
    with pytest.raises(InventoryErrors, match="place"):
        await world.ops.inventory.plan(twice, "x.yaml")


async def test_the_survey_of_a_node_that_was_added_again_is_kept(world: World) -> None:
    """Its old row goes with the next that is written, before its own new one."""
    await world.ops.inventory.apply(PLACED, "x.yaml", None, True)
    await survey(world, "n0", FULL)
    only_n1 = "".join(line for line in PLACED.splitlines(keepends=True) if "n0:" not in line)
    await world.ops.inventory.apply(only_n1, "x.yaml", None, True)
    await world.ops.inventory.apply(PLACED, "x.yaml", None, True)
    await asyncio.gather(*(survey(world, name, FULL) for name in ("n1", "n0")))
    await world.restart()
    found = world.head.part(Machines)
    assert all(found.of(world.node(name)) is not None for name in ("n0", "n1"))
