"""The supervisor: reaps, records, restarts, and leaves containers alone."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from patience import patience

from minos.supervisor import describe

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import sys
sys.path.insert(0, {root!r})
from minos.supervisor import Supervisor
def agent():
    exec(open({agent!r}).read(), {{"run": {run!r}}})
Supervisor({run!r}, agent, say=lambda text: print(text, flush=True)).run()
"""
ORPHAN = """
import os, time
if os.fork() == 0:
    pid = os.fork()
    if pid == 0:
        open(run + "/orphan", "w").write(str(os.getpid()))
        {what}
    os._exit(0)
os.wait()
time.sleep(100)
"""


def eventually(what: Callable[[], object], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + patience(seconds)
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


class Rig:
    """A supervisor process whose agent is a script."""

    def __init__(self, directory: Path) -> None:
        self.run = directory / "run"
        self.run.mkdir()
        self.script = directory / "agent.py"
        self.log = directory / "log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, agent: str) -> None:
        self.script.write_text(agent)
        code = SCRIPT.format(root=str(ROOT), run=str(self.run), agent=str(self.script))
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([sys.executable, "-c", code], stdout=log, stderr=log)

    def pid(self) -> int:
        file = self.run / "agent.pid"
        return int(file.read_text()) if file.exists() else 0

    def orphan(self) -> int:
        file = self.run / "orphan"
        text = file.read_text() if file.exists() else ""
        return int(text) if text else 0


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    if rig.process and rig.process.poll() is None:
        rig.process.kill()
        rig.process.wait()
    if rig.orphan():
        with contextlib.suppress(ProcessLookupError):
            os.kill(rig.orphan(), signal.SIGKILL)


@pytest.mark.parametrize(("what", "status"), [("os._exit(7)", 7), ("os.kill(os.getpid(), 9)", -9)])
def test_how_an_orphan_ended_is_written_down(rig: Rig, what: str, status: int) -> None:
    rig.start(ORPHAN.format(what=f"time.sleep(0.2); {what}"))
    eventually(rig.orphan)
    record = rig.run / "exits" / str(rig.orphan())
    eventually(record.exists)
    assert os.waitstatus_to_exitcode(int(record.read_text())) == status
    assert not list((rig.run / "exits").glob(".*")), "nothing half-written stays"


def test_a_killed_agent_is_started_again_and_its_orphans_live_on(rig: Rig) -> None:
    second = "import os\nif os.path.exists(run + '/orphan'):\n    import time; time.sleep(100)\n"
    rig.start(second + ORPHAN.format(what="time.sleep(100)"))
    eventually(rig.orphan)
    first = rig.pid()
    os.kill(first, signal.SIGKILL)
    eventually(lambda: rig.pid() not in (0, first))
    os.kill(rig.orphan(), 0)
    assert "killed by SIGKILL" in rig.log.read_text()


def test_an_agent_that_cannot_run_is_tried_less_and_less(rig: Rig) -> None:
    rig.start("raise ValueError('no good')")
    eventually(lambda: rig.log.read_text().count("the agent ended") >= 4)
    text = rig.log.read_text()
    waits = [
        float(line.rpartition("again in ")[2].split()[0])
        for line in text.splitlines()
        if "again in" in line
    ]
    assert waits[:4] == [0.2, 0.4, 0.8, 1.6]
    assert "ValueError: no good" in text, "its last words are on the console"


def test_sigterm_stops_the_agent_and_leaves_the_containers(rig: Rig) -> None:
    rig.start(ORPHAN.format(what="time.sleep(100)"))
    eventually(rig.orphan)
    assert rig.process
    rig.process.terminate()
    assert rig.process.wait(10) == 0
    os.kill(rig.orphan(), 0)


def test_statuses_in_words() -> None:
    assert describe(9) == "killed by SIGKILL"
    assert describe(3 << 8) == "exit status 3"


BINDS = """
import os, time
from minos.agent.metadata.service import listen
port = 0
if os.path.exists(run + "/port"):
    port = int(open(run + "/port").read())
listener = listen("127.0.0.1", port)
if not port:
    with open(run + "/port.new", "w") as file:
        file.write(str(listener.getsockname()[1]))
    os.rename(run + "/port.new", run + "/port")
    while not os.path.exists(run + "/end"):
        time.sleep(0.01)
    os._exit(1)
while not os.path.exists(run + "/serve"):
    time.sleep(0.01)
client, _ = listener.accept()
client.sendall(b"the agent")
time.sleep(100)
"""


def test_nobody_takes_the_agents_port_between_two_agents(rig: Rig) -> None:
    """A container that listens at it answers for the node."""
    rig.start(BINDS)
    eventually((rig.run / "port").exists)
    port = int((rig.run / "port").read_text())
    first = rig.pid()
    (rig.run / "end").touch()
    eventually(lambda: not Path(f"/proc/{first}").exists())
    for address in ("127.0.0.1", ""):
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            with socket.socket() as thief:
                thief.setsockopt(socket.SOL_SOCKET, option, 1)
                with pytest.raises(OSError, match="in use"):
                    thief.bind((address, port))
                    thief.listen()
    with socket.create_connection(("127.0.0.1", port)) as client:
        (rig.run / "serve").touch()
        assert client.recv(100) == b"the agent", "it waited for the next one"
