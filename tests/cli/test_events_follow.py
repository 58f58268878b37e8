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

from layercake.cli.client import Client, Target
from layercake.cli.events import Follower
from layercake.cli.output import Output
from layercake.kraken.errors import Unreachable
from tests.cli.fake_head import FakeHead, event


def heed_interrupts() -> None:
    """Tests that run in the background of a shell inherit that SIGINT is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_follow_shows_past_and_present_once_and_ends_on_interrupt(head: FakeHead, socket: Path) -> None:
    head.answers["GET /v1/events"] = (200, {"events": [event(1), event(2)]})
    head.batches = [[event(2), event(3)], [event(4)]]
    command = [sys.executable, "-m", "layercake.cli.main", "events", "--follow", "--json", "--node", "n0"]
    environment = {**os.environ, "LAYERCAKE_SOCKET": str(socket)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          preexec_fn=heed_interrupts) as process:
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
    async with Client(Target(str(socket))) as client:
        with pytest.raises(Unreachable):
            await Follower(Output(), "", "", 10).run(client, None)


async def test_a_head_that_comes_back_is_followed_on_without_repeats(
    socket: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("layercake.cli.events.RETRY_S", 0.01)
    first = FakeHead()
    first.answers["GET /v1/events"] = (200, {"events": [event(1, "one")]})
    first.start(socket)
    async with Client(Target(str(socket))) as client:
        task = asyncio.create_task(Follower(Output(), "", "", 10).run(client, None))
        seen = ""
        while "one" not in seen:
            await asyncio.sleep(0.01)
            seen += capsys.readouterr().out
        await asyncio.to_thread(first.stop)
        second = FakeHead()
        second.answers["GET /v1/events"] = (200, {"events": [event(1, "one"), event(2, "two")]})
        second.start(socket)
        while "two" not in seen:
            await asyncio.sleep(0.01)
            seen += capsys.readouterr().out
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(second.stop)
    assert seen.count("one") == 1
    assert second.requests[-1][1].get("since") == "1"
