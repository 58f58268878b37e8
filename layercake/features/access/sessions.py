"""Sessions of browsers, and the tickets that begin one without a token: both in the head's memory,
and gone when it ends.

A browser keeps no token: it trades one, or a ticket, for a session, whose secret lies where no
script can read it (HttpOnly). A session is its caller's, with the same role and the same nodes, and
without the right exec unless that was asked for; it ends with its caller's token, and after
LIFETIME_S at the latest. Of secrets only digests are kept.
"""

from __future__ import annotations

import dataclasses
import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from layercake.api.caller import Caller
from layercake.base.clock import Clock
from layercake.base.quotas import SlotPool
from layercake.kraken.errors import Refused

LIFETIME_S = 12 * 3600.0
"""A session is over after so long, whatever is done with it: a shift."""
EACH = 250
"""Sessions of one caller."""
MOST = 10_000
"""Sessions of all; beyond, the oldest of the caller with the most ends."""
TICKET_S = 120.0
TICKETS_EACH = 20
TICKETS = 1000


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """What a secret is good for, until when (seconds since the epoch)."""

    caller: Caller
    until: float
    digest: str


class _Secrets:
    """Secrets with a time, so many of each caller and of all. `ended` hears of each that is over
    before somebody asks for it."""

    def __init__(self, wall: Clock, each: int, most: int, ended: Callable[[_Held], None]) -> None:
        self._wall = wall
        self._ended = ended
        self._slots: SlotPool[_Held] = SlotPool(each, most)
        self._held: dict[str, _Held] = {}

    def make(self, caller: Caller, seconds: float) -> tuple[str, _Held]:
        """A secret for a caller, for so long or until what it holds is over."""
        text = secrets.token_urlsafe(32)
        until = min(
            self._wall() + seconds,
            *(() if caller.expires is None else (caller.expires,)),
            float("inf"),
        )
        held = self._held[_digest(text)] = _Held(caller, until, _digest(text))
        gone = self._slots.add(_owner(caller), held)
        if gone is not None:
            self.drop(gone)
        return text, held

    def find(self, text: str) -> _Held | None:
        """What a secret is good for; None for one that is not known, or over."""
        held = self._held.get(_digest(text))
        if held is not None and self._wall() >= held.until:
            self.drop(held)
            return None
        return held

    def drop(self, held: _Held) -> None:
        """It is good for nothing any more."""
        if self._held.pop(held.digest, None) is not None:
            self._slots.remove(_owner(held.caller), held)
            self._ended(held)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _owner(caller: Caller) -> str:
    return f"{caller.kind} {caller.name} {caller.token}"


class Sessions:
    """The sessions of a head. `ended` is called with the id (Caller.session) of each that is over:
    what it has open ends."""

    def __init__(self, wall: Clock, ended: Callable[[str], None] = lambda session: None) -> None:
        self.wall = wall
        self._sessions = _Secrets(lambda: self.wall(), EACH, MOST, lambda held: ended(_name(held)))
        self._tickets = _Secrets(lambda: self.wall(), TICKETS_EACH, TICKETS, lambda held: None)

    def ticket(self, caller: Caller, *, exec: bool = False) -> str:
        """What begins one session of this caller, once, within TICKET_S. `exec`: with that right.
        Raises Refused."""
        return self._tickets.make(_with(caller, exec), TICKET_S)[0]

    def redeem(self, ticket: str) -> Caller | None:
        """Whose ticket it is; it is used up. None for one that is not known, used or over."""
        held = self._tickets.find(ticket)
        if held is None:
            return None
        self._tickets.drop(held)
        return held.caller

    def begin(self, caller: Caller, *, exec: bool = False) -> tuple[str, Caller]:
        """A session of a caller: its secret, and the caller as it is in it. `exec`: with that
        right. Raises Refused."""
        text, held = self._sessions.make(_with(caller, exec), LIFETIME_S)
        return text, self._caller(held)

    def find(self, text: str) -> Caller | None:
        """Whose session it is; None for one that is not known, or over."""
        held = self._sessions.find(text)
        return None if held is None else self._caller(held)

    def end(self, text: str) -> None:
        """The session is over."""
        held = self._sessions.find(text)
        if held is not None:
            self._sessions.drop(held)

    def _caller(self, held: _Held) -> Caller:
        return dataclasses.replace(held.caller, session=_name(held), expires=held.until)


def _with(caller: Caller, exec: bool) -> Caller:
    """A caller with the right exec, or without it. Raises Refused if it never had it."""
    if exec and not caller.exec:
        raise Refused(
            f"cannot sign in with the right exec: {caller.name} does not have it",
            hint="sign in without it, or `layercake token create NAME --role operator --exec` "
            "makes a token that has it",
        )
    return dataclasses.replace(caller, exec=exec)


def _name(held: _Held) -> str:
    """What a session is called where it is seen: its secret cannot be told from it."""
    return held.digest[:16]
