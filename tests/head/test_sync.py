"""State sync: on change, hello, dead, re-attach; forged, replayed and malformed datagrams change
nothing."""

from __future__ import annotations

import random
import socket
import time
import uuid

import pytest

from layercake.kraken.converge import Discovered
from layercake.kraken.errors import WireError
from layercake.kraken.wire import Kind
from minos.agent.head_link.sync import NewEpoch, SyncCodec, Wanted
from tests.support.world import World


def test_a_hello_brings_a_node_into_sync_and_is_answered(world: World) -> None:
    world.attach("n0")
    world.send(world.hello("n0"))
    record = world.node("n0")
    assert record.value("run") == "SYNC"
    assert record.value("power") == "ON"
    answer = world.received("n0")
    assert answer.kind is Kind.DESIRED
    assert answer.cfg_revision == record.cfg_revision
    assert (answer.mask, answer.state) == (record.machine.goal.mask, record.machine.goal.value)
    assert "sync.attached" in world.kinds("n0")


def test_a_replayed_datagram_changes_nothing(world: World) -> None:
    world.attach("n0")
    busy = world.hello("n0", busy="BUSY")
    world.send(busy)
    world.send(world.hello("n0", busy="FREE"))
    world.send(busy)
    assert world.node("n0").value("busy") == "FREE"
    assert world.head.sync.counters["refused"] == 1


def test_a_forged_datagram_changes_nothing(world: World) -> None:
    world.attach("n0")
    world.send(world.hello("n0", key=b"x" * 32))
    assert world.node("n0").value("run") == "UNKNOWN"
    assert world.head.sync.counters["refused"] == 1


def test_a_node_without_a_session_is_not_listened_to(world: World) -> None:
    world.attach("n0")
    data = world.hello("n0")
    world.node("n0").session = None
    with pytest.raises(WireError):
        world.head.sync.receive(data, ("127.0.0.1", 1))


def test_a_datagram_of_an_earlier_life_of_the_head_is_challenged(world: World) -> None:
    world.attach("n0")
    old = world.hello("n0", epoch=1)
    world.send(old)
    assert world.node("n0").value("run") == "UNKNOWN"
    challenge = world.received("n0")
    assert (challenge.kind, challenge.epoch) == (Kind.CHALLENGE, world.head.store.epoch)
    world.send(world.hello("n0", epoch=challenge.epoch))
    assert world.node("n0").value("run") == "SYNC"


def test_malformed_datagrams_never_get_out_of_the_socket_handler(world: World) -> None:
    world.attach("n0")
    good, dice = world.hello("n0"), random.Random(5)
    for _ in range(500):
        data = bytearray(good[: dice.randrange(len(good) + 1)])
        for _ in range(dice.randrange(4)):
            if data:
                data[dice.randrange(len(data))] = dice.randrange(256)
        if bytes(data) != good:
            world.send(bytes(data) + b"x" * dice.randrange(2))
    assert world.node("n0").value("run") == "UNKNOWN"
    world.send(good)
    assert world.node("n0").value("run") == "SYNC"


async def test_a_silent_node_is_lost_and_comes_back(world: World) -> None:
    world.attach("n0")
    world.send(world.hello("n0", image="IDLE"))
    world.tick(world.settings.sync.dead_s - 1)
    assert world.node("n0").value("run") == "SYNC"
    world.tick(2)
    assert world.node("n0").value("run") == "ERROR"
    assert "sync.lost" in world.kinds("n0")
    world.send(world.hello("n0"))
    assert world.node("n0").value("run") == "SYNC"


async def test_a_bmc_that_says_off_of_a_speaking_node_is_not_believed_at_once(world: World) -> None:
    world.attach("n0")
    world.send(world.hello("n0"))
    record = world.node("n0")
    world.head.listener.discovered("powerman", record.node.id, {"power": "OFF"}, "poll")
    assert record.value("power") == "ON"
    world.tick(1)
    world.send(world.hello("n0"))
    world.tick(5)
    assert record.value("run") == "SYNC"
    world.head.listener.discovered("powerman", record.node.id, {"power": "OFF"}, "poll")
    world.tick(5)
    assert record.value("run") == "ERROR"
    world.head.listener.discovered("powerman", record.node.id, {"power": "OFF"}, "poll")
    assert record.value("power") == "OFF"


