"""The TPMs of n1: its own, and another one that can be put in its place, as when a board is
replaced, or a token stolen."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from tests.support.swtpm import SoftTpm

_SERVED = """\
while :; do
  swtpm socket --tpm2 --tpmstate dir="$1/now/state" --ctrl type=unixio,path="$1/sock" >/dev/null 2>&1
  sleep 0.1
done
"""


class Tpms:
    """Two TPMs, `own` with a certificate and `other` without one, of which one is in the machine.
    It serves the next start of the machine as soon as this one has ended."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        SoftTpm(directory / "own", directory / "ca")
        SoftTpm(directory / "other", None)
        self.use("own")
        self._served = subprocess.Popen(
            ["sh", "-c", _SERVED, "sh", str(directory)], start_new_session=True
        )

    def use(self, name: str) -> None:
        """Which of them is in the machine from its next start."""
        now = self.directory / "now"
        now.unlink(missing_ok=True)
        now.symlink_to(name)

    @property
    def machine(self) -> tuple[str, ...]:
        """Further arguments of QEMU."""
        return (
            "-chardev",
            f"socket,id=tpm,path={self.directory / 'sock'}",
            "-tpmdev",
            "emulator,id=tpm0,chardev=tpm",
            "-device",
            "tpm-crb,tpmdev=tpm0",
        )

    def close(self) -> None:
        """Ends what serves them."""
        os.killpg(self._served.pid, signal.SIGKILL)
        self._served.wait()
