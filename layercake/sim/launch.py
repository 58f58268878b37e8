"""Starts a simulation as a process of its own, in a network namespace, and waits for its end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from layercake.kraken.errors import InputError
from layercake.sim import directory, namespace
from layercake.sim.listener import open_listener, url_of

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Child:
    """The simulation's process, which gets the signals that this one gets. It is in a session of
    its own, so that Ctrl-C reaches it once, and in a way that it can understand at any moment:
    SIGTERM."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._signalled = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Passes a signal on."""
        self._signalled = True
        if self._process is not None:
            self._process.terminate()

    def run(self, words: list[str], descriptors: list[int]) -> int:
        """Runs it to its end; the exit status, 0 if it ended because it was told to."""
        if self._signalled:
            return 0
        self._process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, pass_fds=descriptors, start_new_session=True
        )
        if self._signalled:
            self._process.terminate()
        status = self._process.wait()
        return 0 if self._signalled and status in (0, -signal.SIGTERM) else status


@contextmanager
def _signals(child: Child) -> Iterator[None]:
    before = {number: signal.signal(number, child.handle) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def launch(
    options: Mapping[str, Any], *, place: Path | None = None, listen: str = "", remote: bool = False
) -> int:
    """Plays what layercake.sim.play.Options say until it ends or is interrupted; the exit status.
    It and its head end with this process, whatever ends that. `place` is the simulation's
    directory, a temporary one if None; `listen` is the ADDRESS:PORT at which a browser on this
    machine reaches it. Raises InputError, before anything is made, where that cannot be."""
    if why := namespace.refused():
        raise InputError(
            f"cannot simulate: no network namespace can be made here: {why}",
            hint="run it as root, or allow user namespaces (sysctl "
            "kernel.unprivileged_userns_clone)",
        )
    child = Child()
    keep = bool(options.get("keep"))
    with ExitStack() as stack:
        stack.enter_context(_signals(child))
        listener = stack.enter_context(open_listener(listen, remote=remote)) if listen else None
        directory.sweep()
        path = place.absolute() if place is not None else directory.temporary()
        lock = _claimed(path, temporary=place is None)
        if keep:
            directory.mark_kept(lock)
        else:
            stack.callback(directory.remove, path)
        return child.run(*_command({**options, "directory": str(path)}, lock, listener))


def _claimed(path: Path, *, temporary: bool) -> int:
    try:
        return directory.claim(path)
    except InputError:
        if temporary:
            directory.remove(path)
        raise


def _command(
    options: dict[str, Any], lock: int, listener: socket.socket | None
) -> tuple[list[str], list[int]]:
    """The simulation's command, and the file descriptors that it inherits."""
    os.set_inheritable(lock, True)
    options |= {"lock": lock, "parent": os.getpid()}
    descriptors = [lock]
    if listener is not None:
        descriptors.append(listener.fileno())
        options |= {"listener": listener.fileno(), "url": url_of(listener)}
    arguments = [sys.executable, "-m", "layercake.sim.play", json.dumps(options)]
    return namespace.command(["setpriv", "--pdeathsig", "TERM", "--", *arguments]), descriptors
