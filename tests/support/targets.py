"""A real iSCSI target, tgt, and a client that logs in to it over a plain socket: without a kernel
that has an initiator."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from patience import patience

IQN = "iqn.2026-11.org.example:disks"


class Target:
    """tgtd with one target. `prefix` runs its commands elsewhere, as `ip netns exec NAME`."""

    def __init__(
        self,
        portal: str,
        units: Sequence[Path],
        *,
        user: str = "",
        secret: str = "",
        prefix: Sequence[str] = (),
    ) -> None:
        self._prefix = list(prefix)
        self._number = str(
            random.SystemRandom().randrange(1000, 30000)
        )  # its control socket is one of the whole machine
        self._portal = portal
        self._units, self._user, self._secret = units, user, secret
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it; returns when it serves."""
        Path("/var/run/tgtd").mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            [*self._prefix, "tgtd", "-f", "-C", self._number, "--iscsi", f"portal={self._portal}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + patience(60)
        while self._admin("--mode", "sys", "--op", "show", check=False):
            assert time.monotonic() < deadline and self.process.poll() is None, (
                "tgtd does not come up"
            )
            time.sleep(0.05)
        self._admin("--mode", "target", "--op", "new", "--tid", "1", "-T", IQN)
        for number, unit in enumerate(self._units, 1):
            self._admin(
                "--mode",
                "logicalunit",
                "--op",
                "new",
                "--tid",
                "1",
                "--lun",
                str(number),
                "-b",
                str(unit),
            )
        if self._user:
            self._admin(
                "--mode", "account", "--op", "new", "--user", self._user, "--password", self._secret
            )
            self._admin("--mode", "account", "--op", "bind", "--tid", "1", "--user", self._user)
        self._admin("--mode", "target", "--op", "bind", "--tid", "1", "-I", "ALL")

    def stop(self) -> None:
        """Ends it as a power failure does."""
        process, self.process = self.process, None
        if process is not None:
            for child in (
                Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
                if self._prefix
                else ()
            ):
                os.kill(int(child), 9)
            process.kill()
            process.wait(30)

    def sessions(self) -> str:
        """The initiators that are logged in, in tgtadm's words."""
        done = subprocess.run(
            [
                *self._prefix,
                "tgtadm",
                "-C",
                self._number,
                "--lld",
                "iscsi",
                "--mode",
                "target",
                "--op",
                "show",
            ],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return "\n".join(line.strip() for line in done.stdout.splitlines() if "Initiator:" in line)

    def _admin(self, *arguments: str, check: bool = True) -> int:
        done = subprocess.run(
            [*self._prefix, "tgtadm", "-C", self._number, "--lld", "iscsi", *arguments],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert not check or done.returncode == 0, (arguments, done.stderr)
        return done.returncode


class Link:
    """A connection as the kernel would make it: fills in tags and numbers."""

    def __init__(self, portal: tuple[str, int]) -> None:
        self.socket = socket.create_connection(portal, 30)
        self._status = 0

    def exchange(self, header: bytes, data: bytes) -> tuple[bytes, bytes]:
        self.socket.sendall(
            header[:16]
            + struct.pack(">I", 7)
            + header[20:28]
            + struct.pack(">I", self._status)
            + header[32:]
            + data
            + bytes(-len(data) % 4)
        )
        answer = self._exactly(48)
        length = int.from_bytes(answer[5:8], "big")
        self._status = int.from_bytes(answer[24:28], "big") + 1
        return answer, self._exactly(length + -length % 4)[:length]

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            assert part, "the target closed the connection"
            data += part
        return data


@contextlib.contextmanager
def linked(portal: tuple[str, int]) -> Iterator[Link]:
    """A link for a while."""
    link = Link(portal)
    try:
        yield link
    finally:
        link.socket.close()
