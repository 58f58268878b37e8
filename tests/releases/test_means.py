"""What the head itself forgets of a node that is released."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from layercake.features.disks.node_disks import NodeDisks
from layercake.features.files.node_files import NodeFiles
from layercake.features.machines.manager import Machines
from layercake.features.releases.means import CONSOLE, HeadNodeActions
from layercake.features.releases.record import KnownDisks
from layercake.features.tpm.manager import Tpms
from layercake.kraken.errors import Unreachable
from tests.machines.test_discovery import report
from tests.machines.test_hardware import survey
from tests.support.world import World


def means(world: World, asked: list[tuple[str, Any]], *, answers: bool = True) -> HeadNodeActions:
    head = world.head

    async def ask(call: str, params: Mapping[str, Any]) -> Any:
        asked.append((call, dict(params)))
        if not answers:
            raise Unreachable("cannot ask powerman: it is not there")
        return {}

    return HeadNodeActions(
        head.store,
        head.desire,
        head.kernel.requests,
        head.sync,
        head.joining,
        head.part(NodeFiles).keys,
        head.part(NodeDisks),
        head.part(Machines),
        head.vault,
        head.table,
        head.kernel.orders.give_now,
        ask,
        head.modules.notifier.changed,
        head.kernel.running.decisions,
    )


async def test_keys_and_what_the_console_has_said_are_forgotten(world: World) -> None:
    asked: list[tuple[str, Any]] = []
    record = world.node("n0")
    await world.head.part(NodeFiles).keys.of(record)
    said = await means(world, asked).forget_keys(record)
    assert said == "keys of disks, the SSH host key, what its console has said"
    assert asked == [(CONSOLE, {"node": record.node.id})] and not world.head.part(
        NodeFiles
    ).keys.public(record)


async def test_it_is_not_done_while_the_console_cannot_be_asked(world: World) -> None:
    with pytest.raises(Unreachable):
        await means(world, [], answers=False).forget_keys(world.node("n0"))


BMC = """
defaults: {console: ttyS0, images: []}
nodes:
  n0: {mac: "52:54:00:00:00:10", ip: 10.1.0.10}
  n1:
    mac: "52:54:00:00:00:11"
    ip: 10.1.0.11
    bmc: {driver: ipmi, address: 10.2.0.11, username: admin, password: {env: BMC_PASSWORD}}
"""


async def test_a_node_that_a_person_switches_has_its_tpm_or_only_its_own_word(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BMC_PASSWORD", "calvin-of-the-bmc")
    await world.ops.inventory.apply(BMC, "test.yaml", None, True)
    vouched = False
    monkeypatch.setattr(world.head.part(Tpms), "vouches", lambda record: vouched)
    actions = means(world, [])
    found = [actions.witness(world.node(name)) for name in ("n0", "n1")]
    vouched = True
    found += [actions.witness(world.node(name)) for name in ("n0", "n1")]
    assert found == ["node", "bmc", "tpm", "bmc"]


async def test_who_has_said_which_disks_a_node_has(world: World) -> None:
    """The first survey is kept, and is the node's own word until a person accepts it."""
    record = world.node("n0")
    assert await means(world, []).known_disks(record) == KnownDisks()
    disks = [{"name": "sda", "serial": "S1", "bytes": 1 << 30}]
    await survey(world, "n0", report(disks=disks))
    fakes = [{"name": f"sd{n}", "serial": f"FAKE-{n}", "bytes": 1 << 30} for n in range(3)]
    await survey(world, "n0", report(disks=fakes))
    assert await means(world, []).known_disks(record) == KnownDisks(frozenset({"S1"}))
    await survey(world, "n0", report(disks=disks))
    assert await world.ops.machines.accept("n0", "ann") == ["n0"]
    known = KnownDisks(frozenset({"S1"}), "ann")
    assert await means(world, []).known_disks(record) == known
    await survey(world, "n0", report(disks=fakes))
    assert await means(world, []).known_disks(record) == known
