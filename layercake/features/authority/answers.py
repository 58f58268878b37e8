"""What is answered about the head's certificates."""

from __future__ import annotations

import msgspec


class Certificate(msgspec.Struct):
    """A certificate, until when it is good (seconds since the epoch), and for how many days
    more."""

    what: str
    until: float
    days: float


class AuthorityShown(msgspec.Struct):
    """The head's certificates; while the authority is being replaced, the nodes and boot sets that
    do not know the next one."""

    certificates: list[Certificate]
    changing: bool
    nodes: list[str]
    boot_sets: list[str]
