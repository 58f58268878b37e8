"""Tickets: the head's word that one node may fetch one content for some hours. They stand in the
address of an image.

The image server is a process of its own and knows no sessions: it believes the head, with which it
shares a key. A node has its tickets from its desired state, which only its session gets. What it
fetches is still checked against the digest that came over TLS.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from layercake.kraken.errors import InputError, OperationFailed, Refused

FILE_NAME = "tickets.key"
HALF_S = 12 * 3600
"""A ticket is good for one to two times so many seconds; within them it is the same text, and a
document does not change for it."""
_KEY_BYTES = 32


class Tickets:
    """Issues and checks. The key is made by whichever process needs it first, in a file for its
    owner alone."""

    def __init__(self, directory: Path, clock: Callable[[], float] = time.time) -> None:
        self._file = directory / FILE_NAME
        self._clock = clock
        self._kept = b""

    def _key(self) -> bytes:
        if not self._kept:
            try:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                if not self._file.exists():
                    self._make()
                self._kept = self._file.read_bytes()
            except OSError as error:
                raise OperationFailed(
                    f"cannot use the images' ticket key {self._file}: {error.strerror}"
                ) from None
            if len(self._kept) != _KEY_BYTES:
                self._kept = b""
                raise InputError(
                    f"cannot use the images' ticket key {self._file}: it is damaged",
                    hint="delete it",
                )
        return self._kept

    def _make(self) -> None:
        """The first to have it in its place wins: the file is never there without the whole key."""
        temporary = self._file.with_name(f".{FILE_NAME}-{secrets.token_hex(8)}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, secrets.token_bytes(_KEY_BYTES))
            os.fsync(descriptor)
            os.link(temporary, self._file)
        except FileExistsError:
            return
        finally:
            os.close(descriptor)
            temporary.unlink()

    def _seal(self, content: str, node: str, until: str) -> str:
        return hmac.new(
            self._key(), f"image\n{content}\n{node}\n{until}".encode(), hashlib.sha256
        ).hexdigest()

    def issue(self, content: str, node: str) -> str:
        """The query of an address, for the content (the digest's hex digits) and a node's id.
        Raises LayercakeError."""
        until = str((int(self._clock()) // HALF_S + 2) * HALF_S)
        return f"node={node}&until={until}&ticket={self._seal(content, node, until)}"

    def check(self, content: str, query: Mapping[str, str]) -> str:
        """The id of the node that a ticket was issued to. Raises Refused, also for one of another
        content or another time."""
        node, until, ticket = (query.get(name, "") for name in ("node", "until", "ticket"))
        if not hmac.compare_digest(
            self._seal(content, node, until).encode(), ticket.encode("utf-8", "surrogateescape")
        ):
            raise Refused(
                "cannot serve this image: the address has no ticket for it",
                hint="nodes get theirs from the head",
            )
        if int(until) < self._clock():  # the seal is right, so it is a number that the head wrote
            raise Refused(
                "cannot serve this image: its ticket is too old",
                hint="the node gets another with its desired state",
            )
        return node
