"""Images in a Ceph cluster, as the head tells nodes of them: how to attach, what to check against,
and a key for who needs it.

The cluster itself is not needed for any of this: the head answers from what it knows (tests/ceph
has the real one).
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from imageapi.settings import ImageSettings
from imageapi.spec.image import parse_images
from imageapi.store.rbdstore import RbdJobs
from imageapi.store.store import ImageStore
from layercake.features.images.node_keys import NodeKeyring
from layercake.fleet.store import WantedImage
from layercake.head.settings import load, save
from layercake.kraken.errors import InputError, Refused
from layercake.kraken.wire import bearer
from tests.support.world import INVENTORY, World

KEY = "QVFEc2VjcmV0c2VjcmV0c2VjcmV0"
IN_CEPH, AS_FILE = f"blake2b:{'a' * 64}", f"blake2b:{'b' * 64}"
VERITY = {
    "root_hash": "c" * 64,
    "hash_offset": 8192,
    "data_blocks": 2,
    "salt": "",
    "block_size": 4096,
}


@pytest.fixture
async def client(world: World) -> AsyncIterator[TestClient[Any, Any]]:
    directory = world.directory / "images"
    directory.mkdir()
    (directory / "node.key").write_text(KEY)
    (directory / "cluster.json").write_text(
        json.dumps(
            {
                "pool": "layercake",
                "monitors": ["10.99.0.1:6789"],
                "node_user": "node",
                "contents": {IN_CEPH: {"size": 5000, "verity": VERITY}},
            }
        )
    )
    images = ImageSettings(
        store="rbd", conf="/none/ceph.conf", keyring="/none/keyring", pool="layercake"
    )
    world.settings = msgspec.structs.replace(world.settings, sections={"images": images})
    await world.restart()
    app = web.Application()
    app.add_routes(world.head.nodes.routes())
    async with TestClient(TestServer(app)) as found:
        yield found


def wants(world: World, name: str, *digests: str) -> dict[str, str]:
    """Lets a node of a session want images; its headers."""
    record = world.node(name)
    record.wanted = tuple(
        WantedImage(f"image-{n}", digest, 5000, {}) for n, digest in enumerate(digests)
    )
    session = world.attach(name)
    return {
        "Authorization": bearer(
            session.key, bytes.fromhex(record.node.id.replace("-", "")), session.number
        )
    }


async def test_desired_says_how_to_attach_and_check_and_holds_no_key(
    world: World, client: TestClient[Any, Any]
) -> None:
    answer = await client.get("/node/v1/desired", headers=wants(world, "n0", IN_CEPH, AS_FILE))
    text = await answer.text()
    document = json.loads(text)
    assert document["images"][0]["attach"] == {
        "kind": "rbd",
        "monitors": ["10.99.0.1:6789"],
        "pool": "layercake",
        "image": f"image.{'a' * 64}",
        "snapshot": "v1",
        "user": "node",
        "secret": "ceph-layercake",
    }
    assert document["images"][0]["verity"] == VERITY
    assert "attach" not in document["images"][1], "an image of before the change to Ceph is fetched"
    assert KEY not in text
    assert [spec.to_wire()["digest"] for spec in parse_images(document["images"])] == [
        IN_CEPH,
        AS_FILE,
    ]


async def test_key_is_for_nodes_whose_images_need_it(
    world: World, client: TestClient[Any, Any]
) -> None:
    headers = wants(world, "n0", IN_CEPH)
    answer = await client.get("/node/v1/secrets/ceph-layercake", headers=headers)
    assert (answer.status, await answer.json()) == (200, {"key": KEY})
    assert (await client.get("/node/v1/secrets/node.key", headers=headers)).status == 403
    assert "secret.refused" in world.kinds("n0")
    refused = await client.get(
        "/node/v1/secrets/ceph-layercake", headers=wants(world, "n1", AS_FILE)
    )
    assert refused.status == 403
    assert KEY not in await refused.text()
    assert (await client.get("/node/v1/secrets/ceph-layercake")).status == 401
    assert KEY not in repr([list(world.events_of(n)) for n in ("n0", "n1")])


async def test_staged_image_counts_too(world: World, client: TestClient[Any, Any]) -> None:
    headers = wants(world, "n0", IN_CEPH)
    record = world.node("n0")
    record.wanted, record.stage = (), record.wanted
    assert (await client.get("/node/v1/secrets/ceph-layercake", headers=headers)).status == 200


async def test_each_node_has_a_key_of_its_own_and_gets_no_others(
    world: World, client: TestClient[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, list[str]]] = []

    def run(jobs: RbdJobs, op: str, what: str, *, users: list[str]) -> dict[str, Any]:
        asked.append((op, users))
        return {"keys": {user: f"key-of-{user}" for user in users}}

    monkeypatch.setattr(RbdJobs, "run", run)
    headers = {name: wants(world, name, IN_CEPH) for name in ("n0", "n1")}
    before = {name: world.node(name).cfg_revision for name in headers}
    keyring = world.head.part(NodeKeyring)
    assert await keyring.make(list(world.head.store)) == ["n0", "n1"]
    assert (
        await keyring.make(
            [r for r in world.head.store if not world.head.part(ImageStore).has_key(r.name)]
        )
        == []
    )
    assert asked == [("node_keys", ["layercake-node-layercake.n0", "layercake-node-layercake.n1"])]
    assert all(world.node(name).cfg_revision == before[name] + 1 for name in headers), (
        "they ask for what they are told now"
    )

    async def attach(name: str) -> dict[str, Any]:
        document = await (await client.get("/node/v1/desired", headers=headers[name])).json()
        parse_images(document["images"])
        found: dict[str, Any] = document["images"][0]["attach"]
        return found

    async def key(name: str, secret: str) -> tuple[int, str]:
        answer = await client.get(f"/node/v1/secrets/{secret}", headers=headers[name])
        return answer.status, (await answer.json()).get("key", "")

    first = {name: await attach(name) for name in headers}
    assert first["n0"]["user"] == "layercake-node-layercake.n0"
    assert await key("n0", first["n0"]["secret"]) == (200, "key-of-layercake-node-layercake.n0")
    for name, secret in (
        ("n0", first["n1"]["secret"]),
        ("n1", first["n0"]["secret"]),
        ("n0", "ceph-layercake"),
    ):
        assert await key(name, secret) == (403, ""), (
            "the key that all share is not for who has one of its own"
        )

    assert await world.ops.images.rotate_keys("n0") == ["n0"]
    second = await attach("n0")
    assert second["user"] == "layercake-node-layercake.n0.g2" and await attach("n1") == first["n1"]
    assert await key("n0", first["n0"]["secret"]) == (403, "")
    await world.ops.images.rotate_keys("n0")
    await world.ops.inventory.apply(
        INVENTORY.replace("  n1:", "  n2:").replace("n1", "n2"), "x.yaml", None, True
    )
    assert await world.ops.images.drop_old_keys("n0") == [
        "layercake-node-layercake.n0",
        "layercake-node-layercake.n0.g2",
        "layercake-node-layercake.n1",
    ]
    assert await world.ops.images.drop_old_keys("n0") == []
    assert (await attach("n0"))["user"] == "layercake-node-layercake.n0.g3"
    file = world.directory / "images/node-keys.json"
    assert file.stat().st_mode & 0o077 == 0 and "n1" not in json.loads(file.read_text())["keys"]
    told = repr([(e.text, e.data) for e in world.head.store.events])
    assert "key-of" not in told and "image.keys" in [e.kind for e in world.head.store.events]


async def test_a_store_of_files_has_no_keys(world: World) -> None:
    with pytest.raises(Refused, match="this store has none of its own"):
        await world.ops.images.rotate_keys("n0")
    assert world.head.part(ImageStore).has_key("n0")


@pytest.mark.parametrize(
    ("images", "reason"),
    [
        ({"store": "rbd"}, "images.conf, images.keyring, images.pool"),
        ({"store": "rbd", "conf": "/c", "keyring": "/k", "pool": "a b"}, "images.pool"),
        ({"store": "nfs"}, "nfs"),
    ],
)
def test_settings_that_name_no_cluster_are_refused(
    world: World, images: dict[str, str], reason: str
) -> None:
    save(world.directory, world.settings)
    path = world.directory / "config.yaml"
    data = msgspec.yaml.decode(path.read_bytes())
    path.write_bytes(msgspec.yaml.encode({**data, "images": images}))
    with pytest.raises(InputError, match=reason):
        load(world.directory)


async def test_secret_of_a_mount_is_for_nodes_whose_images_name_it_and_from_one_directory(
    world: World, client: TestClient[Any, Any]
) -> None:
    place = world.head.vault.directory / "images"
    place.mkdir(parents=True)
    (place / "array-1").write_text("chap-secret-of-array\n")
    (place / "array-1").chmod(0o600)
    (place.parent / "bmc").write_text("bmc-password")
    attach = {
        "kind": "iscsi",
        "portal": "10.0.0.1:3260",
        "target": "iqn.2026-11.org:x",
        "lun": 1,
        "user": "node",
        "secret": "array-1",
    }
    mount = {
        "target": "/data",
        "kind": "attach",
        "attach": attach,
        "fstype": "ext4",
        "options": "",
        "readonly": True,
    }
    headers, others = wants(world, "n0", AS_FILE), wants(world, "n1", AS_FILE)
    for secret in ("array-1", "bmc", "array-2"):
        image = WantedImage(
            "disks", AS_FILE, 5000, {"mounts": [{**mount, "attach": {**attach, "secret": secret}}]}
        )
        world.node("n0").wanted = (image,)
        answer = await client.get(f"/node/v1/secrets/{secret}", headers=headers)
        if secret == "array-1":
            assert (answer.status, await answer.json()) == (
                200,
                {"key": base64.b64encode(b"chap-secret-of-array").decode()},
            )
            document = await (await client.get("/node/v1/desired", headers=headers)).text()
            assert "chap-secret" not in document and parse_images(json.loads(document)["images"])
            assert (await client.get("/node/v1/secrets/array-1", headers=others)).status == 403
        else:
            assert answer.status >= 400, (
                "a password beside that directory is no node's, and what is not there is told of"
            )
            assert "secret.unreadable" in world.kinds("n0")
    told = repr([(e.text, e.data) for e in world.head.store.events])
    assert "chap-secret" not in told and "bmc-password" not in told
