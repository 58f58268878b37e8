"""Invitations: who has the token of one makes one machine a head or a witness of the site, once,
within an hour.

A token is 192 random bits, of which only the SHA-256 is kept, with the head's state; and the
SHA-256 of the authorities that the head's certificate is to be checked by.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from functools import partial

import msgspec

from layercake.api.access import NotKnown
from layercake.base.clock import Clock
from layercake.fleet.desired import DesiredState
from layercake.fleet.transaction import Transaction

DOCUMENTS = "heads/"
_DOCUMENT = DOCUMENTS + "invitations"
VALID_S = 3600.0


class Invitation(msgspec.Struct, frozen=True):
    """One invitation. `expires` is in seconds since the epoch; `by` who invited."""

    name: str
    witness: bool
    digest: str
    expires: float
    by: str


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


class Invitations:
    """Those that nobody has used yet."""

    def __init__(self, desire: DesiredState, wall: Clock) -> None:
        self._desire = desire
        self._wall = wall
        self._open: tuple[Invitation, ...] = ()

    def load(self, documents: Mapping[str, bytes]) -> None:
        """Takes over what an earlier leader left."""
        if data := documents.get(_DOCUMENT):
            self._set(msgspec.json.decode(data, type=tuple[Invitation, ...]))

    def _set(self, invitations: tuple[Invitation, ...]) -> None:
        self._open = invitations

    def _valid(self) -> list[Invitation]:
        now = self._wall()
        return [one for one in self._open if now < one.expires]

    async def add(self, name: str, authorities: bytes, by: str, *, witness: bool) -> str:
        """Invites; the token, which nobody can learn again. One that this name had before counts no
        more. Raises OperationFailed."""
        secret = secrets.token_hex(24)
        made = Invitation(name, witness, _digest(secret), self._wall() + VALID_S, by)
        async with self._desire.transaction(revises=False) as transaction:
            others = [one for one in self._valid() if one.name != name]
            self._write(transaction, (*others, made))
        return f"{secret}.{hashlib.sha256(authorities).hexdigest()}"

    async def redeem(self, token: str, *, witness: bool) -> Invitation:
        """The invitation that a token is for; it is used up then. Raises NotKnown, and
        OperationFailed: it is not."""
        digest = _digest(token.partition(".")[0])
        async with self._desire.transaction(revises=False) as transaction:
            valid = self._valid()
            found = [one for one in valid if (one.digest, one.witness) == (digest, witness)]
            if not found:
                raise NotKnown(
                    "cannot join: there is no such invitation, or it was used, or is older than an "
                    "hour",
                    hint="`layercake heads invite NAME` on the head that leads makes another",
                )
            self._write(transaction, tuple(one for one in valid if one is not found[0]))
        return found[0]

    def _write(self, transaction: Transaction, invitations: tuple[Invitation, ...]) -> None:
        transaction.documents[_DOCUMENT] = partial(msgspec.json.encode, invitations)
        transaction.after(self._set, invitations)
