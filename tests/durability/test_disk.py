"""A disk that is full, read-only, slow, silent or damaged: nothing half done, the head goes on
observing and says what is wrong, and it is over without a restart."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from imageapi.store.store import ImageStore
from layercake.features.status.views import Observed, head_status
from layercake.fleet import events
from layercake.fleet import store as store_module
from layercake.fleet.persistence.health import AGAIN_S, SLOW_S, STRETCH_S, STUCK_S
from layercake.kraken.errors import InputError, LayercakeError, OperationFailed
from layercake.kraken.wire import Kind
from tests.support.disk import frozen, full, mounted, on_disk, read_only, stuck
from tests.support.world import INVENTORY, World, opened


def told(world: World) -> list[str]:
    return [e.kind for e in world.head.store.events if e.kind.startswith("database.")]


async def flush_fails(world: World) -> None:
    with pytest.raises(OperationFailed):
        await world.head.database.flush(world.head.store)


async def begun(world: World) -> None:
    """Waits until a write is under way."""
    for _ in range(100):
        await asyncio.sleep(0)
    world.clock.now += 0.001
    assert world.head.database.health.under_way > 0


def passes(world: World, seconds: float) -> None:
    """Time passes in which the head looks at its database as it does."""
    for _ in range(round(seconds / STRETCH_S)):
        world.clock.now += STRETCH_S
        world.head.database.health.check(world.head.store)


async def test_a_document_that_waits_is_written_by_the_next_flush_and_never_over_a_newer_one(
    world: World,
) -> None:
    head, documents, mark = world.head, world.head.database.documents, world.head.store.mark

    async def change(word: bytes, *, waits: bool) -> None:
        async with head.desire.transaction() as transaction:
            transaction.change(world.node("n0"), mark)
            transaction.documents["some/1"] = lambda: word
            transaction.can_wait = waits

    await change(b"first", waits=True)
    assert documents("some/") == {}
    await change(b"second", waits=False)
    assert documents("some/") == {"some/1": b"second"}
    await head.database.flush(head.store)
    assert documents("some/") == {"some/1": b"second"}
    await change(b"third", waits=True)
    with read_only(head), pytest.raises(OperationFailed):
        await change(b"fourth", waits=False)
    await head.database.flush(head.store)
    assert documents("some/") == {"some/1": b"third"}, "what did not happen has not taken its place"


async def test_trouble_is_shown_told_and_over_without_a_restart(world: World) -> None:
    await world.head.database.flush(world.head.store)
    with read_only(world.head):
        for _ in range(3):
            world.head.store.event(None, events.HEAD_STARTED, "something")
            await flush_fails(world)
        view = (await head_status(world.head.part(Observed)))["database"]
        assert (
            view["well"],
            "cannot write the database" in view["trouble"],
            "hint" in view["trouble"],
        ) == (False, True, True)
        assert view["waiting"] == 4
        assert told(world) == ["database.unwell"], "told once"
    await world.head.database.flush(world.head.store)
    assert (await head_status(world.head.part(Observed)))["database"]["well"]
    assert told(world) == ["database.unwell", "database.well"]
    await world.restart()
    assert told(world) == ["database.unwell", "database.well"], (
        "what could not be written then is written now"
    )


async def test_trouble_is_over_also_when_nothing_waits_to_be_written(world: World) -> None:
    await world.head.database.flush(world.head.store)
    with read_only(world.head), pytest.raises(OperationFailed):
        await world.ops.nodes.set_state("n0", "off", False)
    await world.head.database.flush(world.head.store)
    await world.head.database.flush(world.head.store)
    assert told(world) == ["database.unwell", "database.well"]


async def test_a_disk_that_comes_and_goes_does_not_fill_the_history(world: World) -> None:
    for _ in range(10):
        world.head.store.event(None, events.HEAD_STARTED, "something")
        with read_only(world.head):
            await flush_fails(world)
        await world.head.database.flush(world.head.store)
    assert told(world) == ["database.unwell", "database.well"]
    world.clock.now += AGAIN_S
    world.head.store.event(None, events.HEAD_STARTED, "something")
    with read_only(world.head):
        await flush_fails(world)
    assert told(world)[-1] == "database.unwell"


async def test_a_slow_disk_holds_nothing_up_and_is_told(world: World) -> None:
    world.attach("n0")
    with stuck(world.head) as gate:
        world.head.store.event(None, events.HEAD_STARTED, "something")
        flush = asyncio.ensure_future(world.head.database.flush(world.head.store))
        await begun(world)
        passes(world, SLOW_S + 1.0)
        world.send(world.hello("n0"))
        assert world.node("n0").value("run") == "SYNC", "the nodes are watched all the same"
        world.head.database.health.check(world.head.store)
        assert told(world) == ["database.unwell"]
        assert "slow" in (await head_status(world.head.part(Observed)))["database"]["trouble"]
        gate.set()
        await flush
    await world.head.database.flush(world.head.store)
    assert told(world) == ["database.unwell", "database.well"]


async def test_a_head_that_stood_still_itself_does_not_blame_the_disk(world: World) -> None:
    with stuck(world.head) as gate:
        world.head.store.event(None, events.HEAD_STARTED, "something")
        flush = asyncio.ensure_future(world.head.database.flush(world.head.store))
        await begun(world)
        world.clock.now += 10 * STUCK_S
        world.head.database.health.check(world.head.store)
        assert not world.head.database.health.stuck
        gate.set()
        await flush
    assert told(world) == []


async def test_no_node_is_lost_while_each_write_takes_two_seconds(world: World) -> None:
    nodes, writes, newest = ("n0", "n1"), 12, world.head.store.newest_event
    assert 2 * writes > world.settings.sync.dead_s
    for name in nodes:
        world.attach(name)
    for _ in range(writes):
        with stuck(world.head) as gate:
            world.head.store.event(None, events.HEAD_STARTED, "something")
            flush = asyncio.ensure_future(world.head.database.flush(world.head.store))
            await begun(world)
            for _ in range(2):
                world.tick(1)
                for name in nodes:
                    world.send(world.hello(name))
                    assert world.received(name).kind is Kind.DESIRED, (
                        "each HELLO has its answer while the disk does not"
                    )
            gate.set()
            await flush
    assert [world.node(name).value("run") for name in nodes] == ["SYNC", "SYNC"]
    assert not [
        e
        for e in world.head.store.events
        if e.kind in ("sync.lost", "mutation.started") and e.id > newest
    ]


async def test_nothing_more_is_asked_of_a_disk_that_does_not_answer(world: World) -> None:
    with stuck(world.head) as gate:
        world.head.store.event(None, events.HEAD_STARTED, "something")
        flush = asyncio.ensure_future(world.head.database.flush(world.head.store))
        await begun(world)
        passes(world, STUCK_S + 1.0)
        with pytest.raises(OperationFailed, match="cannot change anything: the database is slow"):
            await world.ops.nodes.set_state("n0", "off", False)
        assert world.node("n0").node.state == "up"
        gate.set()
        await flush
    await world.ops.nodes.set_state("n0", "off", False)


async def test_what_waits_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "UNWRITTEN", 100)
    with read_only(world.head):
        await flush_fails(world)
        for number in range(1000):
            world.head.store.event(None, events.HEAD_STARTED, f"number {number}")
            if number % 100 == 0:
                await flush_fails(world)
        assert len(world.head.store.new_events) == 100
    await world.head.database.flush(world.head.store)
    last = world.head.store.events[-1]
    assert (last.kind, last.data["lost"] > 800) == ("database.well", True)
    assert on_disk(world.directory, "SELECT text FROM events ORDER BY id DESC LIMIT 1") == [
        ("number 999",)
    ]


# -- real file systems


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[World]:
    """A head whose data directory is a file system of 2 MB."""
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=2m", "none") as disk:
        async with opened(disk) as found:
            yield found


_LEADS = """
import sys
from pathlib import Path
from layercake.base.lease import Lease
from layercake.kraken.errors import InputError
try:
    Lease(Path(sys.argv[1]), write=True).set(1.0, 2.0)
