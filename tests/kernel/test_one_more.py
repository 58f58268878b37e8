"""What one more field of nodes and one more setting cost: the places that CONTRIBUTING.md names,
and no other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import pytest
from aiohttp.test_utils import TestClient, TestServer
from msgspec import Meta

from layercake.features.nodes.answers import NodeList
from layercake.head.features import FEATURES
from layercake.head.head import Head
from layercake.head.settings import FILE_NAME, Settings
from layercake.inventory import structs
from layercake.inventory.problems import InventoryErrors
from layercake.kernel.feature import Feature, NodeField, Running
from layercake.kernel.kernel import Kernel
from tests.support.api import not_described, token
from tests.support.clock import FakeClock
from tests.support.operations import Operations
from tests.support.world import INVENTORY

SECTION = "shelf_height"


class MoreSettings(Settings, frozen=True):
    """One more setting: where it is declared. The feature that asks for it is the second place."""

    shelf_height: Annotated[int, Meta(ge=1, le=60, description="Units of a shelf.")] = 4


def start(kernel: Kernel) -> Running:
    """A feature that keeps one more fact of nodes, and shows it."""
    height = kernel.section(SECTION)
    shelves = {"n0": 2 * height}
    field = NodeField(
        lambda record: shelves.get(record.name),
        {"shelf": lambda record: (shelves[record.name],) if record.name in shelves else ()},
        amounts=frozenset({"shelf"}),
    )
    return Running(fields={"shelf": field})


def read(directory: Path, text: str) -> MoreSettings:
    path = directory / FILE_NAME
    path.write_text(f"interface: lo\naddress: 127.0.0.1\napi_port: 0\n{text}")
    root, problems = structs.read_file(path, "settings")
    found = structs.read(root, MoreSettings, problems)
    problems.raise_if_any()
    assert found is not None
    return found


async def test_a_field_of_a_feature_is_listed_and_queried(tmp_path: Path) -> None:
    settings = read(tmp_path, f"socket: {tmp_path}/api.sock\nsync: {{port: 0}}\nshelf_height: 21\n")
    features = [*FEATURES, Feature("shelves", start)]
    head = Head(tmp_path, settings, FakeClock(), features=features)
    head.load()
    try:
        await Operations(head).inventory.apply(INVENTORY, "test.yaml", None, False)
        application = head.api().application(local=False)
        headers = await token(head, "ann", "admin")
        async with TestClient(TestServer(application), headers=headers) as client:
            asked = {"fields": "name,shelf", "where": "shelf > 40"}
            async with client.get("/v1/nodes", params=asked) as answer:
                found = await answer.json()
            async with client.get("/v1/nodes", params={"fields": "shelves"}) as answer:
                assert answer.status == 400 and "shelf" in await answer.text()
        assert found["nodes"] == [{"name": "n0", "shelf": 42}]
        described = msgspec.to_builtins(msgspec.convert(found, NodeList))
        assert not_described(found, described) == [".nodes[].shelf"], (
            "the third place, and no other"
        )
    finally:
        await head.features.stop()
        await head.database.close(head.store)


def test_a_setting_is_checked_with_its_line(tmp_path: Path) -> None:
    assert read(tmp_path, "").shelf_height == 4
    with pytest.raises(InventoryErrors, match=r":4:\d+: .*shelf_height"):
        read(tmp_path, "shelf_height: 61\n")
