"""The commands against the real API over a head without services: its views have what the commands show."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from layercake.api.server import Api
from layercake.cli.main import main
from layercake.head import pki
from tests.support.world import INVENTORY, World


@pytest.fixture
async def world(tmp_path: Path, socket: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """A head with two nodes, n0 joined and n1 off, whose API is open on `socket`."""
    found = World(tmp_path)
    found.open()
    found.head.settings = msgspec.structs.replace(found.head.settings, socket=str(socket))
    pki.create(tmp_path / "pki", "127.0.0.1")
    await found.ops.inventory.apply(INVENTORY, "rack.yaml", None, False)
    found.attach("n0")
    api = Api(found.head)
    await api.start()
    monkeypatch.setenv("LAYERCAKE_SOCKET", str(socket))
    yield found
    await api.stop()
    await found.close_head()
    found.client.close()


COMMANDS = ["status", "node list", "node list n[0-1]", "node show n0", "node explain n1", "node up n1", "node off n0 --yes",
            "node clear @all", "image list", "roll status", "events", "graph --node n0"]


@pytest.mark.parametrize("command", COMMANDS)
async def test_every_view_can_be_shown(world: World, capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert await asyncio.to_thread(main, command.split()) == 0
    assert capsys.readouterr().out
    assert await asyncio.to_thread(main, [*command.split(), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)


async def test_a_plan_is_made_and_applied(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rack.yaml"
    file.write_text(INVENTORY.replace("firmware: uefi", "firmware: bios"))
    assert await asyncio.to_thread(main, ["plan", str(file)]) == 0
    assert "firmware: uefi -> bios" in capsys.readouterr().out
    assert await asyncio.to_thread(main, ["apply", str(file), "--yes", "--no-wait"]) == 0
    assert world.node("n1").node.firmware == "bios"
    file.write_text("nodes: {n0: {mak: x}}\n")
    assert await asyncio.to_thread(main, ["plan", str(file)]) == 2
    assert "mak" in capsys.readouterr().err


async def test_what_does_not_exist_is_exit_2(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["node", "show", "n9"], ["image", "remove", "none", "--yes"], ["node", "list", "n9"], ["roll", "status", "9"]):
        assert await asyncio.to_thread(main, command) == 2
        assert "cannot" in capsys.readouterr().err
