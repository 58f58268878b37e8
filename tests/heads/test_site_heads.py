"""What a head tells its nodes of the heads of the site, and what it learns of another that acts."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from msgspec.structs import replace

from layercake.fleet.site_heads import SiteHead
from layercake.kraken.errors import InputError, WireError
from layercake.kraken.wire import (
    EPOCH_HEADER,
    MOST_EPOCHS,
    Kind,
    bearer,
    datagram_epoch,
    heads_epoch,
)
from layercake.moduleapi import module_pb2 as pb
from layercake.moduleapi.fast_response import PlainRequest
from layercake.moduleapi.network import HeadAddress, Network, network_record
from layercake.modules.host import ModuleHost
from tests.support.world import World, node_client


class Connection(asyncio.Transport):
    """A connection without a certificate."""


OTHER = SiteHead(
    name="other",
    addresses=(
        HeadAddress(interface="eth0", address="10.1.0.2", prefix=16),
        HeadAddress(interface="eth1", address="fd99::2", prefix=64),
    ),
    api_port=8443,
    sync_port=31415,
)


@pytest.mark.parametrize("life", [0, 1, (1 << 63) - 1], ids=["zero", "one", "most"])
def test_the_epoch_of_datagrams_is_as_it_was_while_there_is_one_head(life: int) -> None:
    assert datagram_epoch(0, life) == life and heads_epoch(life) == 0


def test_the_epoch_of_the_heads_is_in_that_of_datagrams_and_orders_them() -> None:
    lives = (0, (1 << 63) - 1)
    for epoch in (1, 2, MOST_EPOCHS):
        told = [datagram_epoch(epoch, life) for life in lives]
        assert {heads_epoch(number) for number in told} == {epoch} and max(told) < 1 << 64
        assert min(told) > max(datagram_epoch(epoch - 1, life) for life in lives)
        assert told[0] != told[1], "a head that was started again in its epoch is told from before"
    for bad in (-1, MOST_EPOCHS + 1):
        with pytest.raises(WireError):
            datagram_epoch(bad, 1)


async def test_a_head_that_is_alone_tells_nothing_of_heads(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[pb.FromHead] = []
    monkeypatch.setattr(ModuleHost, "send", lambda host, module, message: told.append(message))
    heads = world.head.heads
    heads.known([heads.own])
    world.head.modules.notifier.changed(world.node("n0"))
    document = world.head.nodes.document.of(world.node("n0"))
    assert not {"heads", "epoch"} & set(document) and world.head.store.epoch < 1 << 63
    assert told and all(b"heads" not in message.node_changed.json for message in told)


async def test_nodes_are_told_of_all_heads_the_one_that_acts_first_and_by_their_network(
    world: World,
) -> None:
    heads = world.head.heads
    heads.known([OTHER, replace(heads.own, api_port=8443, sync_port=31415)])
    heads.acts(3)
    document = world.head.nodes.document.of(world.node("n0"))
    assert document["epoch"] == 3 and document["heads"] == [
        {"name": heads.own.name, "url": "https://127.0.0.1:8443", "sync": "127.0.0.1:31415"},
        {"name": "other", "url": "https://10.1.0.2:8443", "sync": "10.1.0.2:31415"},
    ]
    six = network_record("six", Network(subnet="fd99::/64"))
    assert heads.boot_words(six) == ["https://[fd99::2]:8443@[fd99::2]:31415"]


async def test_nodes_and_those_who_boot_them_are_told_anew_once_when_the_heads_change(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[dict[str, Any]] = []

    def send(host: ModuleHost, module: str, message: pb.FromHead) -> bool:
        if module == "pxe" and message.WhichOneof("kind") == "node_changed":
            told.append(json.loads(message.node_changed.json))
        return True

    monkeypatch.setattr(ModuleHost, "send", send)
    world.attach("n0")
    world.send(world.hello("n0"))
    world.received("n0")
    before = [world.node(name).cfg_revision for name in ("n0", "n1")]
    heads = world.head.heads
    telling = asyncio.create_task(heads.run(world.head.kernel.heads_changed))
    try:
        heads.known([heads.own, OTHER])
        async with asyncio.timeout(10):
            while len(told) < 2:
                await asyncio.sleep(0)
        heads.known([OTHER, heads.own])  # the same ones
        for _ in range(10):
            await asyncio.sleep(0)
    finally:
        telling.cancel()
    assert [world.node(name).cfg_revision for name in ("n0", "n1")] == [n + 1 for n in before]
    assert world.received("n0").cfg_revision == before[0] + 1
    assert [one["other_heads"] for one in told] == [["https://10.1.0.2:8443@10.1.0.2:31415"]] * 2


async def test_a_head_knows_itself_by_its_name_and_epochs_only_grow(world: World) -> None:
    heads = world.head.heads
    with pytest.raises(InputError, match="is not among them"):
        heads.known([OTHER])
    heads.acts(2)
    heads.acts(2)
    with pytest.raises(InputError, match="epoch 1"):
        heads.acts(1)
    assert heads.epoch == 2 and heads_epoch(world.head.store.epoch) == 2


async def test_a_node_in_sync_is_challenged_when_its_head_begins_to_act_in_another_epoch(
    world: World,
) -> None:
    world.attach("n0")
    for _ in range(2):  # the second one says what the first one said
        hello = world.hello("n0")
        world.send(hello)
        assert world.received("n0").kind is Kind.DESIRED
    before = world.head.store.epoch
    world.head.heads.acts(1)
    world.send(world.hello("n0", epoch=before))
    challenge = world.received("n0")
    assert (challenge.kind, challenge.epoch) == (Kind.CHALLENGE, world.head.store.epoch)
    world.send(world.hello("n0"))
    assert world.received("n0").kind is Kind.DESIRED


async def test_a_head_that_acts_no_more_learns_of_it_by_datagrams_and_answers_none(
    world: World,
) -> None:
    heads = world.head.heads
    seen: list[int] = []
    heads.on_outdated(seen.append)
    heads.acts(4)
    world.attach("n0")
    for epoch in (5, 5, 7, 6):
        world.send(world.hello("n0", epoch=datagram_epoch(epoch, 1)))
    assert seen == [5, 7], "once for each that is higher than those before"
    assert world.node("n0").value("run") == "UNKNOWN" and world.head.sync.counters["refused"] == 4
    world.send(world.hello("n0", epoch=datagram_epoch(9, 1), key=b"x" * 32))
    assert seen == [5, 7], "what is forged tells nothing"
    world.send(world.hello("n0"))
    assert world.received("n0").kind is Kind.DESIRED, "the others are served until it steps down"


@pytest.mark.parametrize(
    ("said", "status"), [("3", 503), ("2", 200), ("1", 200), ("x", 200), ("9" * 12, 200)]
)
async def test_a_request_of_a_node_that_follows_a_later_head_is_not_served(
    world: World, said: str, status: int
) -> None:
    seen: list[int] = []
    world.head.heads.on_outdated(seen.append)
    world.head.heads.acts(2)
    session = world.attach("n0")
    node = bytes.fromhex(world.node("n0").node.id.replace("-", ""))
    headers = {"Authorization": bearer(session.key, node, session.number), EPOCH_HEADER: said}
    async with node_client(world) as client:
        answer = await client.get("/node/v1/desired", headers=headers)
        assert answer.status == status
        text = (await answer.json(content_type=None)).get("error", "")
        assert ("another head of the site" in text) == (status == 503)
    fields = f"\r\nHost: h\r\n{EPOCH_HEADER.lower()}: {said}".encode()
    asked = PlainRequest(Connection({}), "/node/v1/desired", None, headers["Authorization"], fields)
    assert (world.head.nodes.quick(asked) is None) == (status == 503)
    assert seen == ([3] if status == 503 else [])


def test_no_two_heads_that_acted_give_the_same_revision(world: World) -> None:
    """What one has told a node it may not have written before it ended."""
    store = world.head.store
    record = world.node("n0")
    given: list[int] = []
    for epoch in (3, 4):
        world.head.heads.acts(epoch)
        record.cfg_revision = 7  # as it was read
        for _ in range(3):
            store.revise(record)
            given.append(record.cfg_revision)
    assert given == sorted(set(given)) and given[0] > 7
