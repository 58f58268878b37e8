"""A follower's copy of the database: it has what the leader's has, whatever was written there, and
starts anew where it has something else."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from layercake.fleet.persistence import changes, schema
from layercake.heads.log import Leader, LogState, SharedLog
from layercake.heads.replica import Ahead, Replica, whole
from layercake.kraken.errors import InputError, OperationFailed
from tests.heads.test_log import lead

ME = Leader("head1", "https://192.0.2.1:8443", 0.0)
TABLES = ("nodes", "documents", "events", "alarms", "audit", "machines", "tpms", "releases", "meta")


class Writer:
    """A leader's database, whose transactions go into a log."""

    def __init__(self, path: Path, shared: SharedLog) -> None:
        self.path = path
        self.db = schema.open_database(path)
        self._capture = changes.Capture(self.db)
        self._shared = shared

    async def lead(self) -> None:
        self.term, self.end, self.lease = await lead(self._shared, ME)

    async def write(self, *statements: str) -> None:
        """One transaction."""
        self.db.execute("BEGIN IMMEDIATE")
        for statement in statements:
            self.db.execute(statement)
        written = self._capture.collect()
        assert written is not None
        name = f"e{self.end.number + 1}-{id(self)}"
        found = await self._shared.append(self.term, self.end, name, changes.encode(written))
        assert not isinstance(found, LogState)
        self.end = found
        changes.set_place(self.db, found.number, found.name)
        self.db.execute("COMMIT")

    async def keep_whole(self) -> None:
        which, content = whole(self.path)
        assert await self._shared.keep_whole(self.term, which.number, which.name, content)


def rows(db: sqlite3.Connection) -> dict[str, list[tuple[object, ...]]]:
    return {
        table: sorted(db.execute(f"SELECT * FROM {table}").fetchall(), key=repr)  # noqa: S608
        for table in TABLES
    }


@pytest.fixture
async def writer(tmp_path: Path, shared: SharedLog) -> Writer:
    made = Writer(tmp_path / "leader.db", shared)
    await made.lead()
    return made


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Replica]:
    made = Replica(tmp_path / "follower.db")
    yield made
    made.close()


def copy_of(tmp_path: Path) -> sqlite3.Connection:
    return sqlite3.connect(tmp_path / "follower.db")


NODE = "INSERT OR REPLACE INTO nodes VALUES ({row}, '{id}', '{data}')"


async def test_a_copy_has_all_that_was_written(
    tmp_path: Path, shared: SharedLog, writer: Writer, replica: Replica
) -> None:
    await writer.write(
        NODE.format(row=1, id="a", data="first"),
        NODE.format(row=2, id="b", data="second"),
        "INSERT INTO documents VALUES ('x', x'00ff')",
        "INSERT INTO audit (at, data) VALUES (1.5, '{}')",
    )
    await writer.write(
        # The row of another key goes, as its id is unique.
        NODE.format(row=3, id="a", data="moved"),
        "UPDATE audit SET status = 200 WHERE id = 1",
        "DELETE FROM documents WHERE key = 'x'",
        "INSERT INTO events VALUES (7, 1.0, 'n1', 'k', 'info', 't', '{}')",
        "INSERT INTO tpms VALUES ('n1', x'01', NULL)",
        "INSERT INTO machines VALUES ('m', x'02', NULL, NULL)",
        "INSERT INTO releases VALUES ('r', 'n1', 2.0, x'03')",
    )
    await writer.write("UPDATE nodes SET row = 9 WHERE id = 'b'")
    await replica.catch_up(shared, await shared.state())
    assert rows(copy_of(tmp_path)) == rows(writer.db)
    assert replica.place == (writer.end.number, writer.end.name)


async def test_what_was_taken_back_is_in_no_copy(
    tmp_path: Path, shared: SharedLog, writer: Writer, replica: Replica
) -> None:
    writer.db.execute("BEGIN IMMEDIATE")
    writer.db.execute(NODE.format(row=1, id="never", data=""))
    writer.db.execute("ROLLBACK")
    await writer.write(NODE.format(row=2, id="b", data="second"))
    await replica.catch_up(shared, await shared.state())
    assert [row[1] for row in rows(copy_of(tmp_path))["nodes"]] == ["b"]


