"""A follower's copy of the database: it has what the leader's has, whatever was written there, and
starts anew where it has something else."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from layercake.fleet.persistence import changes, schema
from layercake.heads import etcd
from layercake.heads import standby as following
from layercake.heads.etcd import Answer, Etcd, StoreAway
from layercake.heads.log import PART_BYTES, Leader, LogState, Seal, SharedLog, Snapshot, Term
from layercake.heads.replica import Ahead, Replica, whole
from layercake.heads.standby import HeadSays, Namesake, Standby, keep_saying
from layercake.kraken.errors import InputError, OperationFailed
from tests.heads.test_log import lead
from tests.support.collectors import until
from tests.support.disk import nearly_full

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
        await self.keep_whole()

    def set_form(self, version: int) -> None:
        """Its tables have another form now."""
        self.db.execute("UPDATE meta SET value = ? WHERE key = 'schema'", (str(version),))
        self.db.close()
        self.db = schema.open_database(self.path, as_it_is=True)
        self._capture = changes.Capture(self.db)

    async def write(self, *statements: str, schema: int = schema.SCHEMA_VERSION) -> None:
        """One transaction."""
        self.db.execute("BEGIN IMMEDIATE")
        for statement in statements:
            self.db.execute(statement)
        written = self._capture.collect()
        assert written is not None
        written.schema = schema
        name = os.urandom(8).hex()
        entry = self._shared.sealed(self.end, name, changes.encode(written))
        found = await self._shared.append(self.term, self.end, entry)
        assert not isinstance(found, LogState)
        self.end = found
        changes.set_place(self.db, found.number, found.name)
        self.db.execute("COMMIT")

    async def keep_whole(self) -> None:
        which, content = whole(self.path)
        assert await self._shared.keep_whole(self.term, which, content)


def rows(db: sqlite3.Connection) -> dict[str, list[tuple[object, ...]]]:
    return {
        table: [
            row
            for row in sorted(db.execute(f"SELECT * FROM {table}").fetchall(), key=repr)  # noqa: S608
            if row[0] != changes.EPOCH  # each copy's own
        ]
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


@pytest.mark.parametrize(
    "again",
    [
        "INSERT INTO releases VALUES ('r', 'n1', 2.0, x'04') ON CONFLICT (id) DO UPDATE SET "
        "data = excluded.data",
        "INSERT OR REPLACE INTO releases VALUES ('r', 'n1', 2.0, x'04')",
        "INSERT OR IGNORE INTO releases VALUES ('r', 'n1', 2.0, x'04')",
        "UPDATE OR ABORT releases SET data = x'04' WHERE id = 'r'",
        "UPDATE OR FAIL releases SET id = 's' WHERE id = 'r'",
    ],
)
async def test_a_row_may_change_again_by_any_statement(
    tmp_path: Path, shared: SharedLog, writer: Writer, replica: Replica, again: str
) -> None:
    """What a trigger does about a conflict is what the statement says that fires it."""
    await writer.write("INSERT INTO releases VALUES ('r', 'n1', 2.0, x'03')", again, again)
    await writer.write(again, "UPDATE releases SET asked = 3.0", again)
    await replica.catch_up(shared, await shared.state())
    assert rows(copy_of(tmp_path)) == rows(writer.db)


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
    kept = list(tmp_path.glob("follower.db.entry-*"))
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
    found = Replica(tmp_path / "follower.db")
    for _ in ("with the leader of that time", "and without"):
        with pytest.raises(Ahead, match="was an older backup of etcd put back"):
            await found.catch_up(shared, await shared.state())
        await shared.step_down(writer.term)
    found.close()
    assert [row[1] for row in rows(copy_of(tmp_path))["nodes"]] == ["a"]


async def test_a_log_of_a_newer_version_is_not_followed(
    shared: SharedLog, writer: Writer, replica: Replica
) -> None:
    newer = changes.Changes(schema.SCHEMA_VERSION + 1, [])
    entry = shared.sealed(writer.end, "newer", changes.encode(newer))
    found = await shared.append(writer.term, writer.end, entry)
    assert not isinstance(found, LogState)
    with pytest.raises(InputError, match="a head of a newer version has led"):
        await replica.catch_up(shared, await shared.state())


async def test_a_copy_has_the_form_of_the_log_until_a_head_of_its_own_version_leads(
    tmp_path: Path, shared: SharedLog, writer: Writer
) -> None:
    """The head beside it is of the version before: its tables have a column less."""
    older = schema.SCHEMA_VERSION - 1
    writer.db.execute("ALTER TABLE tpms DROP COLUMN logs")
    writer.set_form(older)
    await writer.keep_whole()
    replica = Replica(tmp_path / "follower.db")
    await replica.catch_up(shared, await shared.state())
    await writer.write("INSERT INTO tpms VALUES ('n1', x'01')", schema=older)
    for _ in ("it follows", "and does when it is started again"):
        await replica.catch_up(shared, await shared.state())
        assert rows(copy_of(tmp_path)) == rows(writer.db)
        replica.close()
        replica = Replica(tmp_path / "follower.db")
    writer.db.execute("ALTER TABLE tpms ADD COLUMN logs BLOB")
    writer.set_form(schema.SCHEMA_VERSION)
    await writer.write("INSERT INTO tpms VALUES ('n2', x'02', x'03')")
    with pytest.raises(OperationFailed, match="the store has no whole copy of schema"):
        await replica.catch_up(shared, await shared.state())
    await writer.keep_whole()
    await writer.write("INSERT INTO tpms VALUES ('n3', x'02', x'03')")
    await replica.catch_up(shared, await shared.state())
    replica.close()
    assert rows(copy_of(tmp_path)) == rows(writer.db)


async def test_a_head_of_an_older_version_than_the_last_leader_does_not_lead(
    tmp_path: Path, shared: SharedLog, writer: Writer
) -> None:
    which, content = whole(writer.path)
    newer = msgspec.structs.replace(which, schema=schema.SCHEMA_VERSION + 1)
    standby = Standby(shared, tmp_path / "standby.db", ME)
    waiting = asyncio.create_task(standby.wait_to_lead())
    await until(lambda: standby.state is not None and not standby.trouble)
    assert await shared.keep_whole(writer.term, newer, content)
    await shared.step_down(writer.term)
    await until(lambda: "a head of a newer version has led" in standby.trouble)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_head_says_that_others_need_a_copy_of_its_form(
    tmp_path: Path, shared: SharedLog, writer: Writer
) -> None:
    writer.set_form(1)
    await writer.keep_whole()
    await shared.step_down(writer.term)
    won = await Standby(shared, tmp_path / "standby.db", ME).wait_to_lead()
    assert not won.has_whole


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


async def test_a_site_with_data_of_its_own_is_not_given_those_of_another(
    tmp_path: Path, shared: SharedLog, writer: Writer, replica: Replica
) -> None:
    await writer.write(NODE.format(row=1, id="theirs", data=""))
    with copy_of(tmp_path) as db:
        db.execute(NODE.format(row=1, id="mine", data=""))
    with pytest.raises(InputError, match="has data of its own, which no other head has"):
        await replica.catch_up(shared, await shared.state())
    assert [row[1] for row in rows(copy_of(tmp_path))["nodes"]] == ["mine"]


async def test_entries_alone_are_not_taken_for_all_that_there_is(
    tmp_path: Path, shared: SharedLog, replica: Replica
) -> None:
    leader = Writer(tmp_path / "leader.db", shared)
    leader.db.execute(NODE.format(row=1, id="before", data=""))
    leader.term, leader.end, leader.lease = await lead(shared, ME)
    await replica.catch_up(shared, await shared.state())
    await leader.write(NODE.format(row=2, id="after", data=""))
    with pytest.raises(OperationFailed, match="no whole copy"):
        await replica.catch_up(shared, await shared.state())
    await leader.keep_whole()
    await replica.catch_up(shared, await shared.state())
    assert [row[1] for row in rows(copy_of(tmp_path))["nodes"]] == ["before", "after"]


async def test_a_log_that_was_put_back_while_it_is_followed_is_not_mixed(
    tmp_path: Path, shared: SharedLog, writer: Writer, replica: Replica
) -> None:
    await writer.write(NODE.format(row=1, id="a", data=""))
    await replica.catch_up(shared, await shared.state())
    old = writer.end
    await writer.write(NODE.format(row=2, id="lost", data=""))
    await replica.catch_up(shared, await shared.state())
    # The store is as it was before the second entry, and a leader writes two others.
    assert await shared.keep_whole(
        writer.term, Snapshot(old.number, old.name), content_of(writer, 1), ends=""
    )
    writer.end = (await shared.state()).end
    writer.db.execute("DELETE FROM nodes WHERE id = 'lost'")
    await writer.write(NODE.format(row=3, id="b", data=""))
    await writer.write(NODE.format(row=4, id="c", data=""))
    await replica.catch_up(shared, await shared.state())
    assert [row[1] for row in rows(copy_of(tmp_path))["nodes"]] == ["a", "b", "c"]


def content_of(writer: Writer, most: int) -> bytes:
    """A whole copy with so many nodes only."""
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.deserialize(schema.copy(writer.path))
        db.execute("DELETE FROM nodes WHERE row > ?", (most,))
        db.commit()
        return db.serialize()


async def test_the_epoch_of_a_store_that_was_put_back_grows_all_the_same(
    shared: SharedLog, writer: Writer, replica: Replica
) -> None:
    replica.set_epoch(17)
    await replica.catch_up(shared, await shared.state())
    assert replica.epoch == 17
    await shared.step_down(writer.term)
    lease = await shared.store.grant(60)
    term = await shared.lead(await shared.state(), ME, lease, replica.epoch)
    assert term is not None
    assert term.epoch == 18


async def test_a_full_disk_leaves_the_copy_as_it_was(
    tmp_path: Path, shared: SharedLog, writer: Writer, replica: Replica
) -> None:
    await writer.write(NODE.format(row=1, id="a", data=""))
    await replica.catch_up(shared, await shared.state())
    replica.close()
    await writer.write(NODE.format(row=2, id="b", data=""))
    await writer.keep_whole()
    found = Replica(tmp_path / "follower.db")
    with nearly_full(20_000):
        for _ in range(2):
            with pytest.raises(InputError, match="cannot be written"):
                await found.catch_up(shared, await shared.state())
    assert [row[1] for row in rows(copy_of(tmp_path))["nodes"]] == ["a"]
    await found.catch_up(shared, await shared.state())
    found.close()
    assert [row[1] for row in rows(copy_of(tmp_path))["nodes"]] == ["a", "b"]


async def test_copies_that_were_begun_take_no_room(
    shared: SharedLog, writer: Writer, prefix: str
) -> None:
    store = shared.store
    before = len(await store.read(prefix.encode(), etcd.after(prefix.encode())))
    assert not await shared.keep_whole(Term(1, 1), Snapshot(0, ""), b"of a leader that was")
    cut = Cut(store.endpoints)
    try:
        own = SharedLog(cut, prefix, Seal(bytes(32)))
        with pytest.raises(StoreAway):
            await own.keep_whole(writer.term, Snapshot(0, ""), os.urandom(3 * PART_BYTES))
    finally:
        await cut.close()
    assert len(await store.read(prefix.encode(), etcd.after(prefix.encode()))) > before
    await writer.keep_whole()
    assert len(await store.read(prefix.encode(), etcd.after(prefix.encode()))) == before


class Cut(Etcd):
    """etcd that goes away in the middle of a whole copy."""

    left = 3

    async def transaction(self, *asked: object) -> Answer:
        if not self.left:
            raise StoreAway("it is gone")
        self.left -= 1
        return await super().transaction(*asked)  # type: ignore[arg-type]


async def a_standby(tmp_path: Path, shared: SharedLog, number: int, *nodes: str) -> Standby:
    """A head whose copy has this many entries."""
    path = tmp_path / f"standby{number}.db"
    with contextlib.closing(schema.open_database(path)) as db:
        changes.set_place(db, number, f"e{number}")
        for row, node in enumerate(nodes, 1):
            db.execute(NODE.format(row=row, id=node, data=""))
    return Standby(shared, path, ME)


async def test_a_head_that_is_ahead_of_its_store_leads_when_it_is_promoted(
    tmp_path: Path, shared: SharedLog, writer: Writer, replica: Replica
) -> None:
    await shared.step_down(writer.term)
    standby = await a_standby(tmp_path, shared, 5, "kept")
    waiting = asyncio.create_task(standby.wait_to_lead())
    await until(lambda: "was an older backup of etcd put back" in standby.trouble)
    assert standby.entry == 5
    standby.promoted = True
    won = await waiting
    assert (won.end.number, won.end.name) == (5, "e5")
    await replica.catch_up(shared, await shared.state())
    assert [row[1] for row in rows(copy_of(tmp_path))["nodes"]] == ["kept"]


async def test_nobody_leads_while_another_head_has_more_than_the_store(
    tmp_path: Path, shared: SharedLog, writer: Writer
) -> None:
    await writer.write(NODE.format(row=1, id="a", data=""))
    await shared.step_down(writer.term)
    says = HeadSays("head9", "", "1", False, 7, "", 0.0)
    lease = await shared.store.grant(60)
    await shared.publish("head9", msgspec.json.encode(says), lease)
    standby = Standby(shared, tmp_path / "standby.db", ME)
    waiting = asyncio.create_task(standby.wait_to_lead())
    await until(lambda: "head9 has entry 7" in standby.trouble)
    await shared.store.revoke(lease)
    assert (await waiting).end.number == 1


async def test_a_head_with_nothing_does_not_lead_where_another_began(
    tmp_path: Path, shared: SharedLog
) -> None:
    term, _, _ = await lead(shared, ME)
    await shared.step_down(term)
    standby = Standby(shared, tmp_path / "standby.db", ME)
    waiting = asyncio.create_task(standby.wait_to_lead())
    await until(lambda: "cannot lead: this head has nothing" in standby.trouble)
    standby.promoted = True
    assert (await waiting).term.epoch == 2


async def test_two_machines_that_say_that_they_are_one_head_are_found(shared: SharedLog) -> None:
    """Each of them says so, and stops when the other one is gone; one that was started again finds
    what it said before, and that is no other machine."""
    says = HeadSays("head1", "", "1", False, 7, "", 0.0)
    one, again, two = Namesake(), Namesake(), Namesake()
    said: list[str] = []

    def saying(who: Namesake) -> asyncio.Task[None]:
        def about() -> HeadSays:
            said.append(who.instance)
            return msgspec.structs.replace(says, instance=who.instance)

        return asyncio.create_task(keep_saying(shared, "head1", about, who))

    async with asyncio.timeout(60):
        tasks = [saying(one)]
        while not await shared.published():
            await asyncio.sleep(0.05)
        tasks[0].cancel()
        tasks.append(saying(again))
        await until(lambda: said.count(again.instance) == 3)
        assert not again.trouble
        tasks.append(saying(two))
        await until(lambda: bool(again.trouble and two.trouble))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_what_a_head_says_is_there_again_after_its_lease_was_lost(
    shared: SharedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that was put back has no leases of now. It is not renewed each time, so it is seen
    where it is used."""
    monkeypatch.setattr(following, "SAID_S", 3000)
    leases: list[int] = []
    grant = shared.store.grant

    async def noted(seconds: int) -> int:
        leases.append(await grant(seconds))
        return leases[-1]

    monkeypatch.setattr(shared.store, "grant", noted)
    says = HeadSays("head1", "", "1", False, 7, "", 0.0)
    saying = asyncio.create_task(keep_saying(shared, "head1", lambda: says, Namesake()))
    async with asyncio.timeout(60):
        while not await shared.published():
            await asyncio.sleep(0.05)
        await shared.store.revoke(leases[0])
        while not await shared.published():
            await asyncio.sleep(0.05)
    assert len(leases) == 2
    saying.cancel()
    await asyncio.gather(saying, return_exceptions=True)
