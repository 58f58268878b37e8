"""Records that a head makes while it follows: when it leads they are what the database has, and
only those are made then that have changed since."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from layercake.fleet.persistence import database, rows
from layercake.fleet.persistence.read_ahead import ReadAhead
from layercake.fleet.store import Record
from layercake.fleet.table import Table
from layercake.head.head import Head
from layercake.head.loading import Preparation, Ready, load_modules
from layercake.head.settings import DATABASE
from layercake.inventory.entry import entry_of
from layercake.kraken.errors import InputError
from layercake.modules import manager
from layercake.modules.declared import SiteModule
from tests.support.operations import Operations
from tests.support.world import World, opened

RACK = "nodes:\n" + "".join(
    f'  n{i}: {{mac: "52:54:00:00:00:{i:02x}", ip: 10.1.0.{i + 1}, kernel_args: "a={i % 3}"}}\n'
    for i in range(12)
)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A head with a dozen nodes, written down."""
    async with opened(tmp_path) as found:
        await found.ops.inventory.apply(RACK, "rack.yaml", None, False)
        await found.head.database.flush(found.head.store)
        yield found


def follower(world: World) -> Ready:
    """What another head over the same copy has ready."""
    modules = load_modules(world.directory, world.settings)
    return Ready(world.settings, modules, ReadAhead(world.directory / DATABASE, modules[0]))


async def lead(world: World, ready: Ready | None) -> None:
    """The head ends, and another one leads with what it has ready."""
    await world.head.database.flush(world.head.store)
    await world.close_head()
    world.head = Head(world.directory, world.settings, world.clock, ready=ready)
    world.ops = Operations(world.head)
    world.open()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of which the head that leads makes records itself."""
    found: list[int] = []

    def noting(row: int, text: str, table: Table) -> tuple[Record, dict[str, str]]:
        found.append(row)
        return rows.unpack(row, text, table)

    monkeypatch.setattr(database, "unpack", noting)
    return found


def packed_records(world: World) -> list[str]:
    """All records, as they are written."""
    return [rows.pack(record) for record in world.head.store]


def kernel_args(world: World, name: str) -> object:
    """What its entry has."""
    return entry_of(world.node(name).node)["kernel_args"]


async def test_what_was_made_before_is_what_the_database_has(world: World, made: list[int]) -> None:
    await lead(world, None)
    expected = packed_records(world)
    assert len(made) == len(expected) == 12
    made.clear()
    ready = follower(world)
    await ready.records.read()
    await lead(world, ready)
    assert packed_records(world) == expected and not made
    planners = {id(world.head.table.planner_for(record.node)) for record in world.head.store}
    assert {id(record.planner) for record in world.head.store} == planners


async def test_what_has_changed_since_is_made_then(world: World, made: list[int]) -> None:
    ready = follower(world)
    await ready.records.read()
    await world.ops.inventory.apply(
        RACK.replace("a=0", "b=1").replace(
            '  n5: {mac: "52:54:00:00:00:05"', '  nn: {mac: "52:54:00:00:00:aa"'
        ),
        "rack.yaml",
        None,
        True,
    )
    changed = [world.node(name).row for name in ("n0", "n3", "n6", "n9", "nn")]
    await lead(world, ready)
    assert sorted(made) == sorted(changed)
    assert kernel_args(world, "n3") == "b=1"
    assert world.head.store.lookup("n5") is None and world.head.store.lookup("nn") is not None


async def test_it_looks_again_and_makes_what_has_changed(world: World, made: list[int]) -> None:
    ready = follower(world)
    await ready.records.read()
    await world.ops.inventory.change("n3", {"kernel_args": "b=1"}, ())
    await world.head.database.flush(world.head.store)
    await ready.records.read()
    await lead(world, ready)
    assert not made and kernel_args(world, "n3") == "b=1"


async def test_a_damaged_copy_is_told_of_once_and_the_head_that_leads_says_so(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    row = world.node("n3").row
    await world.close_head()
    with contextlib.closing(sqlite3.connect(world.directory / DATABASE)) as db:
        db.execute("UPDATE nodes SET data = '{}' WHERE row = ?", (row,))
        db.commit()
    ready = follower(world)
    await ready.records.read()
    await ready.records.read()
    assert caplog.text.count("cannot read nodes before this head leads") == 1
    world.head = Head(world.directory, world.settings, world.clock, ready=ready)
    with pytest.raises(InputError, match="it is damaged"):
        world.head.load()


async def test_what_was_made_by_other_settings_is_not_used(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager, "WAITING_AFTER_S", 0.0)
    preparation = Preparation(world.directory, world.settings)
    assert preparation.end(world.settings) is None, "nothing is there yet"
    for asked, given in (
        (world.settings, True),
        (msgspec.structs.replace(world.settings, api_port=1), False),
        (msgspec.structs.replace(world.settings, modules={"x": SiteModule()}), False),
    ):
        preparation = Preparation(world.directory, world.settings)
        preparation.begin()
        async with asyncio.timeout(60):
            while not preparation.is_ready:
                await asyncio.sleep(0.01)
        assert (preparation.end(asked) is not None) is given
        assert preparation.end(asked) is None, "nobody has it twice"
        await preparation.stop()
