"""Runs a test's body as the agent of a pretended node: under the real supervisor, in a mount
namespace of its own.

The body's process is the supervisor's child, as an agent is, so containers that it makes are left
to the supervisor.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import select
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from patience import patience

from minos import syscalls
from minos.supervisor import Supervisor

CLONE_NEWNS = 0x00020000


def enter_mount_namespace(run: Path) -> None:
    """A private mount namespace with cgroup2 where a node has it, and a tmpfs for the node's
    files."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare")
    syscalls.mount("none", "/", "", syscalls.MS_REC | syscalls.MS_PRIVATE)
    syscalls.mount("cgroup2", "/sys/fs/cgroup", "cgroup2")
    run.mkdir(parents=True, exist_ok=True)
    syscalls.mount("tmpfs", str(run), "tmpfs")


def run_as_agent(run: Path, body: Callable[[Path], None], timeout: float = 120.0) -> None:
    """Runs body(run) as an agent, for at most `timeout` seconds on a fast machine that may become
    twice as slow. Raises AssertionError with the body's traceback if it failed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            # what earlier tests left (gRPC, librados) must not be torn down here: its threads are
            # not in this process
            gc.freeze()
            os.close(reader)
            os.setsid()
            enter_mount_namespace(run)
            Supervisor(
                str(run),
                lambda: _body(run, body, writer),
                say=lambda text: None,
                stop_containers=True,
            ).run()
        except SystemExit:
            status = 0
        except BaseException:  # noqa: BLE001 - it is told to the parent
            os.write(writer, traceback.format_exc().encode())
        finally:
            os._exit(status)
    os.close(writer)
    try:
        text = _read(reader, patience(timeout / 2))
    finally:
        os.close(reader)
        _end(child)
    assert text == "ok", text


def _body(run: Path, body: Callable[[Path], None], writer: int) -> None:
    try:
        body(run)
        os.write(writer, b"ok")
    except BaseException:  # noqa: BLE001 - it is told to the test
        os.write(writer, traceback.format_exc().encode())
    os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(5)


def _read(reader: int, timeout: float) -> str:
    """What the body has to say, until it has said all."""
    data, deadline = b"", time.monotonic() + patience(timeout)
    while select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
        chunk = os.read(reader, 65536)
        if not chunk or (data := data + chunk) == b"ok":
            return data.decode(errors="replace") or "the body ended without a word"
    return f"the body was not done after {timeout} s; {data.decode(errors='replace')}"


def _end(child: int) -> None:
    """Waits for the supervisor; one that hangs is killed with all of its session."""
    deadline = time.monotonic() + patience(60)
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if time.monotonic() > deadline:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return
        time.sleep(0.01)
