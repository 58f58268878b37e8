"""What a head answers a node that has devices without a driver: of the boot set that the node has
booted, nothing to strangers."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp.test_utils import TestClient

from imageapi.store.manifest import Signer
from layercake.kraken.wire import bearer
from minos.build import sets
from tests.build.test_single_modules import RELEASE, WATCHDOG, made_up, original
from tests.support.world import World, node_client

SET = "0.2.0-made-up"
QUESTION = {"release": RELEASE, "devices": [WATCHDOG, "pci:nobody"]}
NOTHING: dict[str, Any] = {"devices": {}, "modules": {}}


@pytest.fixture(scope="module")
def squashfs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_up(tmp_path_factory.mktemp("kernel"))


@pytest.fixture
async def client(world: World, squashfs: Path) -> AsyncIterator[TestClient[Any, Any]]:
    new = world.directory / "boot" / SET
    new.mkdir(parents=True)
    for name in sets.FILES:
        (new / name).write_text(name)
    (new / "minos.json").write_text(json.dumps({"kernel_release": RELEASE, "modules": ["nvme"]}))
    shutil.copyfile(squashfs, new / sets.MODULES)
    sets.sign(new, SET, Signer(world.directory / "images/signing.key").sign)
    async with node_client(world) as found:
        yield found


def joined(world: World, boot: str = SET) -> dict[str, str]:
    """The headers of a node that has booted a set."""
    record = world.node("n0")
    record.boots = msgspec.structs.replace(record.boots, runs=boot)
    session = world.attach("n0")
    return {
        "Authorization": bearer(
            session.key, bytes.fromhex(record.node.id.replace("-", "")), session.number
        )
    }


async def test_a_node_gets_modules_of_the_set_that_it_has_booted(
    world: World, client: TestClient[Any, Any]
) -> None:
    headers = joined(world)
    answer = await client.post("/node/v1/drivers", headers=headers, json=QUESTION)
    said = await answer.json()
    assert answer.status == 200 and said["devices"] == {WATCHDOG: ["i6300esb"]}
    answer = await client.get("/node/v1/modules/i6300esb", headers=headers)
    assert await answer.read() == original("i6300esb")
    answer = await client.get("/node/v1/firmware/tigon/tg3.bin", headers=headers)
    assert await answer.read() == b"microcode"
    for path in ("modules/nobody", "firmware/nobody", "firmware/..%2F..%2Fsigning.key"):
        assert (await client.get(f"/node/v1/{path}", headers=headers)).status in (400, 404)


async def test_strangers_get_nothing(world: World, client: TestClient[Any, Any]) -> None:
    joined(world)
    assert (await client.post("/node/v1/drivers", json=QUESTION)).status == 401
    for path in ("modules/i6300esb", "firmware/tigon/tg3.bin"):
        assert (await client.get(f"/node/v1/{path}")).status == 401


async def test_where_there_are_none_the_answer_is_empty(
    world: World, client: TestClient[Any, Any]
) -> None:
    answer = await client.post("/node/v1/drivers", headers=joined(world, ""), json=QUESTION)
    assert await answer.json() == NOTHING, "of a node that does not say what it has booted"
    (world.directory / "boot" / SET / sets.MODULES).unlink()
    sets.sign(
        world.directory / "boot" / SET, SET, Signer(world.directory / "images/signing.key").sign
    )
    answer = await client.post("/node/v1/drivers", headers=joined(world), json=QUESTION)
    assert await answer.json() == NOTHING, "of a set of an older Layercake"


async def test_a_set_that_is_gone_or_changed_is_refused_in_words(
    world: World, client: TestClient[Any, Any]
) -> None:
    answer = await client.post(
        "/node/v1/drivers", headers=joined(world, "0.1.0-gone"), json=QUESTION
    )
    assert answer.status == 400 and "cannot find boot set" in (await answer.json())["error"]
    (world.directory / "boot" / SET / "vmlinuz").write_text("another")
    answer = await client.post("/node/v1/drivers", headers=joined(world), json=QUESTION)
    assert (
        answer.status == 403
        and "vmlinuz was changed since it was signed" in (await answer.json())["error"]
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[",
        b"[]",
        b"3",
        b"{}",
        b'{"release": 3, "devices": []}',
        b'{"release": "x", "devices": {}}',
        b'{"release": "x", "devices": [3]}',
        json.dumps({"release": RELEASE, "devices": ["x" * 1025]}).encode(),
        json.dumps({"release": RELEASE, "devices": ["x"] * 1001}).encode(),
        json.dumps({"release": "6.6.6", "devices": ["x"]}).encode(),
    ],
)
async def test_a_question_that_is_none_is_refused(
    world: World, client: TestClient[Any, Any], body: bytes
) -> None:
    answer = await client.post("/node/v1/drivers", headers=joined(world), data=body)
    assert answer.status == 400 and (await answer.json())["error"].startswith("cannot ")


async def test_a_site_can_do_without(world: World, client: TestClient[Any, Any]) -> None:
    world.settings = msgspec.structs.replace(world.settings, more_drivers=False)
    await world.restart()
    headers = joined(world)
    async with node_client(world) as found:
        assert (
            await (await found.post("/node/v1/drivers", headers=headers, json=QUESTION)).json()
            == NOTHING
        )
        assert (await found.get("/node/v1/modules/i6300esb", headers=headers)).status == 400
