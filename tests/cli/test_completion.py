"""What a shell is given to complete: names as the head has them now."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.rollnodes import Site, on_socket

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
async def site(tmp_path: Path, socket: Path) -> AsyncIterator[Site]:
    async with on_socket(tmp_path, 3, socket) as found:
        yield found


async def completed(socket: Path, *words: str, options: tuple[str, ...] = ()) -> list[str]:
    """What bash is given for the last of these words."""
    line = ["layercake", *options, *words]
    env = {
        **os.environ,
        "LAYERCAKE_SOCKET": str(socket),
        "_LAYERCAKE_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(line),
        "COMP_CWORD": str(len(line) - 1),
    }
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "layercake.cli.main"],
        env=env,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert not done.stderr, done.stderr
    return [word.removeprefix("plain,") for word in done.stdout.split()]


async def test_names_of_nodes_groups_and_images(site: Site, socket: Path) -> None:
    names = sorted(record.name for record in site.world.head.store)
    assert await completed(socket, "node", "show", "n") == names
    assert await completed(socket, "node", "clear", f"{names[0]},{names[1][:1]}") == [
        f"{names[0]},{name}" for name in names
    ]
    assert "@all" in await completed(socket, "power", "off", "@")
    assert await completed(socket, "image", "remove", "o") == ["one"]
    assert await completed(socket, "files", "show", "n") == names
    assert await completed(socket, "node", "exec", "zz") == []


async def test_a_head_that_is_not_there_completes_nothing(socket: Path) -> None:
    assert await completed(socket, "node", "show", "n") == []
    assert await completed(socket, "node", "sh") == ["show"], "commands need no head"