async def test_a_new_copy_begins_with_a_whole_one(
    tmp_path: Path, shared: SharedLog, writer: Writer, replica: Replica
) -> None:
    await writer.write(NODE.format(row=1, id="a", data="before"))
    await writer.keep_whole()
    await writer.write(NODE.format(row=2, id="b", data="after"))
    await replica.catch_up(shared, await shared.state())
    assert rows(copy_of(tmp_path)) == rows(writer.db)


async def test_one_that_was_away_for_long_starts_anew(
    tmp_path: Path, shared: SharedLog, writer: Writer, replica: Replica
) -> None:
    await writer.write(NODE.format(row=1, id="a", data="before"))
    await replica.catch_up(shared, await shared.state())
    await writer.write(NODE.format(row=2, id="b", data="missed"))
    await writer.write("DELETE FROM nodes WHERE id = 'a'")
    await writer.keep_whole()
    await writer.write(NODE.format(row=3, id="c", data="after"))
    await replica.catch_up(shared, await shared.state())
    assert rows(copy_of(tmp_path)) == rows(writer.db)


async def test_a_head_with_an_entry_of_its_own_starts_anew_and_keeps_what_it_had(
    tmp_path: Path, shared: SharedLog, writer: Writer, replica: Replica
) -> None:
    await writer.keep_whole()
    await writer.write(NODE.format(row=1, id="a", data="shared"))
    await replica.catch_up(shared, await shared.state())
    replica.close()
    with sqlite3.connect(tmp_path / "follower.db") as db:
        changes.set_place(db, writer.end.number, "another")
        db.execute(NODE.format(row=8, id="mine", data="never agreed on"))
    found = Replica(tmp_path / "follower.db")
    await found.catch_up(shared, await shared.state())
    found.close()
    assert rows(copy_of(tmp_path)) == rows(writer.db)
    kept = list(tmp_path.glob("follower.db.2*"))
    assert len(kept) == 1
    with sqlite3.connect(kept[0]) as db:
        assert "mine" in [row[1] for row in rows(db)["nodes"]]


async def test_a_store_that_is_older_than_the_copy_is_not_followed(
    tmp_path: Path, shared: SharedLog, writer: Writer, replica: Replica
) -> None:
    await writer.write(NODE.format(row=1, id="a", data=""))
    await replica.catch_up(shared, await shared.state())
    replica.close()
    with sqlite3.connect(tmp_path / "follower.db") as db:
        changes.set_place(db, writer.end.number + 5, "newer")
    await shared.step_down(writer.term)
    found = Replica(tmp_path / "follower.db")
    with pytest.raises(Ahead, match="was an older backup of etcd put back"):
        await found.catch_up(shared, await shared.state())
    found.close()
    assert [row[1] for row in rows(copy_of(tmp_path))["nodes"]] == ["a"]


async def test_a_log_of_a_newer_version_is_not_followed(
    shared: SharedLog, writer: Writer, replica: Replica
) -> None:
    newer = changes.Changes(schema.SCHEMA_VERSION + 1, [])
    found = await shared.append(writer.term, writer.end, "newer", changes.encode(newer))
    assert not isinstance(found, LogState)
    with pytest.raises(InputError, match="the leader is of a newer version"):
        await replica.catch_up(shared, await shared.state())


async def test_a_log_without_its_beginning_and_without_a_copy_says_so(
    shared: SharedLog, writer: Writer, replica: Replica
) -> None:
    for number in range(3):
        await writer.write(NODE.format(row=number, id=f"n{number}", data=""))
    await writer.keep_whole()
    state = await shared.state()
    assert state.snapshot is not None
    gone = LogState(
        state.end, state.leader, state.created, state.epoch, state.epoch_modified, "", None
    )
    with pytest.raises(OperationFailed, match="no whole copy"):
        await replica.catch_up(shared, gone)
