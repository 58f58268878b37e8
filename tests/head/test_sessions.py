"""The life of a session: one boot, one node, one session; and what strangers with a right token do
to it.

The attacks are those that worked: a stranger with a node's address took its boot script and joined;
a session that was taken outlived power-off and the next boot.
"""

from __future__ import annotations

import base64
from typing import Any

from aiohttp.test_utils import TestClient

from layercake.kraken.converge import Cleared, Discovered
from layercake.kraken.wire import Kind, bearer, decode
from tests.support.world import World, node_client

Client = TestClient[Any, Any]


def claim(
    world: World, token: str, boot: str = "boot-of-the-node", mac: str = "52:54:00:00:00:10"
) -> dict[str, str]:
    return {
        "node": world.node("n0").node.id,
        "token": token,
        "boot_id": boot,
        "mac": mac,
        "version": "1",
    }


async def joined(world: World, client: Client, boot: str = "boot-of-the-node") -> dict[str, str]:
    """Boots n0 and has it join; the header that its session is known by."""
    token = world.head.joining.open(world.node("n0"), 60)
    answer = await (await client.post("/node/v1/join", json=claim(world, token, boot))).json()
    node = bytes.fromhex(world.node("n0").node.id.replace("-", ""))
    return {"Authorization": bearer(base64.b64decode(answer["key"]), node, answer["session"])}


def disputed(world: World) -> bool:
    """Whether n0 is in quarantine, without a session, and said to be claimed by two machines."""
    record = world.node("n0")
    quarantine = record.machine.quarantine
    return (
        record.session is None
        and quarantine is not None
        and "two machines claim to be n0" in quarantine.reason
        and "join.disputed" in world.kinds("n0")
    )


async def test_a_second_claim_ends_both_and_a_person_has_to_look(
    world: World, client: Client
) -> None:
    token = world.head.joining.open(world.node("n0"), 60)
    thief = await client.post("/node/v1/join", json=claim(world, token, "boot-of-a-thief"))
    assert thief.status == 200
    world.send(world.hello("n0"))
    assert world.node("n0").value("run") == "SYNC", "the thief says that all is well"
    real = await client.post("/node/v1/join", json=claim(world, token))
    assert (real.status, "used before" in (await real.json())["error"]) == (403, True)
    assert disputed(world)
    assert world.node("n0").value("run") != "SYNC", "it is not shown as if all were well"
    assert (
        await client.post("/node/v1/join", json=claim(world, token, "boot-of-a-thief"))
    ).status == 403
    world.head.engine.post(world.node("n0"), Cleared("ann"))
    assert world.node("n0").machine.quarantine is None
    header = await joined(world, client)
    assert (await client.get("/node/v1/desired", headers=header)).status == 200, (
        "the real node gets in with the next boot"
    )


async def test_a_token_with_another_mac_or_from_elsewhere_is_worth_nothing_to_anybody(
    world: World, client: Client
) -> None:
    token = world.head.joining.open(world.node("n0"), 60)
    assert (
        await client.post("/node/v1/join", json=claim(world, token, mac="52:54:00:00:00:99"))
    ).status == 403
    assert disputed(world)
    assert (await client.post("/node/v1/join", json=claim(world, token))).status == 403, (
        "the window is closed"
    )
    world.head.engine.post(world.node("n0"), Cleared("ann"))
    token = world.head.joining.open(world.node("n0"), 60)
    async with node_client(world, "10.1.0.66") as stranger:
        assert (await stranger.post("/node/v1/join", json=claim(world, token))).status == 403
    assert disputed(world)


async def test_the_quarantine_of_a_dispute_ends_by_a_person_only(
    world: World, client: Client
) -> None:
    token = world.head.joining.open(world.node("n0"), 60)
    await client.post("/node/v1/join", json=claim(world, token, mac="52:54:00:00:00:99"))
    for values in (
        {"power": "OFF"},
        {"power": "ON"},
        {"run": "SYNC", "image": "IDLE", "busy": "FREE"},
    ):
        world.head.engine.post(world.node("n0"), Discovered(values, "seen"))
        world.tick(3)
        assert world.node("n0").machine.quarantine is not None
    await world.restart()
    assert world.node("n0").machine.quarantine is not None
    await world.ops.nodes.clear("n0")
    assert world.node("n0").machine.quarantine is None


async def test_a_session_ends_when_the_node_is_seen_off(world: World, client: Client) -> None:
    header = await joined(world, client)
    old = world.hello("n0")
    world.send(old)
    assert (await client.get("/node/v1/desired", headers=header)).status == 200
    world.head.engine.post(world.node("n0"), Discovered({"power": "OFF"}, "the BMC says so"))
    assert world.node("n0").session is None
    for method, path in (
        ("GET", "desired"),
        ("GET", "secrets/x"),
        ("POST", "events"),
        ("POST", "answers/1"),
    ):
        assert (
            await client.request(method, f"/node/v1/{path}", headers=header, data="[]")
        ).status == 401, path


async def test_what_had_a_session_cannot_close_the_next_boots_window(
    world: World, client: Client
) -> None:
    await joined(world, client, "boot-of-a-thief")
    record = world.node("n0")
    session = record.session
    assert session is not None
    late = [world.hello("n0"), world.hello("n0")]
    token = world.head.joining.open(record, 60)
    assert record.session is None, "a new boot ends the session from before"
    before = record.machine.state
    for datagram in late:
        world.send(datagram)
    assert record.machine.state == before, "it is not listened to"
    assert world.kinds("n0").count("session.stale") == 1, "but told of, once"
    assert (await client.post("/node/v1/join", json=claim(world, token))).status == 200
    world.send(world.hello("n0"))
    assert (
        decode(world.client.recv(2048), record.session.key if record.session else b"").kind
        is Kind.DESIRED
    )


async def test_a_reset_leaves_no_session_behind_after_a_restart_of_the_head(
    world: World, client: Client
) -> None:
    header = await joined(world, client)
    world.head.engine.post(world.node("n0"), Discovered({"power": "OFF"}, "the BMC says so"))
    await world.restart()
    async with node_client(world) as anew:
        assert (await anew.get("/node/v1/desired", headers=header)).status == 401


async def test_a_claim_that_is_only_late_harms_nobody(world: World, client: Client) -> None:
    token = world.head.joining.open(world.node("n0"), 60)
    assert (await client.post("/node/v1/join", json=claim(world, token))).status == 200
    world.send(world.hello("n0"))
    world.clock.now += 3600
    world.send(world.hello("n0"))
    assert (
        await client.post("/node/v1/join", json=claim(world, token, "of-a-tenant"))
    ).status == 403
    assert world.node("n0").session is not None and world.node("n0").machine.quarantine is None


async def test_strangers_push_nothing_out_of_the_history(world: World, client: Client) -> None:
    first = world.head.store.newest_event
    world.head.joining.open(world.node("n0"), 6000)
    for number in range(5200):
        bad = {**claim(world, "x" * 32), "boot_id": str(number)}
        assert (await client.post("/node/v1/join", json=bad)).status == 403
    alarms = [e for e in world.head.store.alarms if e.id > first]
    assert [e.kind for e in alarms] == ["join.refused"], "it is told once"
    world.tick(61)
    world.head.store.count()
    told = world.head.store.alarms[-1]
    assert (told.kind, told.data["count"], told.data["addresses"]) == ("join.refused", 5199, 1)
    assert "inventory.added" in [e.kind for e in world.head.store.events], (
        "what was there before is there"
    )
    await world.restart()
    assert told.text in [e.text for e in world.head.store.alarms], "and it is in the database"
