"""How several heads are shown: on the first screen, in metrics, and to what monitors a site; where
there is one head nothing of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from layercake.features.heads.known import KnownHeads
from layercake.features.heads.troubles import KINDS, LASTS_S
from layercake.features.status.metrics import Metrics
from layercake.fleet import events
from tests.support.api import served, token
from tests.support.heads_view import heads_view
from tests.support.world import World

PREFIX = "layercake_heads_"


def several(world: World) -> None:
    """The heads are so, and have been for a while."""
    known = world.head.part(KnownHeads)
    known.apply_view(heads_view(world.head.store.wall()))
    world.clock.now += LASTS_S
    known.apply_view(heads_view(world.head.store.wall()))


async def status(world: World, headers: dict[str, str] | None = None) -> Any:
    async with served(world.head, local=headers is None) as client:
        answer = await client.get("/v1/status", headers=headers)
        return (await answer.json())["heads"]


async def metrics(world: World) -> dict[str, str]:
    text = await world.head.part(Metrics).page()
    lines = [line.rpartition(" ") for line in text.splitlines() if line.startswith(PREFIX)]
    return {name.removeprefix(PREFIX): value for name, _, value in lines}


async def test_one_head_says_nothing_of_heads_and_its_series_are_there(world: World) -> None:
    assert await status(world) == {"roles": [], "refuses": "", "troubles": []}
    found = await metrics(world)
    own = world.head.heads.own.name
    assert found[f'leader{{head="{own}"}}'] == found[f'up{{head="{own}"}}'] == "1"
    assert {found[f'trouble{{trouble="{kind}"}}'] for kind in KINDS} == {"0"}
    names = ("epoch", "writes_refused_total", "commit_seconds_count", 'store_members{state="down"}')
    assert {found[name] for name in names} == {"0"}


async def test_a_head_that_has_just_begun_to_follow_gets_ready(world: World) -> None:
    shown = heads_view(0.0)
    fresh = msgspec.structs.replace(shown.heads[1], ready=False, entry=shown.entry)
    world.head.part(KnownHeads).apply_view(
        msgspec.structs.replace(shown, heads=[shown.heads[0], fresh])
    )
    assert (await status(world))["roles"] == ["leader leads", "head2 follows, getting ready"]


async def test_what_each_head_is_and_what_is_wrong_is_on_the_first_screen(world: World) -> None:
    several(world)
    found = await status(world)
    assert found["roles"] == ["leader leads", "head2 follows, 700 entries behind"]
    assert [line.partition(":")[0] for line in found["troubles"]] == [
        "a member of the heads' store is down",
        "head2 is far behind the leader",
    ]
    assert found["troubles"][0].endswith("`systemctl restart layercake-store` on 10.0.0.3")
    (event,) = (e for e in world.head.store.events if e.kind == events.HEADS_UNWELL.name)
    assert event.text == "; ".join(found["troubles"])


async def test_who_is_bound_to_some_nodes_is_told_nothing_of_heads(world: World) -> None:
    several(world)
    await world.ops.inventory.apply(
        "groups: {ours: {}}\n"
        "nodes: {n0: {mac: '52:54:00:00:00:10', ip: 10.1.0.10, groups: [ours]}}",
        "x.yaml",
        None,
        True,
    )
    headers = await token(world.head, "mine", "viewer", "ours")
    assert await status(world, headers) == {"roles": [], "refuses": "", "troubles": []}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ('leader{head="leader"}', "1"),
        ('leader{head="head2"}', "0"),
        ('behind_entries{head="leader"}', "0"),
        ('behind_entries{head="head2"}', "700"),
        ('behind_seconds{head="head2"}', "42"),
        ('store_members{state="up"}', "2"),
        ('store_members{state="down"}', "1"),
        ('store_members{state="learner"}', "0"),
        ('trouble{trouble="behind"}', "1"),
        ('trouble{trouble="full"}', "0"),
    ],
)
async def test_metrics_say_how_the_heads_are(world: World, name: str, value: str) -> None:
    several(world)
    assert (await metrics(world))[name] == value
