"""Databases of other versions: an older one is brought up with a copy kept beside it, a newer one
is refused and left as it is."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

import pytest

from layercake.fleet.persistence.schema import SCHEMA_VERSION, open_database
from layercake.kraken.errors import InputError
from tests.support.disk import on_disk
from tests.support.world import INVENTORY, World

PACKED = {"state": 2**90 + 5, "goal": [2**90, 2**90], "assumed": 7}
"""Numbers that some other set of variables once packed."""


async def of_version_1(directory: Path) -> None:
    """A database as schema 1 had it: n1 is wanted off."""
    world = World(directory)
    world.open()
    await world.ops.inventory.apply(INVENTORY, "test.yaml", None, False)
    await world.ops.nodes.set_state("n1", "off", False)
    await world.close_head()
    world.client.close()
    with contextlib.closing(
        sqlite3.connect(directory / "layercake.db", isolation_level=None)
    ) as db:
        for row, data in db.execute("SELECT row, data FROM nodes").fetchall():
            record = json.loads(data)
            record["machine"] |= PACKED
            db.execute("UPDATE nodes SET data = ? WHERE row = ?", (json.dumps(record), row))
        db.execute("UPDATE meta SET value = '1' WHERE key = 'schema'")


async def test_an_older_database_is_brought_up_and_kept(tmp_path: Path) -> None:
    await of_version_1(tmp_path)
    before = on_disk(tmp_path, "SELECT * FROM nodes ORDER BY row")
    world = World(tmp_path)
    world.open()
    assert world.node("n1").goal_values == {"power": "OFF"}
    assert world.node("n0").goal_values["power"] == "ON"
    await world.close_head()
    world.client.close()
    assert on_disk(tmp_path, "SELECT value FROM meta WHERE key = 'schema'") == [
        (str(SCHEMA_VERSION),)
    ]
    copy = tmp_path / "layercake.db.schema-1"
    assert copy.stat().st_mode & 0o777 == 0o600
    with contextlib.closing(sqlite3.connect(f"file:{copy}?mode=ro", uri=True)) as db:
        assert db.execute("SELECT * FROM nodes ORDER BY row").fetchall() == before
        assert db.execute("SELECT value FROM meta WHERE key = 'schema'").fetchall() == [("1",)]


async def test_a_migration_that_fails_changes_nothing(tmp_path: Path) -> None:
    await of_version_1(tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / "layercake.db", isolation_level=None)) as db:
        db.execute(
            "CREATE TRIGGER no BEFORE UPDATE ON nodes WHEN old.row = 2 BEGIN SELECT RAISE(ABORT, "
            "'no'); END"
        )
    before = on_disk(tmp_path, "SELECT * FROM nodes ORDER BY row")
    with pytest.raises(InputError, match="cannot open"):
        open_database(tmp_path / "layercake.db")
    assert on_disk(tmp_path, "SELECT * FROM nodes ORDER BY row") == before
    assert on_disk(tmp_path, "SELECT value FROM meta WHERE key = 'schema'") == [("1",)]


async def test_a_database_that_cannot_be_copied_is_not_migrated(tmp_path: Path) -> None:
    await of_version_1(tmp_path)
    (tmp_path / "layercake.db.schema-1").mkdir()
    with pytest.raises(InputError, match="cannot keep a copy"):
        open_database(tmp_path / "layercake.db")
    assert on_disk(tmp_path, "SELECT value FROM meta WHERE key = 'schema'") == [("1",)]


def test_a_newer_database_is_refused_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "layercake.db"
    open_database(path).close()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("UPDATE meta SET value = ?", (str(SCHEMA_VERSION + 1),))
        db.execute("DROP TABLE documents")
    before = path.read_bytes()
    with pytest.raises(InputError) as caught:
        open_database(path)
    assert caught.value.message == (
        f"cannot open {path}: it was written by a newer Layercake, in schema {SCHEMA_VERSION + 1}; "
        f"this one knows up to schema {SCHEMA_VERSION}"
    )
    assert path.read_bytes() == before


def test_a_database_is_looked_through_once_a_head_follows_and_not_again_as_it_leads(
    tmp_path: Path,
) -> None:
    path = tmp_path / "layercake.db"
    with contextlib.closing(open_database(path)) as db:
        db.execute("PRAGMA journal_mode=DELETE")
        rows = [(f"k{i}", b"x" * 3000) for i in range(100)]
        db.execute("CREATE TABLE big (key TEXT, data BLOB)")
        db.executemany("INSERT INTO big VALUES (?, ?)", rows)
    content = bytearray(path.read_bytes())
    content[-8 * 4096 : -7 * 4096] = b"\xff" * 4096
    path.write_bytes(content)
    with pytest.raises(InputError, match="it is damaged"):
        open_database(path, as_it_is=True)
    with contextlib.closing(open_database(path, sound=True)) as db:
        assert db.execute("SELECT count(*) FROM meta").fetchone() == (1,)


async def test_nothing_that_is_stored_is_packed(world: World) -> None:
    world.attach("n0")
    world.send(world.hello("n0"))
    await world.head.database.flush(world.head.store)
    for (data,) in on_disk(world.directory, "SELECT data FROM nodes"):
        machine = json.loads(data)["machine"]
        assert not machine.keys() & PACKED.keys()
        assert all(isinstance(name, str) for name in (*machine["attempts"], *machine["rounds"]))
