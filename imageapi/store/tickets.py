"""Tickets: the head's word that one node may fetch one content for some hours. They stand in the
address of an image.

The image server is a process of its own and knows no sessions: it believes the head, with which it
shares a key. A node has its tickets from its desired state, which only its session gets. What it
fetches is still checked against the digest that came over TLS.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from layercake.base.secrets import SharedKey
from layercake.kraken.errors import Refused

FILE_NAME = "tickets.key"
HALF_S = 12 * 3600
"""A ticket is good for one to two times so many seconds; within them it is the same text, and a
document does not change for it."""
_KIND = "image"


class Tickets:
    """Issues and checks. `clock` is in seconds since the epoch."""

    def __init__(self, directory: Path, clock: Callable[[], float] = time.time) -> None:
        self._key = SharedKey(directory / FILE_NAME, "the images' ticket key")
        self._clock = clock

    def issue(self, content: str, node: str) -> str:
        """The query of an address, for the content (the digest's hex digits) and a node's id.
        Raises LayercakeError."""
        until = str((int(self._clock()) // HALF_S + 2) * HALF_S)
        ticket = self._key.sign(_KIND, content, node, until)
        return f"node={node}&until={until}&ticket={ticket}"

    def check(self, content: str, query: Mapping[str, str]) -> str:
        """The id of the node that a ticket was issued to. Raises Refused, also for one of another
        content or another time."""
        node, until, ticket = (query.get(name, "") for name in ("node", "until", "ticket"))
        if not self._key.matches(ticket, _KIND, content, node, until):
            raise Refused(
                "cannot serve this image: the address has no ticket for it",
                hint="nodes get theirs from the head",
            )
        if int(until) < self._clock():  # the tag is right, so it is a number that the head wrote
            raise Refused(
                "cannot serve this image: its ticket is too old",
                hint="the node gets another with its desired state",
            )
        return node
