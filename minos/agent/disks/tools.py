"""The distribution's programs for disks: a squashfs of the boot set, mounted when a node has disks
to do, and run in it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from layercake.kraken.errors import OperationFailed
from minos import syscalls

SHOWN = ("dev", "proc", "sys", "run")
_BIND = 4096
LIMIT_S = 900.0
TAIL = 500
LVM = (
    'devices{use_devicesfile=0 obtain_device_list_from_udev=0 external_device_info_source="none"} '
    "backup{backup=0 archive=0} "
    "activation{udev_sync=0 udev_rules=0 monitoring=0} global{use_lvmpolld=0 event_activation=0}"
)
"""There is no udev on a node, nothing is kept below /etc, and all devices count."""


class Tools:
    """Runs them. `get` gives the directory where they are mounted, and raises LayercakeError."""

    def __init__(self, get: Callable[[], Path]) -> None:
        self._get = get
        self._root: Path | None = None

    def root(self) -> Path:
        """Where they are, with this system's devices in it. Raises LayercakeError."""
        if self._root is None:
            root = self._get()
            for name in SHOWN:
                if not os.path.ismount(root / name):
                    syscalls.mount(f"/{name}", str(root / name), "", _BIND)
            self._root = root
        return self._root

    def run(
        self, *command: str, given: bytes = b"", well: Sequence[int] = (0,), limit: float = LIMIT_S
    ) -> bytes:
        """What a program says on its standard output. Raises OperationFailed with the end of what
        it says of its trouble, if it does not end in `limit` seconds, or with another status than
        those in `well`."""
        environment = {
            "PATH": "/usr/sbin:/usr/bin",
            "LC_ALL": "C",
            "DM_DISABLE_UDEV": "1",
            "MDADM_NO_UDEV": "1",
            "LVM_SUPPRESS_FD_WARNINGS": "1",
            "HOME": "/",
        }
        try:
            # By its path: busybox' chroot would take a word alone for one of its own programs.
            program = [f"/usr/sbin/{command[0]}", *command[1:]]
            done = subprocess.run(
                ["chroot", str(self.root()), *program],
                input=given,
                capture_output=True,
                timeout=limit,
                env=os.environ | environment,
                check=False,
            )
        except OSError as error:
            raise OperationFailed(f"cannot run {command[0]}: {error.strerror}") from None
        except subprocess.TimeoutExpired:
            raise OperationFailed(f"{command[0]} did not end in {limit:.0f} s") from None
        if done.returncode not in well:
            message = " ".join((done.stderr or done.stdout).decode(errors="replace").split())[
                -TAIL:
            ]
            raise OperationFailed(
                f"{command[0]} ended with status {done.returncode}: {message or 'it says nothing'}"
            )
        return done.stdout

    def lvm(self, command: str, *arguments: str) -> bytes:
        """One of LVM's commands. Raises as `run`."""
        return self.run("lvm", command, "--config", LVM, *arguments)
