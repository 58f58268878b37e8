"""What the head's machine says of itself: files below /proc, and what `ip`, `nft` and `ss` print.
Nothing is changed."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layercake.base.text import lines_of_proc, parse_json
from layercake.kraken.errors import OperationFailed

TOOL_S = 15.0
_TIME_ERROR = 5


class _Timex(ctypes.Structure):
    _fields_ = (
        ("modes", ctypes.c_uint),
        ("numbers", ctypes.c_long * 25),
        ("spare", ctypes.c_byte * 256),
    )


def synchronised() -> bool:
    """Whether the kernel's clock is kept right by somebody: adjtimex(2), which is only asked."""
    return int(ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(_Timex()))) != _TIME_ERROR


@dataclass(frozen=True, slots=True)
class Machine:
    """Where to look. `wall` is the time in seconds since the epoch, `synchronised` whether that is
    kept right."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    wall: Callable[[], float] = time.time
    synchronised: Callable[[], bool] = synchronised

    def number(self, path: str) -> int | None:
        """The first number in a file below /proc/sys, None where there is none."""
        try:
            return int((self.proc / "sys" / path).read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return None

    def run(self, *words: str) -> str | None:
        """What a program prints; None if it fails. Raises OperationFailed if it is not installed,
        or hangs."""
        if shutil.which(words[0]) is None:
            raise OperationFailed(
                f"cannot look: there is no {words[0]} on this machine", hint=f"install {words[0]}"
            )
        try:
            done = subprocess.run(
                words,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TOOL_S,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            raise OperationFailed(f"cannot look: {' '.join(words)} does not end") from None
        return done.stdout if done.returncode == 0 else None

    def ip(self, *words: str) -> list[dict[str, Any]]:
        """What `ip -j` says; [] if there is nothing, or no such thing. Raises OperationFailed."""
        return self._entries("ip", self.run("ip", "-j", *words) or "[]")

    def ruleset(self) -> list[dict[str, Any]]:
        """The packet filter as nftables has it, that of iptables-nft too. Raises
        OperationFailed."""
        if (
            shutil.which("nft") is None
            and not (self.proc / "net/nf_conntrack").exists()
            and not self._has_nftables()
        ):
            return []  # nobody can have made a rule
        printed = self.run("nft", "-j", "list", "ruleset")
        if printed is None:
            raise OperationFailed(
                "cannot look at the packet filter: nft fails", hint="run `nft list ruleset` as root"
            )
        return self._entries("nft", printed, "nftables")

    def _entries(self, program: str, printed: str, key: str = "") -> list[dict[str, Any]]:
        try:
            said = parse_json(printed)
        except ValueError:
            raise OperationFailed(f"cannot look: what {program} prints is no JSON") from None
        found = said.get(key) if key and isinstance(said, dict) else said
        return [entry for entry in found or () if isinstance(entry, dict) and entry]

    def _has_nftables(self) -> bool:
        try:
            return any(
                line.startswith("nf_tables ") for line in lines_of_proc(self.proc / "modules")
            )
        except OSError:
            return True  # it cannot be told: then nft must say

    def listeners(self, port: int) -> list[tuple[str, str]]:
        """(local address, who) of each UDP socket on a port; `who` is "" where it cannot be
        told."""
        listeners = []
        for line in (self.run("ss", "-Hlunp", f"sport = :{port}") or "").splitlines():
            columns = line.split(None, 5)
            if len(columns) >= 5:
                listeners.append((columns[3], columns[5] if len(columns) > 5 else ""))
        return listeners
