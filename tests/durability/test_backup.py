"""Backup and restore: of a head that runs, into an empty directory; what is wrong is one clear
sentence, and changes nothing."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from layercake import backup
from layercake.agents import pki
from layercake.cli.main import main
from layercake.features.access import doors
from layercake.features.access.tokens import Tokens
from layercake.features.releases.manager import ReleaseManager
from layercake.head import lock
from layercake.head import settings as head_settings
from layercake.kraken.errors import InputError, LayercakeError, Refused
from tests.support.api import token
from tests.support.world import World

SECRET = b"correct horse battery staple"


@pytest.fixture
def running(world: World) -> World:
    """A head with all that belongs into its directory."""
    head_settings.save(world.directory, world.settings)
    pki.create(world.directory / "pki", "127.0.0.1")
    doors.create_admin_token(world.directory)
    (world.directory / "images").mkdir(exist_ok=True)
    (world.directory / "images" / "signing.key").write_bytes(b"a key of the images")
    world.attach("n0")
    world.send(world.hello("n0"))
    return world


def files(directory: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()
    }


async def test_a_backup_of_a_running_head_is_a_head(running: World, tmp_path: Path) -> None:
    await running.ops.nodes.set_state("n1", "off", False)
    await running.head.database.flush(running.head.store)
    file, target = tmp_path / "b" / "head.backup", tmp_path / "restored"
    file.parent.mkdir()
    writes = asyncio.ensure_future(keep_writing(running))
    names = await asyncio.to_thread(backup.back_up, running.directory, file, SECRET)
    writes.cancel()
    assert {
        "layercake.db",
        "config.yaml",
        "pki/ca.key",
        "pki/server.key",
        "tokens.json",
        "images/signing.key",
    } <= set(names)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [p.name for p in file.parent.iterdir()] == ["head.backup"]
    backup.restore(file, target, SECRET)
    for name, data in files(target).items():
        if name != "layercake.db":
            assert data == (running.directory / name).read_bytes(), name
    assert all(
        stat.S_IMODE(p.stat().st_mode) in (0o600, 0o700) for p in (target, *target.rglob("*"))
    )
    other = World(target)
    other.open()
    assert other.head.store.names == ["n0", "n1"]
    assert other.node("n1").goal_values == {"power": "OFF"}
    assert other.node("n0").session == running.node("n0").session
    await other.close_head()
    other.client.close()


async def test_a_release_that_went_on_is_given_up_by_a_restore(
    running: World, tmp_path: Path
) -> None:
    await running.ops.releases.begin("n1", force=False, by="ann")
    await asyncio.to_thread(backup.back_up, running.directory, tmp_path / "b", SECRET)
    await asyncio.to_thread(backup.restore, tmp_path / "b", tmp_path / "restored", SECRET)
    other = World(tmp_path / "restored")
    other.open()
    assert other.head.part(ReleaseManager).kept.running() == [], (
        "the node may be somebody else's by now"
    )
    assert "abandoned by the restore of a backup" in other.ops.releases.of("n1")["held"]
    await other.close_head()
    other.client.close()


def test_settings_in_etc_come_back_there(
    running: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head_settings, "ETC", tmp_path / "etc")
    monkeypatch.setattr(head_settings, "USUAL", running.directory)
    settings = running.directory / "config.yaml"
    text = settings.read_bytes()
    settings.unlink()
    head_settings.save(running.directory, running.settings)
    assert settings.is_symlink()
    backup.back_up(running.directory, tmp_path / "head.backup", SECRET)
    monkeypatch.setattr(head_settings, "USUAL", tmp_path / "restored")
    (tmp_path / "etc" / "config.yaml").write_text("nonsense")
    backup.restore(tmp_path / "head.backup", tmp_path / "restored", SECRET)
    assert (tmp_path / "restored" / "config.yaml").readlink() == tmp_path / "etc" / "config.yaml"
    assert (tmp_path / "etc" / "config.yaml").read_bytes() == text


@pytest.mark.parametrize("revoke", [False, True])
async def test_tokens_that_were_revoked_since_come_back_unless_all_are_revoked(
    running: World, tmp_path: Path, capsys: pytest.CaptureFixture[str], revoke: bool
) -> None:
    headers = await token(running.head, "ann", "admin")
    await running.head.database.flush(running.head.store)
    backup.back_up(running.directory, tmp_path / "head.backup", SECRET)
    async with running.head.desire.transaction(revises=False) as transaction:
        running.head.part(Tokens).revoke(transaction, "ann")
    (tmp_path / "pass").write_bytes(SECRET)
    target = tmp_path / "restored"
    target.mkdir()
    (target / "tokens.json").write_text("{}")
    own = ["restore", str(tmp_path / "head.backup"), "--data-dir", str(target), "--replace"]
    options = ["--passphrase-file", str(tmp_path / "pass"), *(["--revoke"] if revoke else [])]
    assert main([*own, *options]) == 0
    said = capsys.readouterr().out
    assert "all tokens are revoked" in said if revoke else "--revoke" in said
    other = World(target)
    other.open()
    found = other.head.part(Tokens).find(headers["Authorization"].split()[1])
    assert (found is None) is revoke
    assert bool(other.head.part(Tokens).all()) is not revoke, "tokens.json counts too"
    assert other.head.store.names == ["n0", "n1"]
    await other.close_head()
    other.client.close()


async def keep_writing(world: World) -> None:
    while True:
        await world.ops.nodes.set_state("n0", "off", False)
        await world.ops.nodes.set_state("n0", "up", False)


def test_nothing_in_it_can_be_read(running: World, tmp_path: Path) -> None:
    file = tmp_path / "head.backup"
    backup.back_up(running.directory, file, SECRET)
    data = file.read_bytes()
    for word in (b"PRIVATE KEY", b"SQLite", b"interface", b"a key of the images", SECRET):
        assert word not in data
    backup.back_up(running.directory, tmp_path / "again", SECRET)
    assert (tmp_path / "again").read_bytes()[:60] != data[:60], "another salt and nonce"


def cut(data: bytes) -> bytes:
    return data[:-100]


def flipped(data: bytes) -> bytes:
    return data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": cut,
    "flipped": flipped,
    "salt": lambda d: d[:20] + bytes([d[20] ^ 1]) + d[21:],
    "empty": lambda d: b"",
    "short": lambda d: d[:30],
    "foreign": lambda d: b"PK\x03\x04" + d,
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_backup_is_one_sentence(running: World, tmp_path: Path, name: str) -> None:
    file, target = tmp_path / "head.backup", tmp_path / "restored"
    backup.back_up(running.directory, file, SECRET)
    file.write_bytes(DAMAGES[name](file.read_bytes()))
    with pytest.raises(InputError, match=r"^cannot read ") as caught:
        backup.restore(file, target, SECRET)
    assert "\n" not in str(caught.value)
    assert not target.exists()


def test_a_wrong_passphrase_is_one_sentence(running: World, tmp_path: Path) -> None:
    backup.back_up(running.directory, tmp_path / "head.backup", SECRET)
    with pytest.raises(InputError, match="the passphrase is wrong, or the file is damaged"):
        backup.restore(tmp_path / "head.backup", tmp_path / "restored", SECRET + b"!")
    assert not (tmp_path / "restored").exists()


def test_a_directory_that_is_not_empty_or_in_use_is_left_alone(
    running: World, tmp_path: Path
) -> None:
    file, target = tmp_path / "head.backup", tmp_path / "restored"
    backup.back_up(running.directory, file, SECRET)
    target.mkdir()
    (target / "layercake.db").write_bytes(b"old")
    (target / "layercake.db-wal").write_bytes(b"old")
    (target / "mine").write_bytes(b"mine")
    before = files(target)
    with pytest.raises(Refused, match="it is not empty"):
        backup.restore(file, target, SECRET)
    assert files(target) == before
    held = lock.acquire(target, "serve")
    with pytest.raises(InputError, match=r"cannot restore into .*: another head is serving it"):
        backup.restore(file, target, SECRET, replace=True)
    os.close(held)
    assert {k: v for k, v in files(target).items() if k != lock.FILE_NAME} == before
    backup.restore(file, target, SECRET, replace=True)
    assert (target / "mine").read_bytes() == b"mine"
    assert not (target / "layercake.db-wal").exists()
    assert (target / "layercake.db").read_bytes().startswith(b"SQLite format 3")


def test_a_backup_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        backup.back_up(tmp_path, tmp_path / "head.backup", SECRET)


def test_a_backup_that_cannot_be_written_leaves_the_old_one(running: World, tmp_path: Path) -> None:
    with pytest.raises(LayercakeError, match="cannot write"):
        backup.back_up(running.directory, tmp_path / "nowhere" / "head.backup", SECRET)


def test_the_passphrase_comes_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(backup.VARIABLE, raising=False)
    (tmp_path / "pass").write_text("a long passphrase\n")
    assert backup.passphrase(tmp_path / "pass") == b"a long passphrase"
    with pytest.raises(InputError, match="without a passphrase"):
        backup.passphrase(None)
    monkeypatch.setenv(backup.VARIABLE, "from the environment")
    assert backup.passphrase(None) == b"from the environment"
    monkeypatch.setenv(backup.VARIABLE, "short")
    with pytest.raises(InputError, match="shorter than 8"):
        backup.passphrase(None)


def test_the_commands(
    running: World,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(backup.VARIABLE, "from the environment")
    file, target = str(tmp_path / "head.backup"), str(tmp_path / "restored")
    assert main(["backup", file, "--data-dir", str(running.directory)]) == 0
    assert main(["restore", file, "--data-dir", target]) == 0
    capsys.readouterr()
    assert main(["restore", file, "--data-dir", target]) == 4
    assert "is not empty" in capsys.readouterr().err
    monkeypatch.setenv(backup.VARIABLE, "another passphrase")
    assert main(["restore", file, "--data-dir", str(tmp_path / "other")]) == 2
    said = capsys.readouterr().err
    assert ("passphrase is wrong" in said, "Traceback" in said) == (True, False)
