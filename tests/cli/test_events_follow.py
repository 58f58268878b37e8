"""events --follow: each event once, one JSON object a line, until interrupted."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from layercake.client import event_stream as follow
from layercake.client.command import App
from layercake.client.target import Target
from layercake.kraken.errors import Unreachable
from tests.cli.canned_api import CannedApi, event


def heed_interrupts() -> None:
    """Tests that run in the background of a shell inherit that SIGINT is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_follow_shows_past_and_present_once_and_ends_on_interrupt(
    head: CannedApi, socket: Path
) -> None:
    head.answers["GET /v1/events"] = (200, {"events": [event(1), event(2)]})
    head.batches = [[event(2), event(3)], [event(4)]]
    command = [
        sys.executable,
        "-m",
        "layercake.cli.main",
        "events",
        "--follow",
        "--json",
        "--node",
        "n0",
    ]
    environment = {**os.environ, "LAYERCAKE_SOCKET": str(socket)}
    with subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=heed_interrupts,
    ) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            assert [json.loads(process.stdout.readline())["id"] for _ in range(4)] == [1, 2, 3, 4]
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 130
            assert b"Traceback" not in process.stderr.read()
        finally:
            process.kill()
    assert ("WS", {"node": "n0"}, None) in head.requests


async def test_a_head_that_is_not_there_at_the_start_is_an_error(socket: Path) -> None:
    with pytest.raises(Unreachable):
        await follower(socket, []).run(None)


async def test_a_head_that_comes_back_is_followed_on_without_repeats(
    socket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "RETRY_S", 0.01)
    first = CannedApi()
    first.answers["GET /v1/events"] = (200, {"events": [event(1)]})
    first.start(socket)
    seen: list[int] = []
    task = asyncio.create_task(follower(socket, seen).run(None))
    while seen != [1]:
        await asyncio.sleep(0.01)
    await asyncio.to_thread(first.stop)
    second = CannedApi()
    second.answers["GET /v1/events"] = (200, {"events": [event(1), event(2)]})
    second.start(socket)
    while len(seen) < 2:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(second.stop)
    assert seen == [1, 2]
    assert second.requests[-1][1].get("since") == "1"


def follower(socket: Path, seen: list[int]) -> follow.Follower:
    """Follows the head at a socket; the ids of the events go to `seen`."""
    app = App()
    app.target = Target(str(socket))
    return follow.Follower(app, lambda event: seen.append(event["id"]), 10)
