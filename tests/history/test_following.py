"""The repository follows the database, whatever becomes of either: kills, damage, locks, a full
disk. No change waits for it, and none is lost."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from patience import patience

import tests.support.world
from layercake.features.history import history
from layercake.features.history.history import Repositories
from tests.history.conftest import Site, site_in
from tests.support.clock import FakeClock


async def set_arguments(site: Site, who: dict[str, str], value: str) -> None:
    await site.ask("PATCH", "/v1/nodes/n0", who, json={"set": {"kernel_args": value}})


async def test_a_killed_head_goes_on_with_who_asked_for_what(tmp_path: Path) -> None:
    async with site_in(tmp_path) as site:
        await site.history.caught_up()
        admin = await site.token("ada", "admin")
        locked(site)  # so that neither is committed before the kill
        await set_arguments(site, admin, "one")
        await set_arguments(site, admin, "two")
        await site.restart()
        log = site.git("log", "--format=%an|%s", "-2").splitlines()
        assert log == ["ada|change kernel_args of n0"] * 2
        assert '+kernel_args: "one"' in site.git("show", "HEAD~1")
        await site.restart()
        assert site.git("log", "--format=%an|%s", "-2").splitlines() == log


async def test_what_was_committed_and_not_noted_is_not_committed_again(tmp_path: Path) -> None:
    async with site_in(tmp_path) as site:
        admin = await site.token("ada", "admin")
        await set_arguments(site, admin, "one")
        documents = site.world.head.database.documents("history/")
        await site.history.caught_up()
        before = site.git("rev-list", "--count", "main")
        assert documents
        for key, data in documents.items():
            site.world.head.store.documents[key] = partial(bytes, data)
        await site.restart()
        assert site.git("rev-list", "--count", "main") == before


async def test_a_repository_that_is_behind_is_caught_up(tmp_path: Path) -> None:
    async with site_in(tmp_path) as site:
        admin = await site.token("ada", "admin")
        await site.history.caught_up()
        kept = tmp_path / "kept.git"
        shutil.copytree(site.repository, kept)
        await set_arguments(site, admin, "one")
        await site.history.caught_up()
        shutil.rmtree(site.repository)
        kept.rename(site.repository)
        await site.restart()
        assert site.git("log", "-1", "--format=%an|%s|%b").startswith(
            "layercake|change kernel_args of n0|catch up with the database"
        )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk with little room."""
    disk = tmp_path / "disk"
    disk.mkdir()
    made = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)]
    if subprocess.run(made, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def damaged(site: Site) -> None:
    (site.repository / "refs/heads/main").write_text("no commit\n")


def locked(site: Site) -> None:
    (site.repository / "refs/heads/main.lock").touch()


def gone(site: Site) -> None:
    for found in site.repository.glob("objects/??"):
        shutil.rmtree(found)


@pytest.mark.parametrize("harm", [damaged, locked, gone], ids=lambda harm: harm.__name__)
async def test_a_broken_repository_stops_no_change_and_is_said_once(site: Site, harm) -> None:  # type: ignore[no-untyped-def]
    admin = await site.token("ada", "admin")
    await site.history.caught_up()
    harm(site)
    await set_arguments(site, admin, "one")
    await set_arguments(site, admin, "two")
    assert site.world.node("n0").node.parts["pxe"].kernel_args == "two"  # type: ignore[attr-defined]
    while not site.history.trouble:
        await asyncio.sleep(0.01)
    assert not await site.history.follow()
    status = await site.ask("GET", "/v1/status", admin)
    assert not status["history"]["well"]
    assert status["history"]["waiting"] == 2
    told = [e for e in site.world.head.store.recent("") if e.kind == "history.behind"]
    assert len(told) == 1
    assert "layercake inventory rebuild" in told[0].text

    await site.ask("POST", "/v1/inventory/rebuild", admin)
    await site.history.caught_up()
    assert (await site.ask("GET", "/v1/status", admin))["history"]["well"]
    shown = await site.ask("GET", "/v1/inventory/show", admin)
    assert 'kernel_args: "two"' in shown["yaml"]
    assert site.git("fsck", "--strict") == ""


async def test_who_asked_is_known_however_often_the_head_is_killed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site_in(tmp_path) as site:
        admin = await site.token("ada", "admin")
        for value in ("one", "two", "three"):
            await set_arguments(site, admin, value)
        await site.history.caught_up()
        main = site.repository / "refs/heads/main"
        kept = main.read_text()
        damaged(site)
    monkeypatch.setattr(tests.support.world, "FakeClock", partial(FakeClock, 1_000_010.0))
    async with site_in(tmp_path) as site:
        await set_arguments(site, await site.token("grace", "admin"), "four")
        assert not await site.history.follow()
    main.write_text(kept)
    async with site_in(tmp_path) as site:
        assert await site.history.follow()
        assert "grace|change kernel_args of n0" in site.git("log", "--format=%an|%s").splitlines()


async def test_a_head_that_can_start_no_process_tries_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = await site.token("ada", "admin")
    await site.history.caught_up()
    with monkeypatch.context() as patched:
        await site.world.head.part(Repositories).close()
        patched.setenv("PATH", "/nowhere")
        await set_arguments(site, admin, "one")
        async with asyncio.timeout(patience(10.0)):
            while not site.history.trouble:
                await asyncio.sleep(0.01)
    assert await site.history.follow()
    assert not site.task.done()
    assert site.git("log", "-1", "--format=%an|%s") == "ada|change kernel_args of n0\n"


async def test_a_lock_that_goes_is_no_trouble_any_more(site: Site) -> None:
    admin = await site.token("ada", "admin")
    await site.history.caught_up()
    locked(site)
    await set_arguments(site, admin, "one")
    while not site.history.trouble:
        await asyncio.sleep(0.01)
    assert (site.repository / "refs/heads/main.lock").exists()
    (site.repository / "refs/heads/main.lock").unlink()
    assert await site.history.follow()
    assert site.git("log", "-1", "--format=%an|%s") == "ada|change kernel_args of n0\n"


async def test_a_full_disk_stops_no_change(site: Site, small_disk: Path) -> None:
    admin = await site.token("ada", "admin")
    await site.history.caught_up()
    shutil.copytree(site.repository, small_disk / "git")
    shutil.rmtree(site.repository)
    site.repository.symlink_to(small_disk / "git")
    filler = small_disk / "filler"
    with filler.open("wb") as file, pytest.raises(OSError):
        while True:
            file.write(bytes(65536))
            file.flush()
    await set_arguments(site, admin, "one")
    while not site.history.trouble:
        await asyncio.sleep(0.01)
    filler.unlink()
    assert await site.history.follow()
    assert site.git("log", "-1", "--format=%an|%s") == "ada|change kernel_args of n0\n"


async def test_changes_that_wait_hold_no_more_nodes_than_there_may_be(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.history.caught_up()
    await site.stop()
    monkeypatch.setattr(history, "MOST_NODES", 6)
    admin = await site.token("ada", "admin")
    for number in range(20):
        await set_arguments(site, admin, f"number-{number}")
        assert site.history.view()["waiting"] <= 7
    await site.history.caught_up()
    log = site.git("log", "--format=%B")
    assert history.CAUGHT_UP in log and log.count("change kernel_args of n0") < 10
    assert 'kernel_args: "number-19"' in site.git("show", "--format=", "HEAD")