async def test_an_answer_that_was_on_its_way_as_a_node_joined_does_not_end_its_session(
    world: World,
) -> None:
    """Seen under load: powerman knew of no power of a node without a BMC, and its "OFF" came after
    the join; the node was held for off, and all that its agent asked for was answered 401."""
    session = world.attach("n0")
    record = world.node("n0")
    world.head.engine.post(
        record, Discovered({"run": "INIT", "power": "ON"}, "the node has joined")
    )
    world.head.listener.discovered("powerman", record.node.id, {"power": "OFF"}, "its BMC says so")
    assert record.value("power") == "ON" and record.session is session
    world.send(world.hello("n0"))
    world.tick(5)
    assert record.value("run") == "SYNC" and record.session is session


async def test_off_is_believed_of_a_node_that_joined_and_was_never_heard(world: World) -> None:
    world.attach("n0")
    record = world.node("n0")
    world.head.engine.post(
        record, Discovered({"run": "INIT", "power": "ON"}, "the node has joined")
    )
    world.tick(world.settings.sync.dead_s + 1)
    world.head.listener.discovered("powerman", record.node.id, {"power": "OFF"}, "its BMC says so")
    assert record.value("power") == "OFF"


async def test_defect_5_a_change_of_desired_state_is_sent_at_once(world: World) -> None:
    world.attach("n0")
    world.send(world.hello("n0"))
    first = world.received("n0")
    await world.ops.nodes.set_state("n0", "off", False)
    pushed = world.received("n0")
    assert pushed.cfg_revision > first.cfg_revision
    assert world.node("n0").planner.layout.get(pushed.state, "power") == "OFF"
    with pytest.raises(socket.timeout):
        world.client.settimeout(0.05)
        world.client.recv(2048)


@pytest.mark.parametrize("step_s", [-600, 600, -20 * 365 * 86400, 20 * 365 * 86400])
async def test_nodes_hear_of_changes_whatever_the_heads_clock_does(
    world: World, monkeypatch: pytest.MonkeyPatch, step_s: int
) -> None:
    """The agent's own codec hears the head before and after the system's time was set, and after a
    restart of the head."""
    session = world.attach("n0")
    node = world.node("n0").node.id
    agent = SyncCodec(
        uuid.UUID(node).bytes, session.number, session.key, world.head.store.epoch, b"lay1"
    )
    real, offset = time.time_ns, 0
    monkeypatch.setattr(time, "time_ns", lambda: real() + offset)
    world.send(world.hello("n0"))
    assert agent.receive(world.client.recv(2048)) == Wanted(world.node("n0").cfg_revision)
    offset = step_s * 1_000_000_000
    await world.ops.nodes.set_state("n0", "off", False)
    assert agent.receive(world.client.recv(2048)) == Wanted(world.node("n0").cfg_revision)
    offset = 0
    await world.restart()
    hello = agent.hello(world.sequence + 1, revision=1, changes=1, mask=0, state=0)
    world.send(hello)
    assert agent.receive(world.client.recv(2048)) == NewEpoch(
        world.head.store.epoch, world.node("n0").cfg_revision
    )
    world.send(world.hello("n0"))
    assert agent.receive(world.client.recv(2048)) == Wanted(world.node("n0").cfg_revision)


async def test_a_head_that_does_not_keep_up_with_what_it_hears_blames_nobody(world: World) -> None:
    """A node's HELLO may wait to be read behind those of others, for longer than a node may be
    silent."""
    world.attach("n0")
    world.send(world.hello("n0"))
    for _ in range(100):
        world.client.sendto(b"of others", ("127.0.0.1", world.port))
    assert world.head.sync.read(), "there is more"
    world.tick(60)
    assert world.node("n0").value("run") == "SYNC" and world.head.sync.counters["deaf"]
    while world.head.sync.read():
        pass
    world.tick(14)
    assert world.node("n0").value("run") == "SYNC", (
        "it is listened to for as long as a node may be silent"
    )
    world.tick(3)
    assert world.node("n0").value("run") == "ERROR" and "sync.lost" in world.kinds("n0")
