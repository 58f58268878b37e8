"""What was refused because it could not be written did not happen; what was accepted is on disk
before it is acted on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from imageapi.store.store import ImageStore
from layercake.features.rolls.manager import Rolls
from layercake.features.rolls.operations import RollStart
from layercake.fleet.store import Record
from layercake.kraken.errors import OperationFailed
from tests.support.disk import on_disk, read_only, stuck
from tests.support.world import INVENTORY, World, node_client

THIRD = INVENTORY + '  n2: {mac: "52:54:00:00:00:12", ip: 10.1.0.12}\n'
ONE = INVENTORY.replace('  n1: {mac: "52:54:00:00:00:11", ip: 10.1.0.11, firmware: uefi}\n', "")
Ask_ = Callable[[World], Awaitable[Any]]
CHANGES: dict[str, Ask_] = {
    "off": lambda w: w.ops.nodes.set_state("n0", "off", False),
    "off by force": lambda w: w.ops.nodes.set_state("n0", "off", True),
    "clear": lambda w: w.ops.nodes.clear("n1"),
    "add": lambda w: w.ops.inventory.apply(THIRD, "x.yaml", None, False),
    "remove": lambda w: w.ops.inventory.apply(ONE, "x.yaml", None, True),
    "change": lambda w: w.ops.inventory.apply(
        INVENTORY.replace("10.1.0.11", "10.1.0.21"), "x.yaml", None, False
    ),
    "images": lambda w: w.ops.rolls.at_once("n0", "web", None),
    "roll": lambda w: w.ops.rolls.start(RollStart("n0", "web")),
}


def put(world: World, name: str) -> None:
    file = world.directory / "image.squashfs"
    file.write_bytes(b"hsqs" + name.encode())
    world.head.part(ImageStore).add(file, name, {"systemd": False})


def seen(world: World) -> Any:
    """All that a person or a node could see of the nodes, and what the engine does about them."""

    def of(r: Record) -> Any:
        return (r.node, r.wanted, r.stage, r.cfg_revision, r.session, r.machine, r.planner)

    store = world.head.store
    return (
        {r.name: of(r) for r in store},
        store.revision,
        [e for e in store.events if not e.kind.startswith("database.")],
        world.head.part(Rolls).all(),
    )


async def quarantined(world: World) -> None:
    """n1 is in quarantine, n0 in sync; all that is on disk."""
    put(world, "web")
    world.attach("n0")
    for _ in range(60):
        world.send(world.hello("n0"))
        if world.node("n1").machine.quarantine is not None:
            break
        world.tick(10)
        world.tick(40)
    assert world.node("n1").machine.quarantine is not None
    world.send(world.hello("n0"))
    await world.head.database.flush(world.head.store)
    while True:
        try:
            world.client.settimeout(0.05)
            world.client.recv(2048)
        except TimeoutError:
            return


@pytest.mark.parametrize("name", CHANGES)
async def test_what_cannot_be_written_did_not_happen(world: World, name: str) -> None:
    await quarantined(world)
    before, begun = seen(world), []
    world.head.modules.effects.begin = lambda record, mutation, *rest: begun.append(
        (record.name, mutation)
    )
    with read_only(world.head), pytest.raises(OperationFailed, match="cannot write the database"):
        await CHANGES[name](world)
    assert seen(world) == before
    assert begun == []
    with pytest.raises(TimeoutError):
        world.client.recv(2048)
    names, state = world.head.store.names, world.node("n0").node
    await world.restart()
    assert (world.head.store.names, world.node("n0").node) == (names, state)
    assert world.node("n1").machine.quarantine is not None
    assert world.head.part(Rolls).all() == []
    await CHANGES[name](world)
    assert seen(world) != before, "it can be asked for again, without a restart"


@pytest.mark.parametrize("name", CHANGES)
async def test_what_is_accepted_is_on_disk_and_nothing_is_done_before(
    world: World, name: str, tmp_path: Path
) -> None:
    """Killed right after the answer, the next head has it; until it is on disk nobody is told."""
    await quarantined(world)
    before, begun = seen(world), []
    world.head.modules.effects.begin = lambda record, mutation, *rest: begun.append(
        (record.name, mutation)
    )
    with stuck(world.head) as gate:
        asked = asyncio.ensure_future(CHANGES[name](world))
        for _ in range(20):
            await asyncio.sleep(0)
        assert (seen(world), begun, asked.done()) == (before, [], False)
        gate.set()
        await asked
    wanted = {r.name: (r.node, r.wanted, r.machine.quarantine) for r in world.head.store}
    rolls = [r.id for r in world.head.part(Rolls).all()]
    other = tmp_path / "killed"
    other.mkdir()
    for file in world.directory.glob("layercake.db*"):
        (other / file.name).write_bytes(file.read_bytes())
    after = World(other)
    try:
        after.open()
        assert {
            r.name: (r.node, r.wanted, r.machine.quarantine) for r in after.head.store
        } == wanted
        assert [r.id for r in after.head.part(Rolls).all()] == rolls
    finally:
        await after.close_head()
        after.client.close()


async def test_a_roll_goes_no_further_while_nothing_can_be_written(world: World) -> None:
    put(world, "web")
    world.attach("n0")
    world.send(world.hello("n0"))
    roll = await world.ops.rolls.start(RollStart("n0", "web"))
    before = seen(world)
    with read_only(world.head):
        with pytest.raises(OperationFailed):
            await world.head.part(Rolls).advance()
        assert seen(world) == before
        with pytest.raises(OperationFailed):
            await world.head.part(Rolls).order(roll.id, "pause", "bob")
        assert seen(world) == before
    await world.head.part(Rolls).advance()
    assert [i.name for i in world.node("n0").stage] == ["web"], "it goes on by itself"


async def test_a_join_that_cannot_be_written_can_be_tried_again(world: World) -> None:
    record = world.node("n0")
    token = world.head.joining.open(record, 60)
    claim = {
        "node": record.node.id,
        "token": token,
        "boot_id": "b",
        "mac": "52:54:00:00:00:10",
        "version": "1",
    }
    async with node_client(world) as client:
        with read_only(world.head):
            assert (await client.post("/node/v1/join", json=claim)).status >= 400
        assert (record.session, record.value("run")) == (None, "UNKNOWN")
        assert (await client.post("/node/v1/join", json=claim)).status == 200
        assert record.value("run") == "INIT"
        again = await client.post("/node/v1/join", json={**claim, "boot_id": "another"})
        assert again.status == 403, "a token is good for one session"


async def test_two_claims_at_once_with_one_token_get_one_session(world: World) -> None:
    record = world.node("n0")
    token = world.head.joining.open(record, 60)
    claim = {
        "node": record.node.id,
        "token": token,
        "boot_id": "b",
        "mac": "52:54:00:00:00:10",
        "version": "1",
    }
    async with node_client(world) as client:
        with stuck(world.head) as gate:
            asked = [
                asyncio.ensure_future(client.post("/node/v1/join", json={**claim, "boot_id": boot}))
                for boot in "abc"
            ]
            await asyncio.sleep(0.05)
            gate.set()
            assert sorted([(await a).status for a in asked]) == [200, 403, 403]
            assert record.session is None, "nobody can say which of them is the node"


async def test_changes_that_overlap_are_made_one_after_the_other(world: World) -> None:
    """Each is checked over what the one before it left, and what is heard meanwhile stays."""
    world.attach("n0")
    world.send(world.hello("n0"))
    revision = world.node("n0").cfg_revision
    digest = (await world.ops.inventory.plan(THIRD, "x.yaml"))["digest"]
    with stuck(world.head) as gate:
        off = asyncio.ensure_future(world.ops.nodes.set_state("n0", "off", False))
        stale = asyncio.ensure_future(world.ops.inventory.apply(THIRD, "x.yaml", digest, False))
        flush = asyncio.ensure_future(world.head.database.flush(world.head.store))
        moved = asyncio.ensure_future(
            world.ops.inventory.apply(
                INVENTORY.replace("10.1.0.10", "10.1.0.20"), "x.yaml", None, False
            )
        )
        for _ in range(20):
            await asyncio.sleep(0)
        world.send(world.hello("n0", busy="BUSY"))
        world.node("n0").cfg_revision += 1  # a request for the node
        gate.set()
        assert await off == ["n0"]
        with pytest.raises(Exception, match="has changed since"):
            await stale
        await moved
        await flush
    record = world.node("n0")
    assert (record.node.ip, record.node.state, record.value("busy")) == ("10.1.0.20", "up", "BUSY")
    assert record.cfg_revision == revision + 3
    await world.head.database.flush(world.head.store)
    [(data,)] = on_disk(world.directory, "SELECT data FROM nodes WHERE id = ?", record.node.id)
    told = json.loads(data)
    assert (told["node"]["ip"], told["was"]["busy"], told["cfg_revision"]) == (
        "10.1.0.20",
        "BUSY",
        record.cfg_revision,
    )


async def test_a_change_whose_asker_goes_away_happens_wholly(world: World) -> None:
    with stuck(world.head) as gate:
        off = asyncio.ensure_future(world.ops.nodes.set_state("n0", "off", False))
        for _ in range(20):
            await asyncio.sleep(0)
        off.cancel()
        await asyncio.sleep(0)
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await off
    assert world.node("n0").node.state == "off"
    await world.restart()
    assert world.node("n0").node.state == "off"
