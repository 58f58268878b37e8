"""Networks of the inventory on the head: planned, applied, told to modules, shown, and kept over a
restart."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import msgspec
import pytest

from layercake.features.inventory.answers import GuestList, NameList, NetworkList
from layercake.features.inventory.operations import InventoryChanges
from layercake.features.inventory.views import SiteViews
from layercake.features.nodes.views import node_view
from layercake.head.head import Head
from layercake.head.settings import Settings
from layercake.inventory.problems import InventoryErrors
from layercake.kraken.errors import Unreachable
from layercake.moduleapi import module_pb2 as pb
from layercake.modules.host import ModuleHost
from tests.support.world import INVENTORY, World

FAR = """
networks:
  far: {subnet: 10.20.0.0/24, gateway: 10.20.0.1, mtu: MTU}
  near: {subnet: 10.1.0.0/24, gateway: 10.1.0.1}
"""
NETWORKS = INVENTORY + FAR.replace("MTU", "9000") + "  # no node is far\n"
MOVED = NETWORKS.replace("ip: 10.1.0.11", "ip: 10.20.0.11")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, world: World) -> list[tuple[str, Any]]:
    """What the boot module is told: (node, its network)."""
    found: list[tuple[str, Any]] = []

    def send(host: ModuleHost, module: str, message: pb.FromHead) -> bool:
        if message.WhichOneof("kind") == "node_changed" and module == "pxe":
            record = json.loads(message.node_changed.json)
            found.append((record["name"], record["network"]))
        return True

    monkeypatch.setattr(ModuleHost, "send", send)
    return found


async def test_a_plan_shows_what_changes_of_networks_and_of_nodes(world: World) -> None:
    planned = await world.ops.inventory.plan(NETWORKS, "x.yaml")
    assert [(c["node"], c["action"]) for c in planned["networks"]] == [
        ("far", "add"),
        ("near", "add"),
    ]
    assert planned["networks"][0]["fields"] == {
        "subnet": [None, "10.20.0.0/24"],
        "gateway": [None, "10.20.0.1"],
        "mtu": [None, 9000],
    }
    assert [(c["node"], c["fields"]) for c in planned["changes"]] == [
        (n, {"network": ["", "near"]}) for n in ("n0", "n1")
    ]
    assert world.head.networks.by_name == {}, "a plan changes nothing"
    await world.ops.inventory.apply(NETWORKS, "x.yaml", None, False)
    planned = await world.ops.inventory.plan(NETWORKS.replace("mtu: 9000", "mtu: 1500"), "x.yaml")
    assert planned["changes"] == []
    assert planned["networks"] == [
        {"node": "far", "action": "change", "fields": {"mtu": [9000, 1500]}}
    ]
    planned = await world.ops.inventory.plan(INVENTORY, "x.yaml")
    assert [(c["node"], c["action"]) for c in planned["networks"]] == [
        ("far", "remove"),
        ("near", "remove"),
    ]
    assert (await world.ops.inventory.plan(NETWORKS, "x.yaml"))["networks"] == []


async def test_a_node_is_told_its_network_and_again_when_that_changes(
    world: World, told: list[tuple[str, Any]]
) -> None:
    applied = await world.ops.inventory.apply(MOVED, "x.yaml", None, False)
    assert applied["networks"] == ["far", "near"]
    far = {"name": "far", "subnet": "10.20.0.0/24", "gateway": "10.20.0.1", "mtu": 9000}
    assert dict(told) == {
        "n0": {"name": "near", "subnet": "10.1.0.0/24", "gateway": "10.1.0.1"},
        "n1": far,
    }
    told.clear()
    applied = await world.ops.inventory.apply(
        MOVED.replace("mtu: 9000", "mtu: 1500"), "x.yaml", None, False
    )
    assert (applied["changed"], applied["networks"]) == ([], ["far"])
    assert told == [("n1", {**far, "mtu": 1500})], "who is in another network is not touched"
    told.clear()
    await world.ops.inventory.apply(INVENTORY, "x.yaml", None, False)
    assert dict(told) == {"n0": None, "n1": None}
    said = [(e.text, e.data) for e in world.head.store.events if e.kind == "inventory.networks"]
    assert [text for text, _ in said] == [
        "networks by a person: far (new), near (new)",
        "networks by a person: far (changed)",
        "networks by a person: far (removed), near (removed)",
    ]
    assert said[1][1] == {"networks": ["far"]}


async def test_modules_are_told_of_networks_that_no_node_is_in(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[tuple[str, str, Any]] = []

    def send(host: ModuleHost, module: str, message: pb.FromHead) -> bool:
        if message.WhichOneof("kind") == "network_changed":
            said.append((module, "is", json.loads(message.network_changed.json)))
        elif message.WhichOneof("kind") == "network_removed":
            said.append((module, "is gone", message.network_removed.name))
        elif message.WhichOneof("kind") == "node_changed":
            said.append((module, "node", None))
        return True

    monkeypatch.setattr(ModuleHost, "send", send)
    guests = NETWORKS.replace("mtu: 9000", "guests: [10.20.0.9-10.20.0.10]")
    await world.ops.inventory.apply(guests, "x.yaml", None, False)
    far = {
        "name": "far",
        "subnet": "10.20.0.0/24",
        "gateway": "10.20.0.1",
        "guests": ["10.20.0.9-10.20.0.10"],
    }
    near = {"name": "near", "subnet": "10.1.0.0/24", "gateway": "10.1.0.1"}
    assert sorted(said[:2], key=str) == [("pxe", "is", far), ("pxe", "is", near)], (
        "they come before the nodes"
    )
    assert {what for _, what, _ in said[2:]} == {"node"}
    said.clear()
    monkeypatch.setattr(ModuleHost, "snapshot", AsyncMock())
    await world.head.modules.notifier.everything(
        world.head.table.modules["pxe"], [], lambda record: None
    )
    assert said[:2] == [("pxe", "is", far), ("pxe", "is", near)], (
        "a process that is new is told of all"
    )
    said.clear()
    await world.ops.inventory.apply(INVENTORY, "x.yaml", None, False)
    assert sorted(said[:2]) == [("pxe", "is gone", "far"), ("pxe", "is gone", "near")]


async def test_a_node_is_shown_with_its_network(world: World) -> None:
    assert node_view(world.node("n1"), 0.0, world.head.table)["network"] is None
    await world.ops.inventory.apply(MOVED, "x.yaml", None, False)
    assert node_view(world.node("n1"), 0.0, world.head.table)["network"] == "far"


async def test_networks_outlive_the_head(world: World) -> None:
    await world.ops.inventory.apply(MOVED, "x.yaml", None, False)
    before = world.head.networks.by_name
    await world.restart()
    assert world.head.networks.by_name == before and world.node("n1").node.network == "far"
    assert (found := world.head.networks.of(world.node("n1").node)) is not None and found[
        "name"
    ] == "far"


async def test_an_inventory_that_is_refused_leaves_the_networks(world: World) -> None:
    await world.ops.inventory.apply(NETWORKS, "x.yaml", None, False)
    before = world.head.networks.by_name
    with pytest.raises(InventoryErrors, match=r"10\.1\.0\.10 is in no network"):
        await world.ops.inventory.apply(
            NETWORKS.replace("10.1.0.0/24, gateway: 10.1.0.1", "10.2.0.0/24, gateway: 10.2.0.1"),
            "x.yaml",
            None,
            False,
        )
    assert world.head.networks.by_name == before


async def test_networks_are_shown_with_use_and_relay(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = {"far": {"relay": "10.20.0.1", "circuit": "swp1", "remote": "", "seconds_ago": 2.0}}

    async def ask(call: str, params: object) -> Any:
        assert call == "boot.relays"
        return heard

    await world.ops.inventory.apply(MOVED, "x.yaml", None, False)
    world.answer_calls(monkeypatch, ask)
    shown = await world.head.part(SiteViews).networks(None)
    assert [(n["name"], n["nodes"], n["addresses"], n["use"], n["relay"]) for n in shown] == [
        ("far", 1, 254, 0.0039, heard["far"]),
        ("near", 1, 254, 0.0039, None),
    ]
    msgspec.convert({"networks": shown}, NetworkList, strict=True)
    mine = await world.head.part(SiteViews).networks(lambda record: record.name == "n0")
    assert [(n["name"], n["nodes"]) for n in mine] == [("far", 0), ("near", 1)], (
        "of others' nodes nothing is counted"
    )


async def test_guests_are_shown_and_counted_for_the_whole_site_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = {
        "network": "far",
        "mac": "02:00:00:00:00:01",
        "address": "10.20.0.9",
        "name": "laptop",
        "seconds": 9.5,
    }
    pages = {0: {"leases": [lease], "more": 1}, 1: {"leases": [lease], "more": 0}}

    async def ask(call: str, params: Any) -> Any:
        counts = {"far": {"used": 1, "addresses": 2}}
        return {
            "boot.relays": {},
            "boot.guests": counts,
            "boot.leases": pages[params.get("start", 0)],
        }[call]

    async def nobody(call: str, params: object) -> Any:
        raise Unreachable("cannot ask: the module is not there")

    await world.ops.inventory.apply(
        NETWORKS.replace("mtu: 9000", "guests: [10.20.0.9-10.20.0.10]"), "x.yaml", None, False
    )
    world.answer_calls(monkeypatch, ask)
    shown = await world.head.part(SiteViews).networks(None)
    assert [(n["name"], n["guests"], n["guest_addresses"], n["guests_used"]) for n in shown] == [
        ("far", ["10.20.0.9-10.20.0.10"], 2, 1),
        ("near", [], 0, None),
    ]
    msgspec.convert({"networks": shown}, NetworkList, strict=True)
    assert [
        n["guests_used"] for n in await world.head.part(SiteViews).networks(lambda record: True)
    ] == [None, None]
    assert await world.head.part(SiteViews).guests() == [lease, lease]
    msgspec.convert({"guests": [lease]}, GuestList, strict=True)
    world.answer_calls(monkeypatch, nobody)
    assert [n["guests_used"] for n in await world.head.part(SiteViews).networks(None)] == [
        None,
        None,
    ]
    assert await world.head.part(SiteViews).guests() is None


def views(world: World, settings: Settings) -> SiteViews:
    """What is shown of a site with these settings."""
    return SiteViews(world.head.store, world.head.networks, settings, world.head.modules.ask)


async def test_the_heads_own_network_is_shown_where_the_inventory_does_not_name_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nobody(call: str, params: object) -> Any:
        raise Unreachable("cannot ask: the module is not there")

    world.answer_calls(monkeypatch, nobody)
    assert await world.head.part(SiteViews).networks(None) == [], "a head on loopback has none"
    settings = Settings(
        interface="br0", address="10.1.0.1", gateway="10.1.0.254", dns=["10.1.0.53"]
    )
    (own,) = await views(world, settings).networks(None)
    assert (own["name"], own["subnet"], own["nodes"]) == ("", "10.1.0.0/24", 2)
    assert (own["gateway"], own["dns"]) == ("10.1.0.254", ["10.1.0.53"])
    assert own["relay"] is None, "and it is shown although the module is away"


async def test_a_node_that_the_head_cannot_serve_is_refused_by_the_plan(tmp_path: Path) -> None:
    head = Head(tmp_path, Settings(interface="br0", address="10.1.0.1"))
    inventory = head.part(InventoryChanges)
    try:
        await inventory.plan(INVENTORY, "x.yaml")
        with pytest.raises(
            InventoryErrors,
            match=r"n1: 10\.9\.0\.11 is in no network; the own one of the head is 10\.1\.0\.0/24",
        ):
            await inventory.plan(INVENTORY.replace("10.1.0.11", "10.9.0.11"), "x.yaml")
    finally:
        await head.features.stop()


async def test_a_record_of_an_older_head_has_no_network(world: World) -> None:
    record = world.node("n0").node.to_record()
    del record["network"]
    assert world.head.table.node(record) == dataclasses.replace(world.node("n0").node, network="")


async def test_names_are_shown_of_the_callers_nodes_and_bmcs_to_no_viewer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def row(name: str, node: str, bmc: bool = False) -> dict[str, Any]:
        return {"name": name, "type": "A", "data": "10.1.0.1", "node": node, "bmc": bmc}

    rows = [row("n0", "n0"), row("n0-bmc", "n0", True), row("n1", "n1"), row("layercake", "")]
    asked: list[tuple[str, Any]] = []

    async def ask(call: str, params: dict[str, Any]) -> Any:
        asked.append((call, params))
        start = params.get("start", 0)
        return {
            "serves": True,
            "address": "10.1.0.1",
            "domains": [],
            "forward": [],
            "ours": True,
            "records": rows[start : start + 3],
            "more": 0 if start else 3,
        }

    world.answer_calls(monkeypatch, ask)
    whole = await world.head.part(SiteViews).names("n0", None, brief=False)
    msgspec.convert(whole, NameList, strict=True)
    assert (
        asked == [("boot.names", {"name": "n0", "start": start}) for start in (0, 3)]
        and whole["records"] == rows
    )
    brief = await world.head.part(SiteViews).names("", None, brief=True)
    assert [r["name"] for r in brief["records"]] == ["n0", "n1", "layercake"]
    mine = await world.head.part(SiteViews).names(
        "", lambda record: record.name == "n0", brief=False
    )
    assert [r["name"] for r in mine["records"]] == ["n0", "n0-bmc", "layercake"]
    settings = Settings(interface="br0", address="10.1.0.1", dns=["10.1.0.53"])
    (own,) = await views(world, settings).networks(None)
    assert own["dns"] == ["10.1.0.1"], "what its nodes are told is the head itself"
