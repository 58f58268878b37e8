"""A release's steps: in their order, kept over a kill of the head between any two, and holding the
node until they have ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
from collections.abc import Awaitable, Callable
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
import pytest

from layercake.features.releases.record import (
    STEPS,
    ErasedDisk,
    Release,
    abandoned,
    began,
    ended,
    freed,
    retried,
)
from layercake.features.releases.table import KEPT, give_up
from layercake.fleet.persistence.database import Database
from layercake.fleet.store import Store
from layercake.kraken.errors import NotFound, Refused
from tests.support.releases import KeptReleases

T = TypeVar("T")
DISK = ErasedDisk(
    model="QEMU NVMe", serial="S1", way="format", seconds=1.5, size=1 << 30, verified=True
)


def at(path: Path, work: Callable[[KeptReleases], Awaitable[T]], wall: float = 100.0) -> T:
    """What comes of work with the releases of a head that is started on a database, and stopped
    again."""

    async def head() -> T:
        store = Store(lambda: 0.0, lambda: wall)
        database = Database(path, lambda: 0.0)
        try:
            releases = KeptReleases(database, store)
            releases.load()
            return await work(releases)
        finally:
            await database.close(store)

    return asyncio.run(head())


def finish(
    release: Release, result: Literal["done", "left", "failed"] = "done", detail: str = ""
) -> Release:
    return ended(release, result, 200.0, detail)


async def whole(releases: KeptReleases, node: str = "n1", upto: int = len(STEPS)) -> Release:
    release = await releases.begun(node, "ann")
    for _ in STEPS[:upto]:
        await releases.step(node, release.id, lambda r: began(r, 150.0))
        release = await releases.step(node, release.id, finish)
    return release


def test_steps_come_in_their_order_and_hold_until_the_last(tmp_path: Path) -> None:
    async def work(releases: KeptReleases) -> None:
        release = await releases.begun("n1", "ann")
        for number, name in enumerate(STEPS, 1):
            assert release.next == name
            assert f"{name}, step {number} of {len(STEPS)}" in releases.why_held("n1")
            await releases.step("n1", release.id, lambda r: began(r, 150.0))
            release = await releases.step("n1", release.id, finish)
        assert release.done
        assert release.ended == 200.0
        assert not releases.why_held("n1")
        assert not releases.running()

    at(tmp_path / "db", work)


def _killed(path: Path, ends: int, begins: int) -> None:
    async def work(releases: KeptReleases) -> None:
        release = await whole(releases, upto=ends)
        if begins:
            await releases.step("n1", release.id, lambda r: began(r, 150.0))
        os.kill(os.getpid(), signal.SIGKILL)

    at(path, work)


@pytest.mark.parametrize("begun", [0, 1])
def test_a_head_that_is_killed_goes_on_where_it_was(tmp_path: Path, begun: int) -> None:
    for number, name in enumerate(STEPS):
        path = tmp_path / f"{number}.db"
        child = get_context("fork").Process(target=_killed, args=(path, number, begun))
        child.start()
        child.join(60)
        assert child.exitcode == -signal.SIGKILL

        async def work(releases: KeptReleases, name: str = name, number: int = number) -> None:
            [release] = releases.running()
            assert release.next == name
            assert [step.result for step in release.steps[:number]] == ["done"] * number
            assert releases.why_held("n1")
            again = await releases.step("n1", release.id, lambda r: began(r, 300.0))
            assert again.steps[-1].name == name
            assert again.steps[-1].tries == 1 + begun

        at(path, work)


def test_a_step_that_fails_holds_until_it_is_tried_again(tmp_path: Path) -> None:
    async def fails(releases: KeptReleases) -> None:
        release = await whole(releases, upto=2)
        await releases.step("n1", release.id, lambda r: began(r, 150.0))
        await releases.step(
            "n1", release.id, partial(finish, result="failed", detail="disk QEMU S1: I/O error")
        )

    async def tries(releases: KeptReleases) -> None:
        assert releases.why_held("n1") == "its release failed at erase: disk QEMU S1: I/O error"
        assert not releases.running(), "it waits for a person"
        release = releases.of("n1")[-1]
        with pytest.raises(Refused, match="failed at erase"):
            await releases.step("n1", release.id, lambda r: began(r, 300.0))
        await releases.step("n1", release.id, retried)
        release = await releases.step("n1", release.id, lambda r: began(r, 300.0))
        assert (release.steps[-1].name, release.steps[-1].tries) == ("erase", 2)
        release = await releases.step(
            "n1", release.id, lambda r: ended(r, "done", 400.0, "", [DISK])
        )
        assert (release.next, release.disks) == ("tpm", (DISK,))

    at(tmp_path / "db", fails)
    at(tmp_path / "db", tries)


def test_an_abandoned_release_holds_until_a_person_frees_the_node(tmp_path: Path) -> None:
    async def work(releases: KeptReleases) -> None:
        release = await whole(releases, upto=2)
        with pytest.raises(Refused, match="no abandoned release"):
            await releases.step("n1", release.id, lambda r: freed(r, "bob"))
        await releases.step("n1", release.id, lambda r: began(r, 150.0))
        await releases.step("n1", release.id, lambda r: abandoned(r, "bob", 300.0))
        for late in (finish, retried, lambda r: began(r, 300.0)):
            with pytest.raises(Refused):
                await releases.step("n1", release.id, late)
        assert "abandoned by bob" in releases.why_held("n1")
        with pytest.raises(Refused, match="cannot release n1"):
            await releases.begun("n1", "ann")
        await releases.step("n1", release.id, lambda r: freed(r, "bob"))
        assert not releases.why_held("n1")
        assert not releases.running()

    at(tmp_path / "db", work)


def test_two_at_once_are_one(tmp_path: Path) -> None:
    async def work(releases: KeptReleases) -> None:
        both = await asyncio.gather(
            *(releases.begun("n1", who) for who in ("ann", "bob")), return_exceptions=True
        )
        assert [type(one) for one in both] == [Release, Refused]
        with pytest.raises(NotFound):
            await releases.step("n1", "another", finish)

    at(tmp_path / "db", work)


def test_the_last_ones_are_kept_by_order_not_by_clock(tmp_path: Path) -> None:
    for wall in range(KEPT + 2):  # the clock steps back each time
        at(tmp_path / "db", whole, wall=1000.0 - wall)
    held = at(tmp_path / "db", lambda releases: releases.begun("n1", "ann"), wall=1.0)

    async def work(releases: KeptReleases) -> None:
        assert [one.asked for one in releases.of("n1")] == [
            *(1000.0 - w for w in range(3, KEPT + 2)),
            1.0,
        ]
        assert releases.of("n1")[-1] == held
        assert releases.why_held("n1")
        releases.node_removed("n1")
        assert not releases.of("n1")
        await releases.begun("n1", "ann")

    at(tmp_path / "db", work)
    assert len(at(tmp_path / "db", lambda releases: _all(releases))) == 1


async def _all(releases: KeptReleases) -> tuple[Release, ...]:
    return releases.of("n1")


def test_a_row_that_cannot_be_read_holds_its_node(tmp_path: Path) -> None:
    at(tmp_path / "db", whole)
    with contextlib.closing(sqlite3.connect(tmp_path / "db")) as db, db:
        db.execute("UPDATE releases SET data = ?", (msgspec.json.encode({"id": 1}),))

    async def work(releases: KeptReleases) -> None:
        assert "cannot be read" in releases.why_held("n1")
        with pytest.raises(Refused):
            await releases.begun("n1", "ann")

    at(tmp_path / "db", work)


def test_what_goes_on_in_a_backup_is_given_up(tmp_path: Path) -> None:
    at(tmp_path / "db", lambda releases: whole(releases, "n1", upto=2))
    at(tmp_path / "db", lambda releases: whole(releases, "n2"))
    assert give_up(tmp_path / "db", "the restore", 900.0) == ["n1"]
    assert give_up(tmp_path / "db", "the restore", 901.0) == []

    async def work(releases: KeptReleases) -> None:
        assert releases.running() == [], "nothing is erased"
        assert "abandoned by the restore" in releases.why_held("n1")
        assert releases.why_held("n2") == ""

    at(tmp_path / "db", work)


def test_a_backup_of_an_older_head_has_no_releases(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "db").close()
    assert give_up(tmp_path / "db", "the restore", 900.0) == []


def test_a_node_that_was_added_again_keeps_its_new_row(tmp_path: Path) -> None:
    """Its old rows are taken away with the next release, also one of several nodes."""

    async def work(releases: KeptReleases) -> None:
        await whole(releases)
        releases.node_removed("n1")
        await releases.begun_all(["n1", "n2"], "ann")

    at(tmp_path / "db", work)
    kept = at(tmp_path / "db", lambda releases: _all(releases))
    assert [len(kept), kept[0].next] == [1, "hold"]
