"""The database, alone and shared with other heads, does the same: a change is all there or not at
all, and what was accepted is there whatever happens then. What clients saw of a shared one while
its leaders changed could have come from one that does one thing after the other."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from layercake.base.lease import Lease
from layercake.features.machines import table as machine_table
from layercake.features.machines.table import Machine
from layercake.features.releases.table import Releases
from layercake.features.tpm import table as tpm_table
from layercake.features.tpm.table import Known
from layercake.fleet.persistence import database
from layercake.fleet.persistence.database import Database
from layercake.fleet.site_heads import SiteHead
from layercake.fleet.store import Store
from layercake.heads.copying import HeadLink
from layercake.heads.etcd import StoreAway
from layercake.heads.settings import DIRECTORY, KEY, HeadsSettings
from layercake.heads.site import SharedSite
from layercake.kraken.errors import OperationFailed
from layercake.moduleapi.network import HeadAddress
from tests.support.etcd import EtcdMembers
from tests.support.linearizability import FOREVER, Swap, is_linearizable
from tests.support.releases import KeptReleases

REACHED = SiteHead(
    name="head1",
    addresses=(HeadAddress(interface="lo", address="127.0.0.1", prefix=8),),
    api_port=1,
    sync_port=1,
)


LINK = HeadLink(ssl.create_default_context)


class OneHead:
    """A head's database, opened and closed; with `members` shared by all that have this prefix."""

    def __init__(
        self, directory: Path, members: EtcdMembers | None, prefix: str, name: str = "head1"
    ) -> None:
        self._directory = directory / name
        (self._directory / DIRECTORY).mkdir(parents=True)
        (self._directory / DIRECTORY / KEY).write_bytes(bytes(32))
        self._members = members
        self._prefix = prefix
        self._name = name
        self.store = Store(time.monotonic)
        self.site: SharedSite | None = None
        self.lost = asyncio.Event()

    async def open(self) -> Database:
        """Opens it; a shared one when this head leads."""
        path = self._directory / "layercake.db"
        self.lost = asyncio.Event()
        if self._members is not None:
            settings = HeadsSettings(self._name, self._members.endpoints, self._prefix)
            power = Lease(self._directory, write=True)
            self.site = SharedSite(self._directory, settings, "", REACHED, path, power, LINK)
            self.site.begin()
            await self.site.lead(self.lost.set)
        self.database = Database(path, time.monotonic, self.site)
        return self.database

    async def close(self, *, in_order: bool = True) -> None:
        """Closes it, in order or as a kill would: nothing is written or handed over."""
        if self.site is not None:
            self.site.stopping()
        if in_order:
            await self.database.close(self.store)
        else:
            await self.database.history.close()
            self.database.writer.shutdown(wait=True)
            self.database.connection.close()
        if self.site is not None:
            await self.site.close()


@pytest.fixture(params=["alone", "shared"])
async def head(
    request: pytest.FixtureRequest, tmp_path: Path, prefix: str
) -> AsyncIterator[OneHead]:
    members = request.getfixturevalue("members") if request.param == "shared" else None
    made = OneHead(tmp_path, members, prefix)
    await made.open()
    yield made
    await made.close()


def documents(db: sqlite3.Connection) -> dict[str, bytes]:
    return dict(db.execute("SELECT key, data FROM documents"))


def writing(*pairs: tuple[str, bytes]) -> Callable[[sqlite3.Connection], None]:
    def work(db: sqlite3.Connection) -> None:
        db.executemany("INSERT OR REPLACE INTO documents VALUES (?, ?)", pairs)

    return work


async def test_what_was_accepted_is_there_when_it_is_opened_again(head: OneHead) -> None:
    await head.database.execute(head.store, writing(("a", b"1"), ("b", b"2")))
    await head.database.execute(head.store, writing(("a", b"3")))
    await head.close(in_order=False)
    await head.open()
    assert documents(head.database.connection) == {"a": b"3", "b": b"2"}


