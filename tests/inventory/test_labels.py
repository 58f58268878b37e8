"""The key `labels`: layers are put over each other key by key, and nodes are asked for by them."""

from __future__ import annotations

from pathlib import Path

import pytest

from layercake.fleet.wishes import wishes
from layercake.head.modules import standard
from layercake.inventory.problems import InventoryErrors
from layercake.inventory.schema import Node
from tests.support.api import served
from tests.support.inventory import load
from tests.support.world import opened

SITE = """\
defaults: {images: [], labels: {site: lab, rack: none}}
groups: {r7: {labels: {rack: r7}}}
nodes:
  n0: {mac: "52:54:00:00:00:10", ip: 10.1.0.10, groups: [r7], labels: {owner: physics, unit: 12}}
  n1: {mac: "52:54:00:00:00:11", ip: 10.1.0.11, firmware: uefi}
"""


def test_layers_are_merged_key_by_key() -> None:
    nodes = load(SITE).nodes
    assert wishes(nodes["n0"]).labels == {
        "site": "lab",
        "rack": "r7",
        "owner": "physics",
        "unit": "12",
    }
    assert wishes(nodes["n1"]).labels == {"site": "lab", "rack": "none"}
    for node in nodes.values():
        assert Node.from_record(node.to_record(), standard().parts) == node


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("x", "expected a mapping"),
        ("{'a b': c}", "is no label's key"),
        ("{a: true}", "is no label's value"),
        ("{a: ''}", "is no label's value"),
    ],
)
def test_mistakes_are_told_with_their_line(what: str, said: str) -> None:
    with pytest.raises(InventoryErrors) as caught:
        load(f"nodes:\n  n0:\n    mac: 52:54:00:00:00:10\n    ip: 10.99.0.10\n    labels: {what}\n")
    assert said in caught.value.problems[0].message and caught.value.problems[0].line == 5


async def test_nodes_are_asked_for_by_them(tmp_path: Path) -> None:
    async with opened(tmp_path) as world, served(world.head, local=True) as api:
        await world.ops.inventory.apply(SITE, "x", None, False)
        for where, names in (
            ("label:rack=r7", ["n0"]),
            ("label:site=lab and not label:owner=physics", ["n1"]),
            ("label:no=x", []),
        ):
            async with api.get("/v1/nodes", params={"where": where}) as answer:
                assert [n["name"] for n in (await answer.json())["nodes"]] == names
