"""A process of a container has the name that its owner gives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from imageapi.node.container.process import Process, alive, catches, start_time

_NAMED = """
import sys
open("/proc/self/comm", "wb").write({name!r})
print("named", flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=[b"caf\xe9", b"\x0cSigCgt: ffffff", b"a) R 1 (b"])
def process(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-I", "-c", _NAMED.format(name=request.param)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == b"named\n"
        yield child
        child.kill()


def test_a_process_is_told_whatever_its_name_is(process: subprocess.Popen[bytes]) -> None:
    known = Process(process.pid, start_time(process.pid))
    assert known.started and alive(known)
    assert not alive(Process(os.getpid(), known.started))
    assert not catches(process.pid, signal.SIGTERM), "its name is not the line of its signals"
    assert catches(process.pid, signal.SIGINT), "Python's own"
