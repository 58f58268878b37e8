"""Text that no screen and no database can hold: half a surrogate pair, zero bytes, JSON without a
bottom.

From strangers and from nodes; each of these once broke the event list, the node list and the flush
for good.
"""

from __future__ import annotations

import base64
import io
import json
import time
from typing import Any

import msgspec
import pytest
from aiohttp.test_utils import TestClient

from layercake.base.text import clean, parse_json
from layercake.features.events.views import event_view
from layercake.features.guard.guard import Guard
from layercake.features.nodes.explain import explain_text, explain_view
from layercake.features.nodes.views import node_view
from layercake.fleet import events
from layercake.kraken.wire import bearer
from tests.support.disk import on_disk
from tests.support.world import World

HALF = '"\\ud800 half\\u0000"'
"""As it stands in JSON."""


async def all_is_shown_and_written(world: World) -> None:
    """What a person asks for, as the API sends it; and all of it gets to the disk."""
    head = world.head
    msgspec.json.encode([event_view(e) for e in head.store.events])
    for record in head.store:
        msgspec.json.encode(node_view(record, world.clock(), head.table))
        explain_text(explain_view(record, world.clock(), head.part(Guard))).encode()
    await head.database.flush(head.store)
    assert (
        not head.store.dirty
        and not head.store.new_events
        and head.database.health.view(head.store)["well"]
    )


async def test_a_stranger_cannot_put_half_a_character_into_the_history(
    world: World, client: TestClient[Any, Any]
) -> None:
    claim = {
        "node": world.node("n0").node.id,
        "token": "wrong",
        "mac": "52:54:00:00:00:10",
        "version": "1",
    }
    body = json.dumps(claim)[:-1] + f', "boot_id": {HALF}}}'
    assert (await client.post("/node/v1/join", data=body)).status == 403
    refused = [e for e in world.events_of("n0") if e.kind == "join.refused"]
    assert refused[0].data["boot_id"] == "\ufffd half\ufffd"
    await all_is_shown_and_written(world)


async def test_a_joined_node_cannot_break_the_lists_and_the_flush(
    world: World, client: TestClient[Any, Any]
) -> None:
    token = world.head.joining.open(world.node("n0"), 60)
    claim = {
        "node": world.node("n0").node.id,
        "token": token,
        "mac": "52:54:00:00:00:10",
        "version": "1",
    }
    answer = await client.post(
        "/node/v1/join", data=json.dumps(claim)[:-1] + f', "boot_id": {HALF}, "boot": {HALF}}}'
    )
    joined = await answer.json()
    assert answer.status == 200
    node = bytes.fromhex(claim["node"].replace("-", ""))
    headers = {"Authorization": bearer(base64.b64decode(joined["key"]), node, joined["session"])}
    container = {
        "name": "x",
        "digest": "",
        "state": "running",
        "health": "",
        "pid": 1,
        "started_s": 1.0,
        "retries": 0,
        "last_error": "NOERROR",
        "error": "",
        "retry_in_s": None,
    }
    told = [
        {"kind": "image.containers", "text": "", "data": {"containers": [container]}},
        {"kind": "image.unhealthy", "text": "x", "data": {"x": 1}},
        {"kind": "x", "text": "x", "data": {"x": [{"x": "x"}]}},
    ]
    body = json.dumps(told).replace('"x"', HALF)
    assert (await client.post("/node/v1/events", data=body, headers=headers)).status == 200
    world.send(world.hello("n0", image="ACTIVE"))
    assert world.node("n0").containers[0]["name"] == "\ufffd half\ufffd"
    await all_is_shown_and_written(world)
    deep = "[" * 100_000 + "]" * 100_000
    assert (await client.post("/node/v1/events", data=deep, headers=headers)).status == 400


