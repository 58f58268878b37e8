"""One QEMU machine on a bridge in a network namespace of its own, booted straight from minOS's
kernel and initramfs.

For tests and benchmarks of what the kernel does on a node (krbd, dm-verity), which the machine
underneath may not have: no BMC, no firmware, no head; six seconds to the first line of Python. A
Ceph cluster can live in the same namespace."""

from __future__ import annotations

import ctypes
import os
import secrets
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from vrack import netns
from vrack.qemu import EMULATED
from vrack.spec import VmSpec

ADDRESS, HEAD, MAC = "10.99.0.11", "10.99.0.1", "52:54:00:99:00:11"
_CLONE_NEWNET = 0x40000000


class Guest:
    """The namespace, and the machine in it when it is started. `with Guest(...) as guest:` takes
    both away again."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.namespace = f"lcg-{secrets.token_hex(3)}"
        self.enter = ["ip", "netns", "exec", self.namespace]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Guest:
        self.directory.mkdir(parents=True, exist_ok=True)
        netns.create(self.namespace, [VmSpec()])
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        netns.destroy(self.namespace)

    def start(
        self,
        kernel: Path,
        initramfs: Path,
        words: Mapping[str, str],
        *,
        memory_mb: int = 1024,
        more: str = "",
    ) -> None:
        """Starts the machine; `words` go on its kernel command line as layercake.KEY=VALUE."""
        append = "console=ttyS0 quiet mitigations=off no_timer_check edd=off panic=-1 "
        append += " ".join(f"layercake.{k}={v}" for k, v in words.items())
        self.console_file.unlink(missing_ok=True)
        self._process = subprocess.Popen(
            [
                "setpriv",
                "--pdeathsig",
                "KILL",
                *self.enter,
                "qemu-system-x86_64",
                "-M",
                "q35,graphics=off",
                *EMULATED,
                "-m",
                str(memory_mb),
                "-display",
                "none",
                "-nodefaults",
                "-no-user-config",
                "-no-reboot",
                "-serial",
                f"file:{self.console_file}",
                "-netdev",
                f"tap,id=n0,ifname={netns.tap(0)},script=no,downscript=no",
                "-device",
                f"virtio-net-pci,netdev=n0,mac={MAC},romfile=",
                "-kernel",
                str(kernel),
                "-initrd",
                str(initramfs),
                "-append",
                f"{append} {more}",
            ],
            stdin=subprocess.DEVNULL,
        )

    @property
    def console_file(self) -> Path:
        """What the machine says."""
        return self.directory / "console.log"

    def console(self) -> str:
        """What it has said so far."""
        return self.console_file.read_text(errors="replace") if self.console_file.exists() else ""

    @property
    def alive(self) -> bool:
        """Whether the machine runs."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """Switches the machine off."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Sockets that this thread makes meanwhile belong to the namespace, and stay in it."""
        libc = ctypes.CDLL(None, use_errno=True)
        here = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        there = os.open(netns.RUN / self.namespace, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if libc.setns(there, _CLONE_NEWNET) < 0:
                raise OSError(ctypes.get_errno(), "cannot enter the namespace")
            try:
                yield
            finally:
                if libc.setns(here, _CLONE_NEWNET) < 0:
                    raise OSError(ctypes.get_errno(), "cannot leave the namespace")
        finally:
            os.close(here)
            os.close(there)
