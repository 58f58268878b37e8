"""What a head knows of its nodes' containers, and which sets it refuses before any node hears of
them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from imageapi.store.store import ImageStore
from layercake.features.nodes.views import node_view, status_of
from layercake.kraken.errors import InputError
from layercake.kraken.wire import bearer, node_text
from tests.support.world import INVENTORY, World

WEB: dict[str, Any] = {
    "name": "web",
    "digest": "blake2b:" + "a" * 64,
    "state": "running",
    "health": "unhealthy",
    "pid": 7,
    "started_s": 5.0,
    "retries": 1,
    "last_error": "UNHEALTHY",
    "error": "image web is unhealthy: HTTP status 503",
    "retry_in_s": 4.0,
}


def add(world: World, directory: Path, name: str, **container: Any) -> None:
    file = directory / f"{name.replace(':', '_')}.squashfs"
    file.write_bytes(b"hsqs" + name.encode())
    world.head.part(ImageStore).add(file, name, container)


async def tell(world: World, *events: dict[str, Any]) -> int:
    record = world.node("n0")
    session = record.session
    assert session is not None
    app = web.Application()
    app.add_routes(world.head.nodes.routes())
    credential = bearer(session.key, bytes.fromhex(record.node.id.replace("-", "")), session.number)
    assert node_text(bytes.fromhex(record.node.id.replace("-", ""))) == record.node.id
    async with TestClient(TestServer(app)) as client:
        answer = await client.post(
            "/node/v1/events", json=list(events), headers={"Authorization": credential}
        )
        return answer.status


async def test_sets_that_could_never_start_are_refused_before_anything_changes(
    world: World, tmp_path: Path
) -> None:
    add(world, tmp_path, "web", depends=["db"])
    add(world, tmp_path, "db:15.2")
    add(world, tmp_path, "a", depends=["b"])
    add(world, tmp_path, "b", depends=["a"])
    revision = world.node("n0").cfg_revision

    def wanting(images: str) -> str:
        return INVENTORY.replace("ip: 10.1.0.11", f"images: [{images}], ip: 10.1.0.11")

    for images, text in (("web", "web depends on db, which is not in it"), ("a, b", "a -> b -> a")):
        with pytest.raises(InputError, match=f"the images of n1: .*{text}"):
            await world.ops.inventory.plan(wanting(images), "x.yaml")
        with pytest.raises(InputError, match=text):
            await world.ops.inventory.apply(wanting(images), "x.yaml", None, False)
    await world.ops.inventory.apply(wanting("web, 'db:15.2'"), "x.yaml", None, False)
    assert {i.name for i in world.node("n1").wanted} == {"web", "db:15.2"}
    with pytest.raises(InputError, match="web depends on db"):
        await world.ops.rolls.at_once("n0", "web", None)
    assert world.node("n0").cfg_revision == revision


async def test_containers_are_shown_as_the_node_tells_them(world: World) -> None:
    world.attach("n0")
    world.send(world.hello("n0", image="ERROR"))
    known = len(world.kinds("n0"))
    bad = [{**WEB, "name": 5}, {**WEB, "extra": 1}, {"name": "x"}, "text"]
    told = {
        "kind": "image.containers",
        "text": "web unhealthy",
        "data": {"containers": [WEB, *bad]},
    }
    assert await tell(world, told) == 200
    record = world.node("n0")
    assert node_view(record, world.clock(), world.head.table)["containers"] == [WEB, WEB]
    assert record.unhealthy == WEB["error"]
    assert len(world.kinds("n0")) == known, "how things are is no history"
    well = {**WEB, "health": "healthy", "last_error": "NOERROR"}
    await tell(
        world,
        {**told, "data": {"containers": [well]}},
        {"kind": "node.api", "data": {"port": 8444}},
    )
    assert record.unhealthy == "" and record.api_port == 8444
    await tell(
        world,
        {"kind": "node.api", "data": {"port": "22; rm"}},
        {"kind": "image.containers", "data": {"containers": None}},
    )
    assert record.api_port == 0 and record.containers == ()


async def test_a_node_that_gave_up_says_which_container_and_why(world: World) -> None:
    world.attach("n0")
    world.send(world.hello("n0", image="FATAL"))
    assert status_of(world.node("n0"), world.clock())[1] == "the node has given up on its images"
    dead = {**WEB, "last_error": "MAX_DEATHS", "retry_in_s": None}
    await tell(world, {"kind": "image.containers", "data": {"containers": [dead]}})
    assert (
        status_of(world.node("n0"), world.clock())[1]
        == "the node has given up on web: image web is unhealthy: HTTP status 503"
    )
