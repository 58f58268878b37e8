"""Machines that no inventory knows, while they are discovered: what the boot service and the head
both know of them.

Such a machine boots minOS by a ticket, which is good for nothing but to hand in a report of its
hardware. The boot service issues it for one card with one address, and the head believes it: they
share a key in a file of the data directory.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from layercake.base.secrets import SharedKey
from layercake.kraken.errors import Refused

FILE_NAME = "discovery.key"
LIFE_S = 1800.0
"""Seconds that a machine which was discovered stays on and keeps its address, unless somebody takes
it in before."""
MOST_AT_ONCE = 256
DISCOVERED = "boot.discovered"
"""The call by which the head says that a machine has reported."""
HEARD = "boot.heard"
"""The call by which the head asks where machines were heard."""
_KIND = "stranger"


def option82(relay: str, circuit: str, remote: str) -> str:
    """A place by what a relay or a switch says of it (RFC 3046), as it is compared and shown;
    `relay` is "" where it does not matter which one said so."""
    words = (("circuit", circuit), ("remote", remote), ("relay", relay))
    return " ".join(f"{name} {word.strip().lower()}" for name, word in words if word.strip())


class Tickets:
    """Issues and checks. `wall` is in seconds since the epoch."""

    def __init__(self, directory: Path, wall: Callable[[], float]) -> None:
        self._key = SharedKey(directory / FILE_NAME, "the key of discovery")
        self._wall = wall

    def issue(self, mac: str, address: str, seconds: float = LIFE_S) -> str:
        """A ticket for a card, by its MAC address in lower case, with an address. Raises
        LayercakeError."""
        until = str(int(self._wall() + seconds))
        return f"{until}.{self._key.sign(_KIND, mac, address, until)}"

    def check(self, ticket: str, mac: str, address: str) -> float:
        """For how many seconds more a ticket is good. Raises Refused."""
        until, _, tag = ticket.partition(".")
        if not self._key.matches(tag, _KIND, mac, address, until):
            raise Refused(
                "cannot take the report: it comes without a ticket for this card at this address"
            )
        # The tag is right, so `until` is a number that the boot service wrote.
        left = int(until) - self._wall()
        if left <= 0:
            raise Refused("cannot take the report: its ticket is too old")
        return left
