"""What a node is told of its interfaces, and what the head shows of how they are."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from layercake.agents.reports import apply_report, interfaces
from layercake.features.guard.guard import Guard
from layercake.features.nodes.commands import interface_line as line
from layercake.features.nodes.explain import explain_text, explain_view
from layercake.features.nodes.views import node_view
from layercake.fleet.store import Interface, Record
from minos.events import NETWORK
from tests.support.world import INVENTORY, World

BOND: dict[str, Any] = {
    "name": "bond0",
    "kind": "bond",
    "state": "up",
    "mac": "52:54:00:00:00:10",
    "mtu": 9000,
    "addresses": ["10.1.0.10/24"],
    "routes": ["0.0.0.0/0 via 10.1.0.1"],
    "legs": [{"name": "lan0", "state": "up"}, {"name": "lan1", "state": "no carrier"}],
    "trouble": "",
}
VLAN: dict[str, Any] = {
    "name": "v20",
    "kind": "vlan",
    "state": "missing",
    "mac": "",
    "mtu": 0,
    "addresses": [],
    "routes": [],
    "legs": [],
    "trouble": "cannot make the VLAN v20: Operation not supported",
}


def told(world: World, found: object) -> Record:
    world.attach("n0")
    world.send(world.hello("n0"))
    record = world.node("n0")
    assert apply_report(record, NETWORK, "", {"interfaces": found})
    return record


async def test_a_node_is_told_its_interfaces_and_a_change_moves_its_revision(world: World) -> None:
    def document() -> dict[str, Any]:
        return world.head.nodes.document.of(world.node("n0"))

    assert document()["interfaces"] == {}
    revision = world.node("n0").cfg_revision
    text = INVENTORY.replace(
        "ip: 10.1.0.10", 'ip: 10.1.0.10, interfaces: {lan0: {mac: "52:54:00:00:00:10", mtu: 9000}}'
    )
    planned = await world.ops.inventory.plan(text, "x.yaml")
    assert planned["changes"] == [
        {
            "node": "n0",
            "action": "change",
            "fields": {
                "interfaces.lan0.mac": [None, "52:54:00:00:00:10"],
                "interfaces.lan0.mtu": [None, 9000],
            },
        }
    ]
    await world.ops.inventory.apply(text, "x.yaml", None, False)
    assert document()["interfaces"] == {"lan0": {"mac": "52:54:00:00:00:10", "mtu": 9000}}
    assert world.node("n0").cfg_revision > revision


async def test_interfaces_are_shown_as_the_node_tells_them(world: World) -> None:
    record = told(world, [BOND, VLAN, "text", {"name": 5}])
    shown = node_view(record, world.clock(), world.head.table)["interfaces"]
    assert [
        msgspec.json.decode(msgspec.json.encode(msgspec.convert(one, Interface)))
        for one in msgspec.to_builtins(shown)
    ] == [BOND, VLAN]
    assert (
        line(BOND)
        == "bond0 bond up 52:54:00:00:00:10 mtu 9000 10.1.0.10/24 (lan0 up, lan1 no carrier)"
    )
    assert line(VLAN) == "v20 vlan missing - cannot make the VLAN v20: Operation not supported"
    view = explain_view(record, world.clock(), world.head.part(Guard))
    assert view["network"] == [
        "bond0: its leg lan1: no carrier",
        "v20: cannot make the VLAN v20: Operation not supported",
    ]
    assert "  network: bond0: its leg lan1: no carrier\n" in explain_text(view)
    brief = node_view(record, world.clock(), world.head.table, brief=True)["interfaces"]
    assert [one["trouble"] for one in brief] == ["", ""], (
        "viewers are not told what the kernel said"
    )


@pytest.mark.parametrize("found", [None, "x", [None], [[]], [{"mtu": 5}]])
def test_what_is_no_interface_is_left_out(found: object) -> None:
    assert interfaces(found) == ()


def test_what_is_too_long_or_of_another_kind_is_bounded() -> None:
    (one,) = interfaces(
        [
            {
                "name": "a" * 999,
                "mtu": "9",
                "addresses": ["b" * 999] * 999,
                "routes": 5,
                "legs": [5, {"name": []}],
                "trouble": "c" * 9999,
                "state": None,
            }
        ]
    )
    assert (len(one.name), one.mtu, len(one.addresses), len(one.addresses[0]), one.routes) == (
        80,
        0,
        64,
        80,
        (),
    )
    assert len(one.trouble) == 500 and one.state == "" and len(one.legs) == 1
