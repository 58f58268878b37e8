"""Images in a Ceph cluster, as the head tells nodes of them: how to attach, what to check against, and a key for who needs it.

The cluster itself is not needed for any of this: the head answers from what it knows (tests/ceph has the real one).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from imageapi.settings import ImageSettings
from imageapi.spec.image import parse_images
from layercake.head.settings import load, save
from layercake.head.state.store import WantedImage
from layercake.kraken.errors import InputError
from layercake.kraken.wire import bearer
from tests.support.world import World

KEY = "QVFEc2VjcmV0c2VjcmV0c2VjcmV0"
IN_CEPH, AS_FILE = f"blake2b:{'a' * 64}", f"blake2b:{'b' * 64}"
VERITY = {"root_hash": "c" * 64, "hash_offset": 8192, "data_blocks": 2, "salt": "", "block_size": 4096}


@pytest.fixture
async def client(world: World) -> AsyncIterator[TestClient[Any, Any]]:
    directory = world.directory / "images"
    directory.mkdir()
    (directory / "node.key").write_text(KEY)
    (directory / "cluster.json").write_text(json.dumps({
        "pool": "layercake", "monitors": ["10.99.0.1:6789"], "node_user": "node",
        "contents": {IN_CEPH: {"size": 5000, "verity": VERITY}}}))
    images = ImageSettings(store="rbd", conf="/none/ceph.conf", keyring="/none/keyring", pool="layercake")
    world.settings = msgspec.structs.replace(world.settings, sections={"images": images})
    await world.restart()
    app = web.Application()
    app.add_routes(world.head.nodes.routes())
    async with TestClient(TestServer(app)) as found:
        yield found


def wants(world: World, name: str, *digests: str) -> dict[str, str]:
    """Lets a node of a session want images; its headers."""
    record = world.node(name)
    record.wanted = tuple(WantedImage(f"image-{n}", digest, 5000, {}) for n, digest in enumerate(digests))
    session = world.attach(name)
    return {"Authorization": bearer(session.key, bytes.fromhex(record.node.id.replace("-", "")), session.number)}


async def test_desired_says_how_to_attach_and_check_and_holds_no_key(world: World, client: TestClient[Any, Any]) -> None:
    answer = await client.get("/node/v1/desired", headers=wants(world, "n0", IN_CEPH, AS_FILE))
    text = await answer.text()
    document = json.loads(text)
    assert document["images"][0]["attach"] == {
        "kind": "rbd", "monitors": ["10.99.0.1:6789"], "pool": "layercake", "image": f"image.{'a' * 64}", "snapshot": "v1",
        "user": "node", "secret": "ceph-layercake"}
    assert document["images"][0]["verity"] == VERITY
    assert "attach" not in document["images"][1], "an image of before the change to Ceph is fetched"
    assert KEY not in text
    assert [spec.to_wire()["digest"] for spec in parse_images(document["images"])] == [IN_CEPH, AS_FILE]


async def test_key_is_for_nodes_whose_images_need_it(world: World, client: TestClient[Any, Any]) -> None:
    headers = wants(world, "n0", IN_CEPH)
    answer = await client.get("/node/v1/secrets/ceph-layercake", headers=headers)
    assert (answer.status, await answer.json()) == (200, {"key": KEY})
    assert (await client.get("/node/v1/secrets/node.key", headers=headers)).status == 403
    assert "secret.refused" in world.kinds("n0")
    refused = await client.get("/node/v1/secrets/ceph-layercake", headers=wants(world, "n1", AS_FILE))
    assert refused.status == 403
    assert KEY not in await refused.text()
    assert (await client.get("/node/v1/secrets/ceph-layercake")).status == 401
    assert KEY not in repr([list(world.node(n).history) for n in ("n0", "n1")])


async def test_staged_image_counts_too(world: World, client: TestClient[Any, Any]) -> None:
    headers = wants(world, "n0", IN_CEPH)
    record = world.node("n0")
    record.wanted, record.stage = (), record.wanted
    assert (await client.get("/node/v1/secrets/ceph-layercake", headers=headers)).status == 200


@pytest.mark.parametrize(("images", "reason"), [
    ({"store": "rbd"}, "images.conf, images.keyring, images.pool"),
    ({"store": "rbd", "conf": "/c", "keyring": "/k", "pool": "a b"}, "images.pool"),
    ({"store": "nfs"}, "nfs"),
])
def test_settings_that_name_no_cluster_are_refused(world: World, images: dict[str, str], reason: str) -> None:
    save(world.directory, world.settings)
    path = world.directory / "config.yaml"
    data = msgspec.yaml.decode(path.read_bytes())
    path.write_bytes(msgspec.yaml.encode({**data, "images": images}))
    with pytest.raises(InputError, match=reason):
        load(world.directory)
