"""A test that fails over a socket that it left open fails alone."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.support.servers import answers, connected

ROOT = Path(__file__).resolve().parents[2]
LEAKS = """
import socket

class Wire:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.me = self
        self.socket.connect(path)

def test_leaves_a_socket():
    Wire("/nowhere")

def test_another():
    import gc
    gc.collect()
"""


@pytest.mark.parametrize(
    ("plugin", "failed"), [("tests.support.aftermath", "1 failed, 1 passed"), ("", "2 failed")]
)
def test_what_a_failed_test_leaves_fails_no_other(tmp_path: Path, plugin: str, failed: str) -> None:
    (tmp_path / "test_leaks.py").write_text(LEAKS)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            *(["-p", plugin] if plugin else []),
            "-p",
            "no:asyncio",
            "-c",
            "/dev/null",
            "--rootdir",
            str(tmp_path),
            "-W",
            "error",
            str(tmp_path / "test_leaks.py"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert failed in done.stdout, done.stdout + done.stderr


def test_a_server_is_waited_for_until_it_takes_connections(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))  # it is there from now on, and refuses

        def listen() -> None:
            time.sleep(0.2)
            server.listen()

        starting = threading.Thread(target=listen)
        starting.start()
        with connected(path):
            assert path.exists()
        starting.join()


def test_a_server_that_ended_is_not_waited_for(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
        with pytest.raises(AssertionError, match="its server has ended"):
            answers(tmp_path / "socket", process)
