"""The machines themselves: QEMU processes that are switched on and off. Knows nothing of BMCs or
sockets."""

from __future__ import annotations

import contextlib
import ctypes
import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

_PR_SET_PDEATHSIG = 1
_VIRTUAL = ("Cd", "UsbCd", "Usb")  # BootSourceOverrideTarget of Redfish
_LIBC = ctypes.CDLL(None, use_errno=True)
_QMP_POWERDOWN = "".join(
    json.dumps({"execute": name}) + "\n" for name in ("qmp_capabilities", "system_powerdown")
)


def die_with_parent() -> None:
    """Run in a child before exec: the kernel kills it when the thread that forked it ends, even by
    SIGKILL."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def spawn(
    argv: Sequence[str], log: Path, *, stdin: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """A child of ours that cannot outlive us; its output is added to `log`. Raises OSError."""
    with log.open("ab") as out:
        # The preexec function is one system call, and this process has one thread.
        return subprocess.Popen(
            argv, stdin=stdin, stdout=out, stderr=out, preexec_fn=die_with_parent
        )


def end(process: subprocess.Popen[bytes], grace_s: float = 0.0) -> None:
    """Ends a child and reaps it: SIGTERM with `grace_s` seconds, then SIGKILL."""
    if grace_s and process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace_s)
    if process.poll() is None:
        process.kill()  # works on a stopped process too
    process.wait(10)
    if process.stdin:
        process.stdin.close()


class Machine:
    """One machine: off until `on`. `starts` counts how often it was started or reset. `medium` is
    the image in its BMC's virtual drive, which a machine that is switched on has as a CD on USB
    until it is switched off."""

    def __init__(self, name: str, argv: Sequence[str], directory: Path) -> None:
        self.name = name
        self.argv = list(argv)
        self.directory = directory
        self.boot = (
            ""  # boot device for the next start, as the BMC was told; "" = the firmware's own order
        )
        self.uri = ""  # what UEFI HTTP Boot fetches at the next start
        self.last_boot = ""  # what the last start used
        self.medium = ""
        self.starts = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id while it is on. A process that ended is reaped here and counts as off."""
        if self._process is not None and self._process.poll() is not None:
            end(self._process)
            self._process = None
        return self._process.pid if self._process else None

    def on(self) -> None:
        """Switches it on; nothing happens if it is on. Raises OSError if QEMU cannot be run."""
        if self.pid is not None:
            return
        if self.uri:
            self._boot_next()
        self._process = spawn(
            [*self.argv, *self._virtual_drive()], self.directory / "qemu.log", stdin=subprocess.PIPE
        )
        self.last_boot, self.boot, self.uri = self.boot, "", ""
        self.starts += 1

    def _boot_next(self) -> None:
        """Writes the URI into the firmware's variables, as BootNext, which the firmware takes out
        again. Raises OSError."""
        variables = str(self.directory / "vars.fd")
        argv = [
            sys.executable,
            "-m",
            "virt.firmware.vars",
            "--inplace",
            variables,
            "--set-boot-uri",
            self.uri,
        ]
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise OSError(f"cannot set the URI to boot by: {done.stderr[-300:]}")

    def _virtual_drive(self) -> tuple[str, ...]:
        """QEMU's arguments for the medium; it is the first to be booted from if the BMC was told
        so, else the last."""
        if not self.medium:
            return ()
        order = 0 if self.boot in _VIRTUAL else 9
        return (
            "-drive",
            f"if=none,id=medium,media=cdrom,readonly=on,format=raw,file={self.medium}",
            "-device",
            "qemu-xhci,id=virtual",
            "-device",
            f"usb-storage,bus=virtual.0,drive=medium,bootindex={order}",
        )

    def off(self) -> None:
        """Pulls the plug."""
        if self.pid is not None and self._process is not None:
            end(self._process)
            self._process = None

    def reset(self) -> None:
        """Off and on again; nothing happens if it is off, as the reset button of a machine without
        power."""
        if self.pid is not None:
            self.off()
            self.on()

    def soft_off(self) -> None:
        """Presses the power button (ACPI). Whether the system inside reacts is its own affair."""
        if self.pid is not None and self._process is not None:
            pipe: IO[bytes] | None = self._process.stdin
            if pipe is not None:
                pipe.write(_QMP_POWERDOWN.encode())
                pipe.flush()


def wait_until_gone(pid: int, limit_s: float) -> bool:
    """Whether a process that is not our child is gone, or a zombie, within `limit_s` seconds."""
    end_at = time.monotonic() + limit_s
    while time.monotonic() < end_at:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False
