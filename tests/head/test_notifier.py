"""What the modules are told of the nodes: a module of a site whose record cannot be made harms no
other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from layercake.fleet.table import Table
from layercake.head import modules
from layercake.moduleapi import module_pb2 as pb
from layercake.moduleapi.module import Module, NodeFacts, Reveal
from layercake.modules.host import ModuleHost
from layercake.modules.notifier import ModuleNotifier
from tests.support.site import site
from tests.support.world import World


def broken(node: NodeFacts, part: Any, reveal: Reveal) -> dict[str, Any]:
    """Fails for one node, with what nobody may read."""
    if node.name == "n0":
        raise ValueError("the password is hunter2")
    return {"name": node.name}


async def test_a_record_that_cannot_be_made_is_told_and_harms_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, str]] = []

    def send(host: ModuleHost, module: str, message: pb.FromHead) -> bool:
        if message.WhichOneof("kind") == "node_changed":
            told.append((module, world.head.store.find(message.node_changed.node).node.name))  # type: ignore[union-attr]
        return True

    monkeypatch.setattr(ModuleHost, "send", send)
    module = Module(name="aaa", doc="A module of the site.", record=broken, command=("true",))
    notifier = ModuleNotifier(
        world.head.store,
        Table([module, *modules.built_in()]),
        world.head.modules.host,
        lambda record: "",
        world.head.vault,
        site(),
        world.head.networks,
    )
    for name in ("n0", "n1"):
        notifier.changed(world.node(name))
    assert ("pxe", "n0") in told and ("powerman", "n0") in told
    assert ("aaa", "n1") in told and ("aaa", "n0") not in told
    event = next(e for e in world.events_of("n0") if e.kind == "service.refused")
    assert (
        "module aaa" in event.text
        and "ValueError at test_notifier.py:" in event.text
        and "hunter2" not in event.text
    )

    async def snapshot(
        host: ModuleHost, name: str, nodes: Iterable[str], tell: Callable[[str], None]
    ) -> None:
        for node in nodes:
            tell(node)

    monkeypatch.setattr(ModuleHost, "snapshot", snapshot)
    then: list[str] = []
    first = [world.node("n1").node.id]
    await notifier.everything(module, first, lambda record: then.append(record.name))
    assert then[:1] == ["n1"] and set(then) == {"n0", "n1"}
    assert told.count(("aaa", "n1")) >= 2
