"""The epoch in which a head acts, over restarts, also when it is alone again: nodes refuse a lower
one."""

from __future__ import annotations

from pathlib import Path

from layercake.features.heads.known import KnownHeads
from tests.support.world import opened


async def test_a_head_that_is_alone_again_keeps_the_epoch(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        assert world.head.heads.epoch == 0
        world.head.store.documents["heads/epoch"] = lambda: b"7"
        await world.head.database.flush(world.head.store)
        world.head.part(KnownHeads).load()
        assert world.head.heads.epoch == 7
        assert world.head.heads.others == ()
