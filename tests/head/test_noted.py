"""The nodes that something holds of are found by what changes."""

from __future__ import annotations

from layercake.fleet.noted import Noted
from layercake.fleet.store import Record
from tests.support.world import World


async def test_only_what_changed_is_looked_at(world: World) -> None:
    asked = list[str]()

    def holds(record: Record) -> bool:
        asked.append(record.name)
        return bool(record.unhealthy)

    noted = Noted(world.head.store, holds)
    assert not list(noted.records())
    assert sorted(asked) == ["n0", "n1"], "at first all of them"
    asked.clear()
    assert not list(noted.records()) and not asked
    record = world.node("n1")
    record.unhealthy = "its disk"
    world.head.store.mark(record)
    assert [r.name for r in noted.records()] == ["n1"] == asked
    assert [r.name for r in noted.records()] == ["n1"] == asked, "it stays, and is not asked again"
    world.head.store.remove(record)
    assert not list(noted.records())
