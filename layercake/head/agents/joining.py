"""Joining: a node proves with a one-use token that it is the boot that the engine itself started.

A window opens when the engine arms a boot and closes at its end, with the first accepted claim, or when the node is
powered off. A second claimant, a wrong token, or a claim outside the window is refused, recorded and shown.
"""

from __future__ import annotations

import enum
import hmac
import secrets
from dataclasses import dataclass, field

from layercake.base.clock import Clock
from layercake.head import events
from layercake.head.state.store import Record, Session, Store
from layercake.kraken.errors import Refused

GRACE_S = 30.0  # a node that got its token in the last second of the window still has to load a kernel


class NoJoin(enum.Enum):
    """Why a claim is refused."""

    NO_WINDOW = "no boot window is open for it"
    WRONG_TOKEN = "the token is wrong"  # noqa: S105 (a reason, not a token)
    USED_TOKEN = "the token was used before"  # noqa: S105


@dataclass(slots=True)
class Window:
    """One boot window. `until` is seconds since the epoch."""

    token: str = field(repr=False)
    until: float
    used: bool = False


class Joining:
    """The open boot windows, by node id."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._windows: dict[str, Window] = {}

    def open(self, record: Record, seconds: float) -> str:
        """Opens a window, or extends the one that is open, and returns its token. The token is a secret."""
        window = self._windows.get(record.node.id)
        if window is None or window.used or window.until < self._clock():
            window = self._windows[record.node.id] = Window(secrets.token_urlsafe(24), 0.0)
        window.until = self._clock() + seconds + GRACE_S
        return window.token

    def close(self, record: Record) -> None:
        """Closes a node's window: its token is worth nothing from now on."""
        self._windows.pop(record.node.id, None)

    def claim(self, record: Record, token: str, boot_id: str) -> Session:
        """The new session that a token is good for, until it is spent. Raises Refused with the reason, and records it.

        A claim of the same boot, before anything else was heard of it, gets the same session again: the answer was lost on its way.
        Its boot id went over TLS only, so no one else can know it.
        """
        window, session = self._windows.get(record.node.id), record.session
        if (window is not None and window.used and hmac.compare_digest(window.token, token) and session is not None
                and session.boot_id == boot_id and record.last_seen is None):
            return session
        why = None
        if window is None or (not window.used and window.until < self._clock()):
            why = NoJoin.NO_WINDOW
        elif not hmac.compare_digest(window.token, token):
            why = NoJoin.WRONG_TOKEN
        elif window.used:
            why = NoJoin.USED_TOKEN
        if why is not None:
            self._store.event(record, events.JOIN_REFUSED, f"a join was refused: {why.value}", data={"boot_id": boot_id})
            raise Refused(f"cannot join {record.name}: {why.value}", hint="power-cycle the node to boot it again")
        return Session(secrets.randbits(63), secrets.token_bytes(32), boot_id, self._clock(), record.planner.layout)

    def spend(self, record: Record) -> None:
        """The token of a node's window is used: its session is on disk."""
        window = self._windows.get(record.node.id)
        if window is not None:
            window.used = True
