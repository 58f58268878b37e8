"""A restart of the head touches no healthy node (REFERENCE, defect 2), and loses nothing that was
acknowledged."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import re
import uuid
from pathlib import Path

import pytest

from layercake.agents.https.requests import NotFetched
from layercake.fleet import events
from layercake.fleet.persistence.database import FLUSHED_AT_ONCE
from layercake.fleet.store import Record
from layercake.head.head import Head
from layercake.kraken import converge
from layercake.kraken.converge import Discovered, Event, Held, NodeState
from layercake.kraken.errors import OperationFailed
from layercake.kraken.mutation import Where
from layercake.kraken.wire import Kind, decode
from layercake.moduleapi.network import HeadAddress
from layercake.modules.manager import ServiceManager
from tests.support.world import INVENTORY, World, opened


async def test_defect_2_a_restarted_head_starts_nothing_on_a_node_that_comes_back(
    world: World,
) -> None:
    world.attach("n0")
    world.send(world.hello("n0"))
    world.received("n0")
    assert world.node("n0").machine.goal.met(world.node("n0").machine.state)
    revision, epoch = world.node("n0").cfg_revision, world.head.store.epoch
    newest = max(e.id for e in world.head.store.events)
    await world.restart()
    record = world.node("n0")
    assert world.head.store.epoch != epoch
    world.tick(5)
    assert record.machine.active is None, "it acted before the node had time to come back"
    world.send(world.hello("n0", epoch=epoch))
    challenge = world.received("n0")
    for _ in range(60):
        world.send(world.hello("n0", epoch=challenge.epoch))
        world.tick(1)
    assert record.value("run") == "SYNC"
    assert record.machine.goal.met(record.machine.state)
    assert [
        e.text
        for e in world.events_of(record.name)
        if e.kind == "mutation.started" and e.id > newest
    ] == []
    assert record.cfg_revision == revision


async def test_a_node_that_does_not_come_back_is_taken_up_again(world: World) -> None:
    world.attach("n0")
    world.send(world.hello("n0"))
    await world.restart()
    world.tick(world.settings.sync.dead_s + world.settings.sync.hello_s + 2)
    active = world.node("n0").machine.active
    assert active is not None
    assert active.mutation == "power-discover"


async def test_desired_state_and_history_survive(world: World) -> None:
    await world.ops.nodes.set_state("n1", "off", False)
    await world.restart()
    assert world.node("n1").node.state == "off"
    assert world.node("n1").goal_values == {"power": "OFF"}
    assert "desired.state" in world.kinds("n1")
    newest = max(e.id for e in world.head.store.events)
    world.head.store.event(None, events.HEAD_STARTED, "another")
    assert world.head.store.newest_event > newest


async def test_a_failed_write_keeps_what_was_to_be_written(world: World) -> None:
    database = world.head.database
    await database.flush(world.head.store)
    database.connection.execute("PRAGMA query_only=ON")
    world.head.store.event(None, events.HEAD_STARTED, "keep me")
    world.head.store.mark(world.node("n0"))
    with pytest.raises(OperationFailed, match="cannot write the database"):
        await database.flush(world.head.store)
    database.connection.execute("PRAGMA query_only=OFF")
    assert world.node("n0").node.id in world.head.store.dirty
    await world.restart()
    assert "head.started" in [e.kind for e in world.head.store.events]


async def test_nodes_that_are_alike_get_to_where_the_engine_brings_each(world: World) -> None:
    """What is worked out once for many (Engine.resume) is what `converge.step` makes of each, with
    its own failures and counts."""
    now, engine = world.clock.now, world.head.engine
    until, alike = now + 30.0, []
    for name, goal in itertools.product(("n0", "n1"), ({"run": "SYNC"}, {"power": "OFF"}, {})):
        layout = world.node(name).planner.layout
        for attempts, rounds, failed, back_off, event in itertools.product(
            ({}, {"power-on": 2}),
            ({}, {"power-on": 1}),
            ("", "it failed"),
            (0.0, now + 7.0),
            (None, Held(until), Held(now)),
        ):
            was = dataclasses.replace(
                NodeState.fresh(layout.goal({})),
                attempts=attempts,
                rounds=rounds,
                last_error=failed,
                not_before=back_off,
                met_since=now - 3.0,
                held_until=now + 1.0,
                asked="power-on",
            )
            known = was.resumed_unknown(now, layout.goal(goal))
            assert known == dataclasses.replace(
                was.resumed(now), state=0, assumed=0, goal=layout.goal(goal)
            )
            alike += [(world.node(name).copy(), known, event)] * 2
    records = [(record.copy(), known, event) for record, known, event in alike]
    begun: list[tuple[Record, Event]] = []
    engine.post = lambda record, event: begun.append((record, event))  # type: ignore[method-assign]
    engine.resume(records, now)
    for record, known, event in records:
        if event is None:
            assert record.machine == known
            continue
        after, effects = converge.step(record.planner, Where.HEAD, known, event, now, lambda: 0.5)
        if effects:
            assert (record.machine, begun.pop(0)) == (known, (record, event)), (
                "the engine goes the whole way"
            )
        else:
            assert record.machine == after
    assert not begun
    shared = {id(record.machine) for record, _, event in records if event == Held(until)}
    assert len(shared) < len(records) / 3, "those that are alike share what they are"


async def in_sync(world: World) -> Record:
    """n0 is up, and what is known of it is written."""
    world.attach("n0")
    world.send(world.hello("n0"))
    world.clock.now += 5
    world.send(world.hello("n0"))
    await world.head.database.flush(world.head.store)
    return world.node("n0")


async def test_a_node_that_is_as_it_was_is_no_news_and_is_not_written_again(world: World) -> None:
    before = await in_sync(world)
    world.clock.now += 50
    await world.restart()
    store = world.head.store
    newest = store.newest_event
    world.send(world.hello("n0"))
    record = world.node("n0")
    assert record.values() == before.values() and record.remembered is None
    assert record.changed_at == before.changed_at
    assert record.machine.met_since == before.machine.met_since
    told = [e.kind for e in store.recent("n0") if e.id > newest]
    assert "state.changed" not in told
    statements: list[str] = []
    world.head.database.connection.set_trace_callback(statements.append)
    await world.head.database.flush(store)
    world.head.database.connection.set_trace_callback(None)
    assert statements and not [s for s in statements if "INTO nodes" in s]


async def test_what_was_otherwise_before_is_told_with_what_it_was(world: World) -> None:
    await in_sync(world)
    await world.restart()
    newest = world.head.store.newest_event
    world.send(world.hello("n0", busy="BUSY"))
    (changed,) = [
        e for e in world.head.store.recent("n0") if e.id > newest and e.kind == "state.changed"
    ]
    assert changed.data == {"busy": ["FREE", "BUSY"]}
    assert world.node("n0").changed_at == world.clock.now


async def test_a_head_that_ends_again_before_its_nodes_are_back_still_waits_for_them(
    world: World,
) -> None:
    await in_sync(world)
    for _ in range(2):
        await world.restart()
        await world.head.database.flush(world.head.store)
    assert world.node("n0").machine.held_until > world.clock.now


async def test_one_thing_that_is_otherwise_hides_nothing_else_that_was(world: World) -> None:
    """Its BMC speaks first, and says something new; then the head ends again."""
    await in_sync(world)
    await world.restart()
    health = {"bmc-health": "CRITICAL"}
    world.head.engine.post(world.node("n0"), Discovered(health, "its BMC says so"))
    await world.head.database.flush(world.head.store)
    await world.restart()
    assert world.node("n0").machine.held_until > world.clock.now


async def test_since_when_it_is_as_wanted_does_not_outlive_what_was_wanted(world: World) -> None:
    before = (await in_sync(world)).machine.met_since
    world.clock.now += 50
    await world.restart()
    await world.ops.nodes.set_state("n0", "off", False)
    world.head.engine.post(world.node("n0"), Discovered({"power": "OFF"}, "its BMC says so"))
    met = world.node("n0").machine.met_since
    assert met is not None and before is not None and met > before


async def test_a_head_that_begins_calls_the_nodes_that_were_up_where_they_were_last_heard(
    world: World,
) -> None:
    record = await in_sync(world)
    record.api_port = 4321
    world.head.store.mark(record)
    heard = record.address
    assert heard is not None
    await world.restart()
    while world.waiting():
        world.received("n0")
    record = world.node("n0")
    assert (record.address, record.api_port) == (heard, 4321)
    await world.head.sync.call_nodes()
    called = world.received("n0")
    assert (called.kind, called.epoch) == (Kind.DESIRED, world.head.store.epoch)
    world.send(world.hello("n0"))
    world.received("n0")
    await world.head.sync.call_nodes()
    assert not world.waiting(), "who was heard is not called, nor who was not up"


async def test_a_head_that_starts_calls_them_by_itself(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await in_sync(world)
    while world.waiting():
        world.received("n0")
    await world.close_head()
    monkeypatch.setattr(ServiceManager, "start", lambda manager: None)
    world.head = Head(world.directory, world.settings, world.clock)
    await world.head.start()
    try:
        for _ in range(2000):
            if world.waiting():
                break
            await asyncio.sleep(0.01)
        assert world.received("n0").kind is Kind.DESIRED
    finally:
        await world.head.stop()
        world.head = Head(world.directory, world.settings, world.clock)
        world.open()


async def test_where_a_node_speaks_from_is_written_when_it_is_another_place(world: World) -> None:
    record = await in_sync(world)
    await world.head.database.flush(world.head.store)
    world.send(world.hello("n0"))
    assert record.node.id not in world.head.store.dirty
    for _ in range(2):  # as another HELLO, and as the same again
        record.address = ("10.9.9.9", 9)
        world.send(world.hello("n0"))
        assert record.address != ("10.9.9.9", 9) and record.node.id in world.head.store.dirty
        await world.head.database.flush(world.head.store)


async def test_what_is_asked_of_a_node_that_was_up_before_the_head_began_is_told_to_it(
    world: World,
) -> None:
    await in_sync(world)
    await world.restart()
    while world.waiting():
        world.received("n0")
    asked = asyncio.create_task(
        world.head.kernel.requests.request(world.node("n0"), {"kind": "logs"}, 0.0)
    )
    await asyncio.gather(asked, return_exceptions=True)
    assert world.received("n0").kind is Kind.DESIRED
    with pytest.raises(NotFetched, match="not in sync"):
        await world.head.kernel.requests.request(world.node("n1"), {"kind": "logs"}, 0.0)


async def test_a_node_that_does_not_come_back_is_asked_nothing_once_it_is_waited_for_no_more(
    world: World,
) -> None:
    await in_sync(world)
    await world.restart()
    record = world.node("n0")
    assert world.head.sync.expects(record)
    world.clock.now = record.machine.held_until + 1
    assert not world.head.sync.expects(record)


async def test_who_is_to_do_something_is_called_first(world: World) -> None:
    for name in ("n0", "n1"):
        world.attach(name)
        world.node(name).acked = world.node(name).cfg_revision
        world.send(world.hello(name))
        world.head.store.mark(world.node(name))
    world.head.store.revise(world.node("n1"))
    await world.restart()
    while world.waiting():
        world.received("n0")
    await world.head.sync.call_nodes()
    called = [world.received("n0").node, world.received("n0").node]
    assert called == [uuid.UUID(world.node(name).node.id).bytes for name in ("n1", "n0")]


async def test_a_challenge_comes_from_where_the_hello_went(tmp_path: Path) -> None:
    """Also if the node's network has another address of the head by now."""
    also = HeadAddress(interface="lo", address="127.0.0.2", prefix=24)
    async with opened(tmp_path, more_networks={"b": also}) as world:
        text = INVENTORY + "\nnetworks:\n  b: {subnet: 10.1.0.0/24, head: 10.1.0.250}\n"
        await world.ops.inventory.apply(text, "t.yaml", None, False)
        network = world.head.networks.of(world.node("n0").node)
        assert isinstance(network, dict)
        network["head"] = "127.0.0.2"  # which no inventory can have
        assert world.head.heads.own_address(world.node("n0")) == "127.0.0.2"
        world.attach("n0")
        world.send(world.hello("n0", epoch=1))
        data, source = world.client.recvfrom(2048)
        assert decode(data, b"k" * 32).kind is Kind.CHALLENGE
        assert source == ("127.0.0.1", world.port)


