"""The history is in a backup, and is that of the head that is restored."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from layercake import backup
from layercake.cli.main import main
from layercake.features.history.feature import FOLDER
from layercake.features.history.repository import Repository
from layercake.head import settings as head_settings
from tests.history.conftest import Site

SECRET = b"correct horse battery staple"


async def backed_up(site: Site, file: Path) -> list[str]:
    world = site.world
    head_settings.save(world.directory, world.settings)
    await world.head.database.flush(world.head.store)
    return await asyncio.to_thread(backup.back_up, world.directory, file, SECRET)


async def test_a_restored_head_has_the_history(site: Site, tmp_path: Path) -> None:
    admin = await site.token("ada", "admin")
    for value in ("one", "two"):
        await site.ask("PATCH", "/v1/nodes/n0", admin, json={"set": {"kernel_args": value}})
        await site.history.caught_up()
    file, target = tmp_path / "head.backup", tmp_path / "restored"
    assert "inventory.bundle" in await backed_up(site, file)
    await asyncio.to_thread(backup.restore, file, target, SECRET)
    restored = Repository(target / FOLDER)
    restored.check()
    assert restored.head() == site.git("rev-parse", "main").strip()
    assert not (target / "inventory.bundle").exists()
    assert b"ada" in restored.run("log", "--format=%an", "main")
    # in the place of another one
    other = Repository(target / FOLDER)
    shutil.rmtree(other.path)
    other.open()
    await asyncio.to_thread(backup.restore, file, target, SECRET, replace=True)
    assert restored.head() == site.git("rev-parse", "main").strip()


async def test_a_damaged_history_keeps_nobody_from_a_backup_and_is_named(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.history.caught_up()
    await site.stop()
    shutil.rmtree(site.repository / "objects")
    file = tmp_path / "head.backup"
    assert "inventory.bundle" not in await backed_up(site, file)
    monkeypatch.setenv("LAYERCAKE_PASSPHRASE", SECRET.decode())
    words = ["backup", str(file), "--data-dir", str(site.world.directory)]
    assert await asyncio.to_thread(main, words) == 0
    assert "nor is the history of the inventory" in capsys.readouterr().out
    await asyncio.to_thread(backup.restore, file, tmp_path / "restored", SECRET)
    assert not (tmp_path / "restored" / FOLDER).exists()
