"""What the head itself forgets of a node that is released."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from layercake.features.disks.node_disks import NodeDisks
from layercake.features.files.node_files import NodeFiles
from layercake.features.machines.manager import Machines
from layercake.features.releases.means import CONSOLE, HeadNodeActions
from layercake.kraken.errors import Unreachable
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
        head.kernel.running.decisions.tpm_cleared,
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
