"""The life of a session: how a node gets one, and when it ends.

A window opens when the engine arms a boot, and the session from before ends with that. A node
proves with the window's one-use token that it is the boot that the engine itself started. The
window closes at its end, when the boot fails, or when the node is switched off; a session ends when
the node is seen off. A claim without a right token is refused, recorded and shown. One with a right
token that cannot be true, because another boot had it, or it comes from elsewhere, means that two
machines claim to be one node: nobody can say which is the real one, so both are refused, and a
person has to look.
"""

from __future__ import annotations

import enum
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from layercake.base.clock import Clock
from layercake.fleet import events
from layercake.fleet.store import Record, Session, Store
from layercake.kraken.errors import Refused

GRACE_S = (
    30.0  # a node that got its token in the last second of the window still has to load a kernel
)


class NoJoin(enum.Enum):
    """Why a claim is refused."""

    NO_NODE = "no such node"
    NO_WINDOW = "no boot window is open for it"
    WRONG_TOKEN = "the token is wrong"  # noqa: S105 (a reason, not a token)
    USED_TOKEN = "the token was used before"  # noqa: S105


class Dispute(enum.Enum):
    """Why a right token is not believed."""

    USED_TOKEN = "the token of this boot was used before, by another boot"  # noqa: S105
    OTHER_MAC = "the token of this boot comes with a MAC address that is not the node's"
    OTHER_ADDRESS = "the token of this boot comes from an address that is not the node's"
    SCRIPT = "the boot script was asked for again after the node had joined with it"


@dataclass(frozen=True, slots=True)
class Claim:
    """What a joining node says of itself, and from which address."""

    token: str = field(repr=False)
    boot_id: str
    mac: str
    address: str


_CLAIM = ("node", "token", "boot_id", "mac", "version")
"""What a claim consists of: texts of up to 200 characters."""


def claim_of(store: Store, body: Any, address: str) -> tuple[Record, Claim]:
    """The node that somebody at `address` claims to be, and the claim. Raises Refused."""
    claim = {k: body.get(k) if isinstance(body, dict) else None for k in _CLAIM}
    if not all(isinstance(v, str) and len(v) <= 200 for v in claim.values()):
        raise Refused("cannot join: the claim is not well-formed")
    record = store.find(str(claim["node"]))
    if record is None:
        why = NoJoin.NO_NODE.value
        text = f"a join from {address} was refused: {why}"
        store.event(None, events.JOIN_REFUSED, text, data={"address": address})
        raise Refused(f"cannot join: {why}")
    return record, Claim(str(claim["token"]), str(claim["boot_id"]), str(claim["mac"]), address)


@dataclass(slots=True)
class Window:
    """One boot window. `until` is seconds since the epoch."""

    token: str = field(repr=False)
    until: float
    used: bool = False


class Joining:
    """The open boot windows, by node id, and the end of sessions. `ended` is told of a node before
    its session is taken away, `barred` of one that is to be left alone, and why."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        ended: Callable[[Record], None],
        barred: Callable[[Record, str], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._ended = ended
        self._barred = barred
        self._windows: dict[str, Window] = {}

    def open(self, record: Record, seconds: float) -> str:
        """Opens a window, which ends the session from before, or extends the one that is open.
        Returns its token, a secret."""
        window = self._windows.get(record.node.id)
        if window is None or window.used or window.until < self._clock():
            self.end(record)
            window = self._windows[record.node.id] = Window(secrets.token_urlsafe(24), 0.0)
        window.until = self._clock() + seconds + GRACE_S
        return window.token

    def close(self, record: Record) -> None:
        """Closes a node's window: its token is worth nothing from now on."""
        self._windows.pop(record.node.id, None)

    def end(self, record: Record) -> None:
        """Ends a node's session: what had it is not listened to any more, and gets nothing."""
        if record.session is not None:
            self._ended(record)
            record.session = None
            record.address = None
            record.api_port = 0
            self._store.mark(record)

    def bar(self, record: Record, why: str) -> None:
        """Closes a node's window, ends its session, and leaves it alone until a person has
        looked."""
        self.close(record)
        self.end(record)
        self._barred(record, why)

    def claim(self, record: Record, claim: Claim) -> Session:
        """The new session that a token is good for, until it is spent. Raises Refused with the
        reason, and records it.

        A claim of the same boot, before anything else was heard of it, gets the same session again:
        the answer was lost on its way. Its boot id went over TLS only, so no one else can know it.
        """
        window = self._windows.get(record.node.id)
        if window is None or window.until < self._clock():
            raise self._refused(record, NoJoin.NO_WINDOW, claim)
        if not hmac.compare_digest(window.token.encode(), claim.token.encode()):
            raise self._refused(record, NoJoin.WRONG_TOKEN, claim)
        if claim.mac.lower() not in record.node.macs:
            raise self._dispute(record, Dispute.OTHER_MAC, claim)
        if claim.address != record.node.ip:
            raise self._dispute(record, Dispute.OTHER_ADDRESS, claim)
        if not window.used:
            return Session(
                secrets.randbits(63),
                secrets.token_bytes(32),
                claim.boot_id,
                self._clock(),
                record.planner.layout,
            )
        session = record.session
        if session is None or session.boot_id != claim.boot_id:
            raise self._dispute(record, Dispute.USED_TOKEN, claim)
        if record.last_seen is not None:
            raise self._refused(record, NoJoin.USED_TOKEN, claim)
        return session

    def spend(self, record: Record) -> None:
        """The token of a node's window is used: its session is on disk."""
        window = self._windows.get(record.node.id)
        if window is not None:
            window.used = True

    def asked_again(self, record: Record, address: str) -> None:
        """The boot script of a window that a node has joined by was asked for again."""
        window = self._windows.get(record.node.id)
        if window is not None and window.used and window.until >= self._clock():
            self._dispute(record, Dispute.SCRIPT, Claim(window.token, "", "", address))

    def _refused(self, record: Record, why: NoJoin, claim: Claim) -> Refused:
        self._store.event(
            record,
            events.JOIN_REFUSED,
            f"a join from {claim.address} was refused: {why.value}",
            data={"boot_id": claim.boot_id, "address": claim.address},
        )
        return Refused(
            f"cannot join {record.name}: {why.value}", hint="power-cycle the node to boot it again"
        )

    def _dispute(self, record: Record, why: Dispute, claim: Claim) -> Refused:
        text = (
            f"two machines claim to be {record.name}: {why.value} (from {claim.address}, MAC "
            f"{claim.mac[:40] or 'not said'})"
        )
        self._store.event(
            record,
            events.JOIN_DISPUTED,
            text,
            data={"address": claim.address, "mac": claim.mac[:40]},
        )
        self.bar(record, text)
        return Refused(
            f"cannot join {record.name}: {why.value}",
            hint="a person has to look: see the head's events",
        )
