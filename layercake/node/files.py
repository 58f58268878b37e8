"""The node's own files and its images, put together: who writes into which root, and what is done
in an image then."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imageapi.node import idmap
from imageapi.node.container import execute
from imageapi.node.imageset.imageset import ImageSet
from imageapi.node.imageset.plan import Instance
from imageapi.node.imageset.table import LIVE
from layercake.base.logs.child_output import end_of_output
from layercake.kraken.errors import OperationFailed
from layercake.node.disks import LateDisks
from minos.agent.files.manager import FileManager
from minos.agent.files.writer import Root
from minos.agent.state import Session
from minos.agent.tasks.runner import TaskRunner

ACTION_S = 60.0
"""Seconds that a reload may take."""


def within(path: Path, first: int, work: Callable[[Root], None]) -> None:
    """Does something with a root file system of which the node's user `first` is root. Raises
    LayercakeError, OSError."""

    def run() -> None:
        root = Root(path, first)
        try:
            work(root)
        finally:
            root.close()

    if first:
        idmap.as_user(first, run)
    else:
        run()


@dataclass(frozen=True, slots=True)
class RunningImage:
    """An image that runs (minos.agent.files.manager.Running)."""

    images: ImageSet
    instance: Instance

    @property
    def id(self) -> str:
        """Names the instance."""
        return self.instance.id

    @property
    def image(self) -> str:
        """Names the image."""
        return self.instance.spec.name

    def inside(self, work: Callable[[Root], None]) -> None:
        """Does something with its root file system. Raises LayercakeError, OSError."""
        first = idmap.first_user(self.image) if self.instance.spec.container.user_namespace else 0
        within(Path(f"/proc/{self.instance.process.pid}/root"), first, work)

    def act(self, action: str) -> None:
        """Reloads a unit, sends a signal, or has it restarted. Raises OperationFailed."""
        what, _, which = action.partition(" ")
        if what == "restart":
            self.images.restart(self.image)
        elif what == "signal":
            self._signal(which)
        else:
            self._reload(which)

    def _signal(self, name: str) -> None:
        try:
            handle = os.pidfd_open(self.instance.process.pid)
            try:
                signal.pidfd_send_signal(handle, signal.Signals[f"SIG{name}"])
            finally:
                os.close(handle)
        except (OSError, KeyError) as error:
            raise OperationFailed(f"cannot send {name}: {error}") from None

    def _reload(self, unit: str) -> None:
        command = ["systemctl", "reload-or-restart", "--", unit]
        process = execute.start(self.images.place(self.image), command, errors=subprocess.PIPE)
        try:
            errors, late = end_of_output(process, ACTION_S, 4096)
        finally:
            execute.kill(process)
            if process.stderr is not None:
                process.stderr.close()
        if late:
            raise OperationFailed(f"cannot reload {unit}: it takes longer than {ACTION_S:.0f} s")
        if process.returncode:
            text = errors.decode(errors="replace").strip().splitlines()
            raise OperationFailed(
                f"cannot reload {unit}: "
                f"{text[-1][:300] if text else f'status {process.returncode}'}"
            )


def running(images: ImageSet) -> Iterator[RunningImage]:
    """The images that run now."""
    return (
        RunningImage(images, instance) for instance in images.instances() if instance.phase in LIVE
    )


class InstancePreparation:
    """What is done before an instance starts (imageapi.node.imageset.bundles.Files), and before the
    first one: the site's tasks. It is the node's files and tasks as the agent's loop has them, too
    (minos.agent.loop.NodeFiles)."""

    def __init__(self, files: FileManager, tasks: TaskRunner, disks: LateDisks) -> None:
        self._files = files
        self._tasks = tasks
        self._disks = disks
        self.images_started = files.images_started

    def set_desired(self, document: Mapping[str, Any], session: Session) -> None:
        """Wants what a desired state says of disks, files and tasks."""
        self._disks.set_desired(document, session)
        self._tasks.set_desired(document, session)
        self._files.set_desired(document, session)

    def report_again(self) -> None:
        """Tells the head again how files and disks are."""
        self._files.report_again()
        self._disks.report_again()

    def disks(self) -> str:
        """The value of the variable disk, "" if nobody has looked."""
        return self._disks.value

    def give(self, instance: Instance, root: Path, first: int) -> None:
        """Makes an instance's root ready. Raises LayercakeError."""
        self._files.ready()
        self._tasks.finish()
        within(
            root, first, lambda opened: self._files.give(instance.id, instance.spec.name, opened)
        )
