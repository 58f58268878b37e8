"""What an agent has begun that was killed: the next agent ends it, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import patience

from imageapi.events import unheard
from imageapi.node.container.process import Process, alive, start_time
from imageapi.node.container.runtime import Runtime
from imageapi.node.imageset.imageset import ImageSet
from layercake.node.commands import Commands
from layercake.node.wiring import open_url

KEY = "0123456789abcdef"
AGENT = """
import sys, threading
from pathlib import Path
from tests.remote.test_left_commands import KEY, commands
command = ["sh", "-c", "sleep 600 & wait"]
request = {"key": KEY, "kind": "exec", "timeout_s": 600, "command": command}
commands(Path(sys.argv[1])).begin(request, print)
threading.Event().wait()
"""


def commands(run: Path) -> Commands:
    return Commands(ImageSet(run, Runtime(run), open_url, unheard), run, lambda digest: b"")


@pytest.fixture
def left(tmp_path: Path) -> Iterator[Process]:
    """A command whose agent was killed."""
    with subprocess.Popen(
        [sys.executable, "-c", AGENT, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as agent:
        mark = tmp_path / "commands" / KEY
        until = time.monotonic() + patience(30.0)
        while not (mark.is_file() and mark.read_text()):
            assert time.monotonic() < until and agent.poll() is None
            time.sleep(0.01)
        pid, started = map(int, mark.read_text().split())
        agent.send_signal(signal.SIGKILL)
    process = Process(pid, started)
    assert alive(process), "nothing else ends it"
    yield process
    if alive(process):
        os.killpg(pid, signal.SIGKILL)


def ended(process: Process) -> bool:
    until = time.monotonic() + patience(10.0)
    while alive(process) and time.monotonic() < until:
        time.sleep(0.01)
    return not alive(process)


def test_the_next_agent_ends_what_nobody_waits_for(left: Process, tmp_path: Path) -> None:
    commands(tmp_path).cancel_others(set())
    assert ended(left)
    assert not list((tmp_path / "commands").iterdir())


def test_it_ends_what_is_asked_for_once_more_too_and_says_so(left: Process, tmp_path: Path) -> None:
    said: list[object] = []
    after = commands(tmp_path)
    after.cancel_others({KEY})
    assert alive(left), "somebody waits for it, and is told first"
    after.begin({"key": KEY, "kind": "exec", "command": ["true"]}, said.append)
    assert "replaced meanwhile" in str(said)
    assert ended(left)


def test_a_process_that_has_the_number_by_now_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as other:
        (tmp_path / "commands").mkdir()
        for number, mark in enumerate((f"{other.pid} 1", f"{other.pid}", "", "x y", "0 0", "-1 0")):
            (tmp_path / "commands" / f"{number:08x}").write_text(mark)
        commands(tmp_path).cancel_others(set())
        assert alive(Process(other.pid, start_time(other.pid)))
        other.kill()
