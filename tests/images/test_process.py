"""A container's init has the name that its owner gives it, and is asked to end in a way that it
hears."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from imageapi.node.container.process import Process, alive, ask_to_end, open_pidfd, start_time, wait
from imageapi.node.container.runtime import Runtime
from imageapi.spec.container import ContainerSpec
from layercake.kraken.errors import OperationFailed

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


_BY_SIGNALFD = """
import ctypes, os, select, signal, struct, time
halt = signal.SIGRTMIN + 3
signal.pthread_sigmask(signal.SIG_BLOCK, {halt})
mask = ctypes.create_string_buffer(struct.pack("<Q", 1 << halt - 1), 128)
reader = ctypes.CDLL(None).signalfd(-1, mask, 0)
poll = select.poll()
poll.register(reader, select.POLLIN)
print("ready", flush=True)
times = 0
until = time.monotonic() + 60
while poll.poll(max(0, 1000 * (until - time.monotonic()))):
    until = time.monotonic() + 0.5 if times == 0 else until
    times += len(os.read(reader, 128)) // 128
print(times, flush=True)
"""
_LATE = """
import signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
print("ready", flush=True)
while not signal.sigpending():
    time.sleep(0.01)
signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # the kernel drops it, as it does for an init
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
time.sleep(0.3)
signal.signal(signal.SIGUSR1, lambda *_: (print("heard", flush=True), exit()))
time.sleep(60)
"""


def test_an_init_that_reads_its_signals_is_asked_once(tmp_path: Path) -> None:
    """systemd blocks the signals that it knows, and reads them from a signalfd: each SIGRTMIN+3
    that is sent is queued, and halts once more."""
    with subprocess.Popen(
        [sys.executable, "-I", "-c", _BY_SIGNALFD], stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        process = Process(child.pid, start_time(child.pid))
        spec = ContainerSpec(systemd=True, stop_timeout_s=60.0)
        assert Runtime(tmp_path).stop(process, spec)
        assert child.stdout.read() == b"1\n"


def test_an_init_that_dropped_the_signal_is_asked_again(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-I", "-c", _LATE], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        process = Process(child.pid, start_time(child.pid))
        handle = open_pidfd(process)
        try:
            assert ask_to_end(process, handle, signal.SIGUSR1, 60.0)
        finally:
            os.close(handle)
        assert child.stdout.read() == b"heard\n"


@pytest.fixture
def endless_crun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A crun that does not end; its process ID is in this file when it has begun."""
    number = tmp_path / "number"
    crun = tmp_path / "crun"
    crun.write_text(f"#!/bin/sh\necho $$ > {number}\nexec sleep 600\n")
    crun.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return number


def begun(number: Path) -> bool:
    """Whether the endless crun runs."""
    return number.exists() and bool(number.read_text())


def test_a_crun_that_cannot_be_waited_for_is_killed(
    tmp_path: Path, endless_crun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(pid: int) -> int:
        while not begun(endless_crun):
            assert start_time(pid), "it has begun, and goes on"
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("imageapi.node.container.runtime.os.pidfd_open", none_left)
    with pytest.raises(OperationFailed, match="cannot run crun: Too many open files"):
        Runtime(tmp_path).start("one")
    assert not start_time(int(endless_crun.read_text()))


def test_a_crun_that_does_not_end_is_killed_and_named(
    tmp_path: Path, endless_crun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def limit_over(handle: int, limit: float) -> bool:
        while not begun(endless_crun):
            assert not wait(handle, 0.01), "it has begun, and goes on"
        return False

    monkeypatch.setattr("imageapi.node.container.runtime.wait", limit_over)
    with pytest.raises(OperationFailed, match="cannot start a container: crun did not answer"):
        Runtime(tmp_path).start("one")
    assert not start_time(int(endless_crun.read_text()))
