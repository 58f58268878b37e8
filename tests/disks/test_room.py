"""The disks on the head: what a node is told, a person's word, keys, and what is left of them after
a kill."""

from __future__ import annotations

from typing import Any

import pytest

from layercake.features.disks.node_disks import NodeDisks
from layercake.features.disks.said import parse_disks
from layercake.kraken.errors import InputError, NotFound, Refused
from layercake.kraken.wire import bearer
from tests.support.world import World, node_client

SITE = """
defaults: {console: ttyS0, images: []}
nodes:
  n0:
    mac: "52:54:00:00:00:10"
    ip: 10.1.0.10
    disks:
      data: {match: {transport: nvme}, kept: true, encrypt: kept, wipe: [S1], volumes: {data: {mount: /data}}}
      scratch: {match: {transport: ata}, encrypt: boot, volumes: {scratch: {mount: /scratch}}}
  n1: {mac: "52:54:00:00:00:11", ip: 10.1.0.11, firmware: uefi}
"""
DISK: dict[str, Any] = {
    "name": "nvme0n1",
    "names": ["nvme.1-2-3", "S1"],
    "bytes": 1 << 40,
    "model": "ACME",
    "layout": "data",
    "holds": "ntfs 'Windows'",
    "mark": "m1",
}
REPORT: dict[str, Any] = {
    "state": "FOREIGN",
    "disks": [
        DISK,
        {"name": "sda", "names": ["S2"], "holds": "ext4", "mark": "m2"},
        {"name": "sdb", "names": ["S3"]},
    ],
    "layouts": [{"name": "data", "state": "FOREIGN", "why": "disk nvme0n1 holds ntfs"}],
}


@pytest.fixture
async def site(world: World) -> World:
    await world.ops.inventory.apply(SITE, "site.yaml", None, False)
    return world


def words(world: World) -> list[dict[str, Any]]:
    return list(
        world.head.part(NodeDisks).document(world.node("n0"), lambda content, node: content)[
            "disk_words"
        ]
    )


def test_a_report_is_bounded_and_harmless() -> None:
    found = parse_disks(
        {
            **REPORT,
            "disks": [{**DISK, "model": "\x1b[31mred", "bytes": -5, "holds": "x" * 9000}] * 100,
        }
    )
    assert found is not None and len(found.disks) == 64
    assert (found.disks[0].model, found.disks[0].bytes, len(found.disks[0].holds)) == (
        "?[31mred",
        0,
        400,
    )
    wrong: list[Any] = [
        None,
        [],
        {"state": "FINE"},
        {**REPORT, "disks": [{"name": 5}]},
        {**REPORT, "layouts": "x"},
    ]
    assert [parse_disks(one) for one in wrong] == [None] * 5


async def test_a_word_is_for_one_disk_as_it_was_seen(site: World) -> None:
    room, node = site.head.part(NodeDisks), site.node("n0")
    with pytest.raises(NotFound, match="has said nothing of its disks"):
        await room.wipe(node, "S1", "m1", "root")
    room.apply_report(node, REPORT)
    with pytest.raises(NotFound, match="cannot find disk 'S9'"):
        await room.wipe(node, "S9", "m1", "root")
    with pytest.raises(InputError, match="nothing on it is in the way"):
        await room.wipe(node, "S3", "", "root")
    with pytest.raises(Refused, match="the inventory does not name it") as caught:
        await room.wipe(node, "S2", "m2", "root")
    assert "wipe: [S2]" in caught.value.hint
    with pytest.raises(Refused, match="holds something else now"):
        await room.wipe(node, "S1", "m0", "root")
    assert words(site) == []
    revision = node.cfg_revision
    answer = await site.ops.machines.wipe("n0", "S1", "m1", "root")
    assert answer["disk"]["name"] == "nvme0n1" and node.cfg_revision > revision
    (told,) = words(site)
    assert (told["disk"], told["mark"]) == ("S1", "m1")
    assert "disk.given-free" in site.kinds("n0")
    assert "was given free" in " ".join(room.troubles(node))


async def test_a_word_outlives_the_head_and_is_gone_when_it_was_used(site: World) -> None:
    site.head.part(NodeDisks).apply_report(site.node("n0"), REPORT)
    await site.ops.machines.wipe("n0", "S1", "m1", "root")
    (told,) = words(site)
    await site.restart()
    assert words(site) == [told], "kill -9 between the word and the wipe"
    site.head.part(NodeDisks).apply_report(
        site.node("n0"), {"state": "READY", "disks": [], "layouts": [], "done": [told["id"]]}
    )
    assert words(site) == []
    await site.restart()
    assert words(site) == []


async def test_what_people_are_told_to_do(site: World) -> None:
    node = site.node("n0")
    site.head.part(NodeDisks).apply_report(node, REPORT)
    lines = site.head.part(NodeDisks).troubles(node)
    assert lines[0] == "layout data: disk nvme0n1 holds ntfs"
    assert "layercake machine wipe n0" in lines[1] and "`wipe: [S2]`" in lines[2]
    assert site.head.part(NodeDisks).troubles(site.node("n1")) == []
    assert site.ops.machines.disks("n1") == {
        "node": "n1",
        "layouts": [],
        "disks": [],
        "state": "UNKNOWN",
        "words": [],
    }
    assert site.ops.machines.disks("n0")["disks"][0]["holds"] == "ntfs 'Windows'"


async def test_a_key_is_made_once_and_only_for_what_is_kept(site: World) -> None:
    client = node_client(site)
    async with client:
        node = site.node("n0")
        session = site.attach("n0")
        site.attach("n1")
        import uuid

        async def key(name: str, layout: str) -> tuple[int, Any]:
            record = site.node(name)
            assert record.session is not None
            headers = {
                "Authorization": bearer(
                    record.session.key, uuid.UUID(record.node.id).bytes, record.session.number
                )
            }
            answer = await client.get(f"/node/v1/disk-key/{layout}", headers=headers)
            return answer.status, await answer.json()

        status, made = await key("n0", "data")
        assert status == 200 and len(made["key"]) == 88
        assert await key("n0", "data") == (200, made)
        assert (await key("n0", "scratch"))[0] == 403, (
            "its key is thrown away at the end of the boot"
        )
        assert (await key("n1", "data"))[0] == 403
        events = " ".join(f"{e.text} {e.data}" for e in site.head.store.events)
        assert made["key"] not in events
        assert session.number == 7
        await site.restart()
        assert await site.head.part(NodeDisks).key(site.node("n0"), "data") == made["key"]
        site.head.part(NodeDisks).forget(site.node("n0"))
        assert await site.head.part(NodeDisks).key(site.node("n0"), "data") != made["key"]
        assert node.name == "n0"


async def test_nodes_without_disks_are_told_nothing(site: World) -> None:
    assert site.head.part(NodeDisks).document(site.node("n1"), lambda content, node: content) == {}
    assert site.head.part(NodeDisks).document(site.node("n0"), lambda content, node: content) == {
        "disk_words": []
    }
