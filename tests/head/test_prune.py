"""Contents that nothing needs: what counts as needed, and that only the rest is deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from imageapi.store.store import ImageStore
from layercake.fleet.store import WantedImage
from layercake.kraken.errors import Refused
from tests.support.world import World


def squashfs(path: Path, text: str) -> Path:
    """A file that passes for an image."""
    path.write_bytes(b"hsqs" + text.encode())
    return path


async def test_what_a_name_a_node_or_its_stage_needs_stays(world: World) -> None:
    store = world.head.part(ImageStore)
    versions = [
        store.add(squashfs(world.directory / "image", f"version {n}"), "app", {}) for n in range(5)
    ]
    wanted = [WantedImage("app", v.digest, v.size, {}) for v in versions]
    world.node("n0").wanted, world.node("n0").stage = (wanted[0],), (wanted[1],)
    world.node("n1").running = (wanted[2],)
    assert await world.ops.images.prune() == [versions[3].digest]
    assert [store.has_content(v.digest) for v in versions] == [True, True, True, False, True]
    assert "image.pruned" in [e.kind for e in world.head.store.events]
    assert await world.ops.images.prune() == []


async def test_a_name_may_go_while_nodes_run_its_content(world: World) -> None:
    store = world.head.part(ImageStore)
    first = store.add(squashfs(world.directory / "image", "one content"), "app", {})
    store.add(world.directory / "image", "second", {})
    world.node("n0").running = (WantedImage("app", first.digest, first.size, {}),)
    for name in ("second", "app"):
        await world.ops.images.remove(name)
    assert store.list() == [] and store.has_content(first.digest), "n0 runs it"


async def test_what_a_node_ran_that_is_off_now_keeps_nothing(world: World) -> None:
    store = world.head.part(ImageStore)
    image = store.add(squashfs(world.directory / "image", "content"), "app", {})
    wanted = (WantedImage("app", image.digest, image.size, {}),)
    record = world.node("n0")
    record.wanted = record.running = wanted
    with pytest.raises(Refused, match="wanted by n0"):
        await world.ops.images.remove("app")
    record.wanted = ()
    world.head.engine.discover(record, {"power": "OFF"}, "test")
    await world.ops.images.remove("app")
    assert not store.has_content(image.digest)