async def test_nodes_that_lie_together_are_written_together(world: World) -> None:
    """In the order in which nodes have changed, each flush would write nearly all pages of the
    table: at ten thousand nodes that took twice as long."""
    entries = "".join(
        f'  m{i}: {{mac: "52:54:00:01:{i // 256:02x}:{i % 256:02x}", '
        f"ip: 10.1.{4 + i // 200}.{i % 200 + 1}}}\n"
        for i in range(3 * FLUSHED_AT_ONCE)
    )
    await world.ops.inventory.apply(f"nodes:\n{entries}", "x.yaml", None, True)
    store = world.head.store
    await world.head.database.flush(store)
    for record in store:
        record.api_port = 7
        store.mark(record)
    statements: list[str] = []
    world.head.database.connection.set_trace_callback(statements.append)
    await world.head.database.flush(store)
    world.head.database.connection.set_trace_callback(None)
    written = "".join(s for s in statements if "INTO nodes" in s)
    rows = [int(row) for row in re.findall(r"\((\d+), '", written)]
    assert len(rows) == len(store) == 3 * FLUSHED_AT_ONCE
    for start in range(0, len(rows), FLUSHED_AT_ONCE):
        at_once = rows[start : start + FLUSHED_AT_ONCE]
        assert max(at_once) - min(at_once) < 2 * FLUSHED_AT_ONCE
