"""What systemd is told of the head (sd_notify(3)): that it serves, that its loop turns, that it
stops.

Messages are datagrams to the Unix socket in NOTIFY_SOCKET. Without one, as in a shell, nothing is
said.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

SHARE = 3
"""So many signs of life in the time after which systemd takes the head for dead."""


@dataclass(frozen=True, slots=True)
class Notifier:
    """`address` is systemd's socket ("" for none), `patience_s` how long it waits for a sign of
    life (0: for ever)."""

    address: str = ""
    patience_s: float = 0.0

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Notifier:
        """By the variables that systemd sets; WATCHDOG_PID names the process that they are meant
        for."""
        microseconds = environ.get("WATCHDOG_USEC", "")
        ours = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        return cls(
            environ.get("NOTIFY_SOCKET", ""),
            int(microseconds) / 1e6 if microseconds.isdigit() and ours else 0.0,
        )

    def send(self, *words: str) -> None:
        """Sends assignments such as READY=1. A systemd that does not listen is no reason to end."""
        if not self.address:
            return
        address = "\0" + self.address[1:] if self.address.startswith("@") else self.address
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as made,
        ):
            made.sendto("\n".join(words).encode(), address)

    async def live(self) -> None:
        """Gives signs of life for as long as the loop turns, which runs this: a head that hangs
        gives none, and is started anew."""
        while self.patience_s:
            self.send("WATCHDOG=1")
            await asyncio.sleep(self.patience_s / SHARE)
