"""A rack whose images change, by the real commands over the real API of a head whose nodes are
played."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from layercake.base.clock import show_time
from layercake.cli.main import main
from tests.support.rollnodes import Site, inventory, on_socket

NODES = 12
IMAGES = "images: [one]"


@pytest.fixture
async def site(
    tmp_path: Path, socket: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Site]:
    monkeypatch.setenv("LAYERCAKE_SOCKET", str(socket))
    async with on_socket(tmp_path, NODES, socket) as found:
        yield found


@pytest.fixture
def rack(tmp_path: Path) -> Path:
    """The inventory that the nodes have, with the images in one place."""
    path = tmp_path / "rack.yaml"
    path.write_text(
        inventory(NODES, "one").replace(", images: [one]", "")
        + "\ndefaults: {images: [one]}  # what all run\n"
    )
    return path


async def command(*words: str) -> int:
    return await asyncio.to_thread(main, [*words])


def told(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


async def test_a_rack_is_rolled_saved_and_not_taken_back(
    site: Site, rack: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = rack.read_text()
    assert await command("plan", str(rack)) == 0
    assert "nothing to change" in capsys.readouterr().out
    assert (
        await command(
            "image", "roll", "@all", "two", "--save", str(rack), "--yes", "--no-wait", "--json"
        )
        == 0
    )
    begun = told(capsys)
    assert begun["saved"] == {"file": str(rack), "lines": [len(old.splitlines())]}
    assert (await site.until_over(begun["rolls"][0]["id"]))["state"] == "done"
    assert set(site.running().values()) == {"two"}
    assert rack.read_text() == old.replace("{images: [one]}", "{images: [two]}")
    assert await command("plan", str(rack)) == 0
    assert "nothing to change" in capsys.readouterr().out

    rack.write_text(old)
    assert await command("apply", str(rack), "--yes") == 4
    assert (
        "n[0-11]: rolled to two since; this inventory takes them back to one"
        in capsys.readouterr().err
    )
    assert await command("apply", str(rack), "--yes", "--take-back", "--no-wait", "--json") == 0
    back = told(capsys)["rolls"][0]
    await site.step(3)
    assert list(site.running().values()).count("one") <= 2, "the canary, and not the rack"
    assert (await site.until_over(back["id"]))["state"] == "done"
    assert set(site.running().values()) == {"one"}


async def test_a_roll_at_night_is_shown_and_taken_back(
    site: Site, rack: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = show_time(site.world.head.store.wall() + 3600)
    assert await command("image", "roll", "@all", "two", "--at", at, "--yes") == 0
    out = capsys.readouterr().out
    assert "n[0-11]: roll 1 begins " in out and "`layercake roll abort 1` takes it back" in out
    options = ("--batch", "2", "--at", at, "--yes")
    assert await command("image", "roll", "n[0-3]", "two", *options) == 0
    assert "roll 2 begins " in capsys.readouterr().out
    assert await command("roll", "status") == 0
    assert capsys.readouterr().out.count("scheduled") == 2
    assert await command("roll", "abort", "1") == 0
    assert "aborted" in capsys.readouterr().out
    for wrong in (["--save", str(rack)], ["--at-once"]):
        assert await command("image", "roll", "@all", "two", "--at", at, "--yes", *wrong) == 2
        assert "cannot roll at a time with --" in capsys.readouterr().err
    assert await command("image", "roll", "@all", "two", "--at", "1970-01-02 02:00", "--yes") == 2
    assert "that has passed" in capsys.readouterr().err
    assert set(site.running().values()) == {"one"}