async def test_a_joined_node_cannot_forge_what_others_tell_nor_push_it_out(
    world: World, client: TestClient[Any, Any]
) -> None:
    token = world.head.joining.open(world.node("n0"), 60)
    claim = {
        "node": world.node("n0").node.id,
        "token": token,
        "mac": "52:54:00:00:00:10",
        "version": "1",
        "boot_id": "b",
    }
    joined = await (await client.post("/node/v1/join", json=claim)).json()
    node = bytes.fromhex(claim["node"].replace("-", ""))
    headers = {"Authorization": bearer(base64.b64decode(joined["key"]), node, joined["session"])}
    forged = [
        {"kind": "node.exec", "text": "ann runs rm -rf /", "data": {"by": "ann"}},
        {"kind": "roll.failed", "text": "x"},
    ]
    assert (await client.post("/node/v1/events", json=forged, headers=headers)).status == 200
    told = world.events_of("n0")
    assert not [e for e in told if e.kind in ("node.exec", "roll.failed")]
    assert [e.text for e in told if e.kind == "node.event"] == [
        "node.exec: ann runs rm -rf /",
        "roll.failed: x",
    ]
    large = [{"kind": "container.exited", "text": "x" * 500_000, "data": {"x": "y" * 3_000_000}}]
    body = io.BytesIO(json.dumps(large).encode())
    assert (await client.post("/node/v1/events", data=body, headers=headers)).status == 200
    kept = next(e for e in world.events_of("n0") if e.kind == "container.exited")
    assert len(kept.text) == 2000 and kept.data == {"left out": "3000008 bytes"}
    before = len(world.head.store.events)
    for _ in range(10):
        many = [{"kind": "container.exited", "text": "x"}] * 500
        assert (await client.post("/node/v1/events", json=many, headers=headers)).status == 200
    assert len(world.head.store.events) - before < 600, "the history of all others is still there"
    world.head.nodes.intake.flood_s = 0.3
    began = time.monotonic()
    assert (await client.post("/node/v1/events", json=many, headers=headers)).status == 200
    assert time.monotonic() - began >= 0.3, (
        "it waits for the answer, and takes less of the head's time"
    )


async def test_a_record_that_cannot_be_written_is_named_and_nothing_else_is_lost(
    world: World,
) -> None:
    world.node("n0").containers = ()
    world.node("n0").changed_at = object()  # type: ignore[assignment]
    world.head.store.mark(world.node("n0"))
    world.node("n1").acked = 4711
    world.head.store.mark(world.node("n1"))
    world.head.store.event(world.node("n1"), events.NODE_EVENT, "x", data={"odd": object()})
    await world.head.database.flush(world.head.store)
    rows = {
        json.loads(data)["node"]["name"]: json.loads(data)
        for (data,) in on_disk(world.directory, "SELECT data FROM nodes")
    }
    assert rows["n1"]["acked"] == 4711
    told = [e for e in world.events_of("n0") if e.kind == "database.record-unwritten"]
    assert len(told) == 1 and "type object is unsupported" in told[0].text
    await world.head.database.flush(world.head.store)
    assert len([e for e in world.events_of("n0") if e.kind == "database.record-unwritten"]) == 1, (
        "it is told once"
    )
    (data,) = on_disk(world.directory, "SELECT data FROM events WHERE kind = 'node.event'")
    assert "type object is unsupported" in json.loads(data[0])["not written"]
    world.node("n0").changed_at = 5.0
    await world.head.database.flush(world.head.store)
    assert not world.head.store.dirty


def test_json_from_outside() -> None:
    assert parse_json('{"a\\ud800": ["\\udfff", 1, null, "ä\\u0000"]}') == {
        "a\ufffd": ["\ufffd", 1, None, "ä\ufffd"]
    }
    assert parse_json(b'"\xed\xa0\x80"') == "\ufffd", "as bytes, too"
    assert parse_json('"\\ud83d\\ude00"') == "😀" == clean("😀")
    with pytest.raises(ValueError, match="too deeply"):
        parse_json("[" * 100_000)