except InputError as error:
    print(error.message)
"""


@pytest.mark.root
def test_one_of_several_heads_does_not_begin_on_a_full_disk(tmp_path: Path) -> None:
    """Its lease is a file in memory: to write where there is no room would end it by a signal."""
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=256k", "none") as disk, full(disk):
        words = [sys.executable, "-c", _LEADS, str(disk)]
        done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (
        0,
        f"cannot write {disk}/lease: No space left on device\n",
    )


@pytest.mark.root
async def test_a_full_disk(small: World) -> None:
    small.attach("n0")
    small.send(small.hello("n0"))
    await small.head.database.flush(small.head.store)
    with full(small.directory):
        refused = 0
        for _ in range(60):
            before = small.node("n0").node
            try:
                await small.ops.nodes.set_state(
                    "n0", "off" if before.state == "up" else "up", False
                )
            except OperationFailed:
                refused += 1
                assert small.node("n0").node == before
        assert refused > 0
        small.send(small.hello("n0", busy="BUSY"))
        assert small.node("n0").value("busy") == "BUSY", "it goes on observing"
        await flush_fails(small)
        view = (await head_status(small.head.part(Observed)))["database"]
        assert "free some space" in view["trouble"]
    await small.head.database.flush(small.head.store)
    assert (await head_status(small.head.part(Observed)))["database"]["well"]
    assert told(small) == ["database.unwell", "database.well"]
    state = small.node("n0").node.state
    await small.restart()
    assert small.node("n0").node.state == state
    assert told(small) == ["database.unwell", "database.well"]


@pytest.mark.root
async def test_a_disk_that_is_nearly_full_is_told_of_while_the_database_still_has_room(
    tmp_path: Path,
) -> None:
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=16m", "none") as disk:
        async with opened(disk) as found:
            await found.head.database.flush(found.head.store)
            assert (await head_status(found.head.part(Observed)))["database"]["well"]
            left, rubbish = os.statvfs(disk), found.directory / "rubbish"
            rubbish.write_bytes(bytes(left.f_bavail * left.f_frsize - 250_000))
            found.head.store.event(None, events.HEAD_STARTED, "something")
            await found.head.database.flush(found.head.store)
            view = (await head_status(found.head.part(Observed)))["database"]
            assert not view["well"] and view["trouble"].startswith(
                "its disk is nearly full: 0 MB are left (hint: free some space"
            )
            assert told(found) == ["database.unwell"]
            rubbish.unlink()
            await found.head.database.flush(found.head.store)
            assert (await head_status(found.head.part(Observed)))["database"]["well"]


@pytest.mark.root
def test_a_head_is_not_started_on_a_full_disk_and_says_why(tmp_path: Path) -> None:
    with (
        mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=256k", "none") as disk,
        full(disk),
        pytest.raises(InputError, match=r"cannot open .*layercake\.db"),
    ):
        World(disk)


@pytest.mark.root
async def test_a_head_is_not_started_on_a_read_only_disk_and_says_why(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=2m", "none") as disk:
        world = World(disk)
        world.open()
        await world.ops.inventory.apply(INVENTORY, "test.yaml", None, False)
        await world.close_head()
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with pytest.raises(InputError, match=r"cannot open .*layercake\.db"):
            World(disk)
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        again = World(disk)
        again.open()
        assert again.head.store.names == ["n0", "n1"]
        await again.close_head()
        for found in (world, again):
            found.client.close()


@pytest.fixture
def ext4(tmp_path: Path) -> Iterator[Path]:
    """An empty file system with a disk under it."""
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(16 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    with mounted(tmp_path / "disk", "-o", "loop", str(image)) as disk:
        yield disk


@pytest.mark.root
async def test_a_disk_that_does_not_answer_for_a_while(ext4: Path) -> None:
    """A frozen file system: the writing thread waits in the kernel, the head does not."""
    world = World(ext4)
    try:
        world.open()
        await world.ops.inventory.apply(INVENTORY, "test.yaml", None, False)
        world.attach("n0")
        await world.head.database.flush(world.head.store)
        with frozen(ext4):
            asked = asyncio.ensure_future(world.ops.nodes.set_state("n0", "off", False))
            began, worst = time.monotonic(), 0.0
            while time.monotonic() - began < 2.0:
                turn = time.monotonic()
                world.send(world.hello("n0"))
                world.head.database.health.check(world.head.store)
                await asyncio.sleep(0.01)
                worst = max(worst, time.monotonic() - turn)
            assert not asked.done()
            assert (world.node("n0").node.state, world.node("n0").value("run")) == ("up", "SYNC")
            assert worst < 1.0, "the loop waited for the disk"
        assert await asked == ["n0"]
        assert world.node("n0").node.state == "off"
    finally:
        await world.close_head()
        world.client.close()


# -- damage


def damage(path: Path, kind: str) -> None:
    data = bytearray(path.read_bytes())
    if kind == "other file":
        data = bytearray(b"not a database\n" * 1000)
    elif kind == "cut":
        data = data[: len(data) // 2 // 4096 * 4096]
    elif kind == "pages":
        data[4096:] = os.urandom(len(data) - 4096)
    path.write_bytes(data)


@pytest.mark.parametrize("kind", ["other file", "cut", "pages"])
async def test_a_damaged_database_is_one_clear_sentence(tmp_path: Path, kind: str) -> None:
    world = World(tmp_path)
    world.open()
    await world.ops.inventory.apply(INVENTORY, "test.yaml", None, False)
    await world.close_head()
    world.client.close()
    path = tmp_path / "layercake.db"
    damage(path, kind)
    before = path.read_bytes()
    with pytest.raises(InputError) as caught:
        World(tmp_path)
    assert caught.value.message.startswith(f"cannot open {path}: ")
    assert "\n" not in caught.value.message
    assert "layercake restore" in caught.value.hint
    assert path.read_bytes() == before, "it is left for who can read it"


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE nodes SET data = '{'",
        "UPDATE nodes SET data = '[]'",
        "UPDATE nodes SET data = '{}'",
        "UPDATE events SET data = 'x'",
        "INSERT INTO documents VALUES ('roll/1', x'ff00')",
    ],
)
async def test_a_damaged_record_is_one_clear_sentence(world: World, change: str) -> None:
    await world.head.database.flush(world.head.store)
    world.head.database.connection.execute(change)
    other = World(world.directory)
    with pytest.raises(InputError, match=r"^cannot read ") as caught:
        other.open()
    assert "layercake restore" in caught.value.hint
    await other.close_head()
    other.client.close()


async def test_a_database_that_is_damaged_under_a_running_head(world: World) -> None:
    await world.head.database.flush(world.head.store)
    world.head.database.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    path = world.directory / "layercake.db"
    with path.open("r+b") as file:
        file.write(b"\xff" * path.stat().st_size)
    world.head.database.connection.execute(
        "PRAGMA shrink_memory"
    )  # what SQLite has read of it before
    with pytest.raises(OperationFailed) as caught:
        await world.ops.nodes.set_state("n0", "off", False)
    assert "layercake restore" in caught.value.hint
    assert world.node("n0").node.state == "up"
    assert told(world) == ["database.unwell"]


@pytest.mark.root
def test_an_image_that_cannot_be_put_into_the_index_is_not_there(tmp_path: Path) -> None:
    content = tmp_path / "image"
    content.write_bytes(b"hsqs of one")
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=256k", "none") as disk:
        images = ImageStore(disk / "images")
        images.add(content, "one", {"systemd": False})
        with full(disk):
            with pytest.raises(LayercakeError, match="cannot "):
                images.add(content, "two", {"systemd": False})
            with pytest.raises(OperationFailed, match="cannot write"):
                images.remove("one", in_use=())
            assert [i.name for i in images.list()] == ["one"]
        assert [i.name for i in ImageStore(disk / "images").list()] == ["one"]
        images.add(content, "two", {"systemd": False})
