"""Machines that no inventory knows, while they are discovered: what the boot service and the head
both know of them.

Such a machine boots minOS by a ticket, which is good for nothing but to hand in a report of its
hardware. The boot service issues it for one card with one address, and the head believes it: they
share a key in a file of the data directory.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Callable
from pathlib import Path

from layercake.kraken.errors import InputError, OperationFailed, Refused

FILE_NAME = "discovery.key"
LIFE_S = 1800.0
"""Seconds that a machine which was discovered stays on and keeps its address, unless somebody takes
it in before."""
MOST_AT_ONCE = 256
DISCOVERED = "boot.discovered"
"""The call by which the head says that a machine has reported."""
HEARD = "boot.heard"
"""The call by which the head asks where machines were heard."""
_KEY_BYTES = 32


def option82(relay: str, circuit: str, remote: str) -> str:
    """A place by what a relay or a switch says of it (RFC 3046), as it is compared and shown;
    `relay` is "" where it does not matter which one said so."""
    words = (("circuit", circuit), ("remote", remote), ("relay", relay))
    return " ".join(f"{name} {word.strip().lower()}" for name, word in words if word.strip())


class Tickets:
    """Issues and checks. The key is made by whichever process needs it first. `wall` is in seconds
    since the epoch."""

    def __init__(self, directory: Path, wall: Callable[[], float]) -> None:
        self._file = directory / FILE_NAME
        self._wall = wall
        self._kept = b""

    def _key(self) -> bytes:
        if not self._kept:
            try:
                if not self._file.exists():
                    self._make()
                found = self._file.read_bytes()
            except OSError as error:
                raise OperationFailed(
                    f"cannot use the key of discovery {self._file}: {error.strerror}"
                ) from None
            if len(found) != _KEY_BYTES:
                raise InputError(
                    f"cannot use the key of discovery {self._file}: it is damaged", hint="delete it"
                )
            self._kept = found
        return self._kept

    def _make(self) -> None:
        """The first to have it in its place wins."""
        made = self._file.with_name(f".{FILE_NAME}-{secrets.token_hex(8)}")
        descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, secrets.token_bytes(_KEY_BYTES))
            os.link(made, self._file)
        except FileExistsError:
            return
        finally:
            os.close(descriptor)
            made.unlink()

    def _seal(self, mac: str, address: str, until: str) -> str:
        text = f"stranger\n{mac}\n{address}\n{until}".encode("utf-8", "replace")
        return hmac.new(self._key(), text, hashlib.sha256).hexdigest()

    def issue(self, mac: str, address: str, seconds: float = LIFE_S) -> str:
        """A ticket for a card, by its MAC address in lower case, with an address. Raises
        LayercakeError."""
        until = str(int(self._wall() + seconds))
        return f"{until}.{self._seal(mac, address, until)}"

    def check(self, ticket: str, mac: str, address: str) -> float:
        """For how many seconds more a ticket is good. Raises Refused."""
        until, _, said = ticket.partition(".")
        if not hmac.compare_digest(
            self._seal(mac, address, until).encode(), said.encode("utf-8", "replace")
        ):
            raise Refused(
                "cannot take the report: it comes without a ticket for this card at this address"
            )
        left = (
            int(until) - self._wall()
        )  # the seal is right, so it is a number that the boot service wrote
        if left <= 0:
            raise Refused("cannot take the report: its ticket is too old")
        return left