async def test_each_feature_writes_its_rows_again(head: OneHead) -> None:
    """A table for each feature that has one, and what it does with a row that is there."""
    machine = Machine(key="node/n1", mac="02:00:00:00:00:01", address="", first_seen=1.0, seen=1.0)
    machines = machine_table.Rows(head.database, head.store)
    tpms = tpm_table.Rows(head.database, head.store)
    releases = KeptReleases(head.database, head.store)
    release = await releases.begun("n1", "somebody")
    for seen in (1.0, 2.0, 3.0):
        await machines.write(
            machine_table.Changed(replace(machine, seen=seen), b"report", b"accepted")
        )
        await tpms.write(Known(node="n1", since=seen), {"boot": ()})
        await releases.step("n1", release.id, partial(replace, asked=seen))
    await head.close(in_order=False)
    await head.open()
    found = machine_table.Rows(head.database, head.store).all()
    assert [one.seen for one in found] == [3.0]
    assert [one.since for one in tpm_table.Rows(head.database, head.store).all()] == [3.0]
    kept = Releases(head.database, head.store)
    kept.load()
    assert [one.asked for one in kept.of("n1")] == [3.0]


async def test_a_change_that_fails_half_way_has_not_happened(head: OneHead) -> None:
    def half(db: sqlite3.Connection) -> None:
        writing(("a", b"lost"))(db)
        db.execute("INSERT INTO documents VALUES ('a', x'00')")

    await head.database.execute(head.store, writing(("kept", b"1")))
    with pytest.raises(OperationFailed):
        await head.database.execute(head.store, half)
    await head.database.execute(head.store, writing(("after", b"2")))
    assert documents(head.database.connection) == {"kept": b"1", "after": b"2"}
    await head.close(in_order=False)
    await head.open()
    assert documents(head.database.connection) == {"kept": b"1", "after": b"2"}


async def test_a_change_that_takes_long_is_waited_for_while_the_store_answers(
    head: OneHead, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "ANSWER_S", 0.02)
    monkeypatch.setattr(database, "ANSWERS", 1_000_000)
    goes_on = threading.Event()

    def slow(db: sqlite3.Connection) -> None:
        goes_on.wait(60)
        writing(("a", b"1"))(db)

    changing = asyncio.create_task(head.database.execute(head.store, slow))
    for _ in range(5):  # so often it was looked whether the store answers
        await asyncio.wait([changing], timeout=database.ANSWER_S)
    assert not changing.done()
    goes_on.set()
    await changing
    assert documents(head.database.connection) == {"a": b"1"}


async def test_changes_at_the_same_time_follow_one_another(head: OneHead) -> None:
    def add(db: sqlite3.Connection) -> None:
        count = int(documents(db).get("n", b"0"))
        writing(("n", str(count + 1).encode()))(db)

    await asyncio.gather(*(head.database.execute(head.store, add) for _ in range(30)))
    assert documents(head.database.connection)["n"] == b"30"


async def test_a_copy_that_cannot_be_written_leads_no_more_and_loses_nothing(
    tmp_path: Path, members: EtcdMembers, prefix: str
) -> None:
    head = OneHead(tmp_path, members, prefix)
    await head.open()
    db = head.database.connection
    db.executescript(
        "PRAGMA foreign_keys = ON; CREATE TABLE parents (id INTEGER PRIMARY KEY); CREATE TABLE "
        "children (id INTEGER REFERENCES parents DEFERRABLE INITIALLY DEFERRED);"
    )

    def refused_at_its_end(db: sqlite3.Connection) -> None:
        writing(("there", b"1"))(db)
        db.execute("INSERT INTO children VALUES (1)")

    with pytest.raises(OperationFailed, match="cannot say whether this was done: the heads have"):
        await head.database.execute(head.store, refused_at_its_end)
    await asyncio.wait_for(head.lost.wait(), 60)
    with pytest.raises(OperationFailed, match="this head leads no more"):
        await head.database.execute(head.store, writing(("later", b"2")))
    await head.close(in_order=False)
    other = OneHead(tmp_path, members, prefix, "head2")
    await other.open()
    assert documents(other.database.connection) == {"there": b"1"}
    await other.close()


