"""The heads that nodes are told of, and the epoch in which a head acts, over restarts, also when it
is alone again: nodes refuse a lower one."""

from __future__ import annotations

from pathlib import Path

import msgspec

from layercake.features.heads.known import LOOK_S, SEEN_S, KnownHeads
from layercake.fleet.site_heads import SiteHead
from layercake.heads.standby import SAID_S
from layercake.moduleapi.network import HeadAddress
from tests.support.heads_view import heads_view
from tests.support.world import opened


async def test_a_head_that_is_alone_again_keeps_the_epoch(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        assert world.head.heads.epoch == 0
        world.head.store.documents["heads/epoch"] = lambda: b"7"
        await world.head.database.flush(world.head.store)
        world.head.part(KnownHeads).load()
        assert world.head.heads.epoch == 7
        assert world.head.heads.others == ()


async def test_a_view_of_before_does_not_bring_back_a_head_that_was_removed(tmp_path: Path) -> None:
    second = SiteHead(
        name="head2",
        addresses=(HeadAddress(interface="eth0", address="10.98.0.6"),),
        api_port=1,
        sync_port=1,
    )
    async with opened(tmp_path) as world:
        known = world.head.part(KnownHeads)
        view = heads_view(world.clock.now)
        leader, follower = view.heads
        own = world.head.heads.own
        heads = [
            msgspec.structs.replace(leader, head=own.name, reached=own),
            msgspec.structs.replace(follower, reached=second),
        ]
        view = msgspec.structs.replace(view, heads=heads)
        known.apply_view(view)
        known.forget("head2")
        world.clock.now += SAID_S + SEEN_S
        known.apply_view(view)
        known.forget("another")
        assert second not in world.head.heads.others
        world.clock.now += LOOK_S
        known.apply_view(view)
        known.forget("another")
        assert second in world.head.heads.others, "it has joined again since"
