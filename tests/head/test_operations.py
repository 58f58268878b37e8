"""What people ask for: everything is checked first, nothing is lost, and nothing destructive
happens by default."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from imageapi.store.store import ImageStore
from layercake.features.inventory.reading import Readers
from layercake.inventory.problems import InventoryErrors
from layercake.kraken.converge import Discovered
from layercake.kraken.errors import InputError, Refused
from layercake.moduleapi.sandboxed_job import SandboxedJob
from tests.support.world import INVENTORY, World

THIRD = INVENTORY + '  n2: {mac: "52:54:00:00:00:12", ip: 10.1.0.12}\n'


async def test_a_plan_shows_the_chain_and_changes_nothing(world: World) -> None:
    plan = await world.ops.inventory.plan(THIRD, "x.yaml")
    assert [(c["node"], c["action"]) for c in plan["changes"]] == [("n2", "add")]
    assert plan["plans"][0]["chain"][:3] == ["power-discover", "power-on", "boot-arm"]
    assert world.head.store.names == ["n0", "n1"]


async def test_an_inventory_planned_over_another_state_is_refused(world: World) -> None:
    digest = (await world.ops.inventory.plan(THIRD, "x.yaml"))["digest"]
    await world.ops.nodes.set_state("n0", "off", False)
    with pytest.raises(Refused, match="has changed since"):
        await world.ops.inventory.apply(THIRD, "x.yaml", digest, False)
    assert world.head.store.names == ["n0", "n1"]


async def test_an_inventory_with_mistakes_changes_nothing(world: World) -> None:
    with pytest.raises(InventoryErrors) as caught:
        await world.ops.inventory.apply(
            "nodes: {n0: {mac: zz, ip: 300.0.0.1}}", "x.yaml", None, True
        )
    assert len(caught.value.problems) >= 2
    assert world.head.store.names == ["n0", "n1"]


async def test_a_made_up_bmc_is_for_a_simulation_alone(tmp_path: Path) -> None:
    text = INVENTORY.replace(
        "ip: 10.1.0.10", "ip: 10.1.0.10, bmc: {driver: sim, address: 10.2.0.9}"
    )
    for simulated in (False, True):
        directory = tmp_path / str(simulated)
        directory.mkdir()
        world = World(directory, simulated=simulated)
        world.open()
        try:
            if simulated:
                assert (await world.ops.inventory.plan(text, "rack.yaml"))["changes"]
                continue
            with pytest.raises(InventoryErrors) as caught:
                await world.ops.inventory.plan(text, "rack.yaml")
            assert "driver: sim is for the nodes of `layercake sim`" in str(caught.value)
            assert [p.line for p in caught.value.problems] == [
                1 + text.split("driver: sim")[0].count("\n")
            ]
        finally:
            await world.close_head()
            world.client.close()


async def test_defect_3_deleting_a_node_needs_a_word_and_harms_nothing(world: World) -> None:
    one = INVENTORY.replace('  n1: {mac: "52:54:00:00:00:11", ip: 10.1.0.11, firmware: uefi}\n', "")
    with pytest.raises(Refused, match="n1"):
        await world.ops.inventory.apply(one, "x.yaml", None, False)
    await world.ops.inventory.apply(one, "x.yaml", None, True)
    assert world.head.store.names == ["n0"]
    world.tick(30)
    await world.restart()
    assert world.head.store.names == ["n0"]


async def test_defect_3_a_change_of_one_field_keeps_the_others(world: World) -> None:
    before = world.node("n1").node
    await world.ops.nodes.set_state("n1", "off", False)
    after = world.node("n1").node
    assert (after.macs, after.ip, after.firmware, after.state) == (
        before.macs,
        before.ip,
        "uefi",
        "off",
    )
    await world.ops.inventory.apply(
        INVENTORY.replace("10.1.0.11", "10.1.0.21"), "x.yaml", None, False
    )
    changed = world.node("n1").node
    assert (changed.ip, changed.firmware, changed.macs) == ("10.1.0.21", "uefi", before.macs)


async def test_busy_nodes_are_not_stopped_unless_forced(world: World) -> None:
    world.attach("n0")
    world.send(world.hello("n0", busy="BUSY"))
    with pytest.raises(Refused, match="n0: BUSY"):
        await world.ops.nodes.set_state("n[0-1]", "off", False)
    assert world.node("n1").node.state == "up", "all or nothing"
    with pytest.raises(Refused, match="n0: BUSY"):
        await world.ops.power.cycle("n0", False)
    await world.ops.nodes.set_state("n0", "off", True)
    assert world.node("n0").node.state == "off"


async def test_a_range_must_be_said_and_known(world: World) -> None:
    for text in ("", "n9", "n[0-9]", "@nothing", "n[0-", "../n0"):
        with pytest.raises(InputError):
            world.ops.head.store.select(text)
    assert [r.name for r in world.ops.head.store.select("n[0-1]")] == ["n0", "n1"]


async def test_a_cycle_boots_anew(world: World) -> None:
    world.attach("n0")
    world.send(world.hello("n0"))
    await world.ops.power.cycle("n0", False)
    record = world.node("n0")
    assert record.goal_values == {"power": "OFF"}, "images are stopped first"
    world.send(world.hello("n0", run="INIT", image="UNKNOWN"))
    assert record.machine.active is not None and record.machine.active.mutation == "power-off"
    world.head.engine.post(record, Discovered({"power": "OFF"}, "the BMC says so"))
    assert record.care.order is None
    assert record.machine.active is not None and record.machine.active.mutation == "power-on"
    assert "power.cycled" in world.kinds("n0")


async def test_a_cycle_that_ends_while_a_change_is_prepared_stays_over(world: World) -> None:
    world.attach("n0")
    world.send(world.hello("n0"))
    await world.ops.power.cycle("n0", False)
    record, desire = world.node("n0"), world.head.desire
    async with desire.transaction() as transaction:
        desire.set_images(transaction, record, record.wanted)
        assert record.goal_values == {"power": "OFF"}
        world.send(world.hello("n0", run="INIT", image="UNKNOWN"))
        world.head.engine.post(record, Discovered({"power": "OFF"}, "the BMC says so"))
        assert record.care.order is None, "meanwhile"
    assert record.care.order is None and record.goal_values["power"] == "ON"
    assert record.machine.active is not None and record.machine.active.mutation == "power-on"


async def test_a_forced_cycle_waits_for_nothing(world: World) -> None:
    world.attach("n0")
    world.send(world.hello("n0", busy="BUSY", image="ACTIVE"))
    with pytest.raises(Refused, match="BUSY"):
        await world.ops.power.cycle("n0", False)
    await world.ops.power.cycle("n0", True)
    record = world.node("n0")
    assert record.machine.active is not None and record.machine.active.mutation == "power-off"
    for _ in range(8):  # a BMC that takes its time: the node goes on to say HELLO
        world.tick(1)
        world.send(world.hello("n0", busy="BUSY", image="ACTIVE"))
    assert record.care.order is not None and record.machine.active.mutation == "power-off", (
        "it is not forgotten"
    )


async def test_an_order_outlives_the_head(world: World) -> None:
    world.attach("n0")
    world.send(world.hello("n0"))
    await world.ops.power.cycle("n0", True)
    await world.restart()
    record = world.node("n0")
    assert record.care.order is not None and record.goal_values == {"power": "OFF"}


async def test_an_order_that_fails_is_told_and_ends(world: World) -> None:
    bmc = "ip: 10.1.0.10, bmc: {driver: ipmi, address: 10.2.0.10}"
    await world.ops.inventory.apply(INVENTORY.replace("ip: 10.1.0.10", bmc), "x.yaml", None, False)
    world.attach("n0")
    world.send(world.hello("n0"))
    await world.ops.power.cycle("n0", True)
    record = world.node("n0")
    for _ in range(60):
        if record.care.order is None:
            break
        world.tick(30)
    assert "power.order-failed" in world.kinds("n0")
    assert record.goal_values["power"] == "ON", "it is wanted as before"


async def test_defect_1_a_quarantined_node_has_a_way_out(world: World) -> None:
    record = world.node("n0")
    for _ in range(40):
        if record.machine.quarantine is not None:
            break
        world.tick(60)
    assert record.machine.quarantine is not None, "attempts at an unreachable BMC are bounded"
    assert "quarantine.set" in world.kinds("n0")
    await world.ops.nodes.clear("n0")
    assert record.machine.quarantine is None
    active = record.machine.active
    assert active is not None
    assert active.mutation == "power-discover"


async def test_an_unknown_image_is_refused(world: World) -> None:
    with pytest.raises(InputError, match="no-such"):
        await world.ops.rolls.at_once("n0", "no-such", None)
    assert world.node("n0").wanted == ()


async def test_only_a_roll_moves_a_node_to_the_new_content_of_a_name(world: World) -> None:
    def put(content: bytes) -> str:
        file = world.directory / "image.squashfs"
        file.write_bytes(b"hsqs" + content)
        return world.head.part(ImageStore).add(file, "web", {"systemd": False}).digest

    first = put(b"one")
    await world.ops.rolls.at_once("n0", "web", None)
    second = put(b"two")
    await world.ops.nodes.set_state("n0", "off", False)
    await world.ops.nodes.set_state("n0", "up", False)
    assert [i.digest for i in world.node("n0").wanted] == [first]
    await world.ops.rolls.at_once("n0", "web", None)
    assert [i.digest for i in world.node("n0").wanted] == [second]


async def test_a_plan_of_many_nodes_lets_the_head_go_on(world: World) -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    many = INVENTORY + '  x[0-2999]: {mac: "52:54:00:01:00:00+", ip: 10.2.0.1+}\n'
    plan = await world.ops.inventory.plan(many, "many.yaml")
    task.cancel()
    assert len(plan["plans"]) == 3000 and turns > 50
    with pytest.raises(Refused, match="under way already"):
        await asyncio.gather(*(world.ops.inventory.plan(INVENTORY, "x.yaml") for _ in range(6)))


async def test_a_change_of_one_line_touches_one_node(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the others nothing is read again, told to modules, or told over the network."""
    told: list[str] = []
    monkeypatch.setattr(
        world.head.modules.notifier, "changed", lambda record: told.append(record.name)
    )
    many = INVENTORY + "".join(
        f'  m{i}: {{mac: "52:54:01:00:00:{i:02x}", ip: 10.1.1.{i}}}\n' for i in range(50)
    )
    await world.ops.inventory.apply(many, "x.yaml", None, False)
    before = {record.name: (record.node, record.cfg_revision) for record in world.head.store}
    told.clear()
    changed = many.replace("ip: 10.1.1.7}", "ip: 10.1.2.7}")
    plan = await world.ops.inventory.plan(changed, "x.yaml")
    assert [(c["node"], c["fields"]) for c in plan["changes"]] == [
        ("m7", {"ip": ["10.1.1.7", "10.1.2.7"]})
    ]
    await world.ops.inventory.apply(changed, "x.yaml", plan["digest"], False)
    assert set(told) == {"m7"}
    after = {record.name: (record.node, record.cfg_revision) for record in world.head.store}
    assert {
        name
        for name in before
        if before[name][0] is not after[name][0] or before[name][1] != after[name][1]
    } == {"m7"}