async def test_documents_that_wait_are_written_by_a_flush(head: OneHead) -> None:
    head.store.documents["x"] = lambda: b"later"
    await head.database.flush(head.store)
    await head.close(in_order=False)
    await head.open()
    assert head.database.documents("x") == {"x": b"later"}
    head.store.documents["x"] = lambda: b""
    await head.database.flush(head.store)
    assert head.database.documents("x") == {}


class Clients:
    """Clients that swap values of one document, at whoever leads."""

    def __init__(self) -> None:
        self.history: list[Swap] = []
        self.leader: OneHead | None = None
        self._values = itertools.count(1)
        self.refused = 0

    async def swap(self) -> None:
        """One operation, if somebody leads."""
        head = self.leader
        if head is None:
            await asyncio.sleep(0.01)
            return
        value = f"v{next(self._values)}"

        def work(db: sqlite3.Connection) -> str:
            before = documents(db).get("r", b"").decode()
            writing(("r", value.encode()))(db)
            return before

        began = time.monotonic()
        try:
            before = await head.database.execute(head.store, work)
        except StoreAway:
            self.history.append(Swap(began, FOREVER, value))
        except OperationFailed:
            self.refused += 1
            await asyncio.sleep(0.01)
        else:
            self.history.append(Swap(began, time.monotonic(), value, before))

    async def run(self) -> None:
        """One after the other, until cancelled."""
        while True:
            await self.swap()


async def test_clients_see_one_register_while_leaders_change(
    tmp_path: Path, members: EtcdMembers, prefix: str
) -> None:
    clients = Clients()
    heads = [OneHead(tmp_path, members, prefix, f"head{n}") for n in (1, 2)]
    running = [asyncio.create_task(clients.run()) for _ in range(4)]
    try:
        for turn in range(4):
            head = heads[turn % 2]
            await head.open()
            clients.leader = head
            count = len(clients.history)
            async with asyncio.timeout(60):
                while len(clients.history) < count + 20:
                    await asyncio.sleep(0.01)
            if turn % 2:
                members.kill(turn % 3)  # a member goes while it writes
                members.start_missing()
            assert head.site is not None
            await head.site.hand_over()  # in the middle of what is under way
            await head.lost.wait()
            clients.leader = None
            await asyncio.sleep(0)
            await head.close(in_order=False)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    assert len([swap for swap in clients.history if swap.known]) >= 80
    assert is_linearizable(clients.history)


GOOD = [
    Swap(0.0, 1.0, "a", ""),
    Swap(0.5, 2.0, "b", "a"),
    Swap(1.5, FOREVER, "c"),
    Swap(3.0, 4.0, "d", "c"),
]


def test_the_checker_takes_a_history_with_an_unknown_outcome() -> None:
    assert is_linearizable(GOOD)
    assert is_linearizable([*GOOD[:2], Swap(1.5, FOREVER, "c"), Swap(3.0, 4.0, "d", "b")])


@pytest.mark.parametrize(
    "history",
    [
        [*GOOD, Swap(5.0, 6.0, "e", "a")],
        [*GOOD[:2], Swap(3.0, 4.0, "d", "a")],
        [Swap(0.0, 1.0, "a", ""), Swap(2.0, 3.0, "b", "")],
        [Swap(0.0, 1.0, "a", "b"), Swap(2.0, 3.0, "b", "")],
        [Swap(0.0, 1.0, "a", ""), Swap(0.0, 1.0, "b", "")],
    ],
    ids=["an old value", "a lost change", "a lost first change", "from the future", "two at once"],
)
def test_the_checker_finds_what_is_wrong(history: list[Swap]) -> None:
    assert not is_linearizable(history)