async def test_what_changes_while_an_inventory_is_read_is_as_the_inventory_has_it_in_the_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node's entry that is the same at first, one that is gone, and one that comes: all while the
    text is being read."""
    three = THIRD + '  n3: {mac: "52:54:00:00:00:13", ip: 10.1.0.13}\n'
    await world.ops.inventory.apply(THIRD, "x.yaml", None, False)
    whole, begun = world.ops.inventory.reader.read, asyncio.Event()

    async def slow(aside: SandboxedJob, text: str, file: str) -> object:
        found = await whole(aside, text, file)
        if text == three and not begun.is_set():
            begun.set()
            other = (
                INVENTORY.replace("ip: 10.1.0.10}", "ip: 10.1.0.99}")
                + '  n9: {mac: "52:54:00:00:00:19", ip: 10.1.0.19}\n'
            )
            applied = world.ops.inventory.applying
            plans = world.head.part(Readers).plans
            world.ops.inventory.applying = plans  # another turn: this one is taken
            await world.ops.inventory.apply(other, "x.yaml", None, True)
            world.ops.inventory.applying = applied
        return found

    monkeypatch.setattr(world.ops.inventory.reader, "read", slow)
    applied = await world.ops.inventory.apply(three, "x.yaml", None, True)
    assert begun.is_set() and sorted(applied["changed"]) == ["n0", "n2", "n3", "n9"]
    assert {r.name: r.node.ip for r in world.head.store} == {
        f"n{i}": f"10.1.0.1{i}" for i in range(4)
    }
