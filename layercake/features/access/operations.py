"""Tokens: giving somebody the right to do something over the network, and taking it back."""

from __future__ import annotations

import math

from layercake.agents.pki import Authority, client_name, person_name
from layercake.api.caller import Caller, printable
from layercake.base.text import nearest
from layercake.features.access.people import SUBJECT
from layercake.features.access.tokens import Token, Tokens
from layercake.fleet.desired import DesiredState
from layercake.fleet.store import Store
from layercake.kraken.errors import InputError, Refused
from layercake.moduleapi.module import Role

_PEOPLE = ("oidc", "local")
LONGEST_S = 10 * 366 * 86400.0


def _refuse_more(caller: Caller, name: str, expires: float | None, *, may_exec: bool) -> None:
    """Raises Refused for a token that may more, or holds longer, than the caller."""
    if may_exec and not caller.exec:
        raise Refused(
            f"cannot create token {name[:80]}: {caller.name} does not have the right exec itself",
            hint="root on the head has it",
        )
    if caller.kind != "token" or caller.expires is None:
        return
    if expires is None or expires > caller.expires:
        raise Refused(
            f"cannot create token {name[:80]}: it would hold longer than {caller.name} does",
            hint="say --expires",
        )


class TokenChanges:
    """Operations on tokens. Nobody gives what he does not have."""

    def __init__(
        self, store: Store, desire: DesiredState, tokens: Tokens, authority: Authority
    ) -> None:
        self._store = store
        self._desire = desire
        self._tokens = tokens
        self._authority = authority

    async def create(
        self,
        caller: Caller,
        name: str,
        role: Role,
        groups: list[str] | None,
        may_exec: bool,
        seconds: float | None,
        *,
        certificate: bool = False,
    ) -> tuple[Token, str, dict[str, str]]:
        """A token, its text, which is shown this once, and {"cert", "key"} if it shall have a
        `certificate`. It holds for `seconds`, None is until it is revoked. Raises InputError, and
        Refused for more than the caller has."""
        expires = self._expires(seconds)
        if groups is not None:
            self._check(groups)
        _refuse_more(caller, name, expires, may_exec=may_exec)
        async with self._desire.transaction(revises=False) as transaction:
            token, text = self._tokens.make(
                transaction,
                name,
                role,
                None if groups is None else tuple(sorted(set(groups))),
                may_exec=may_exec,
                by=caller.by(),
                expires=expires,
                certificate=certificate,
            )
            return token, text, self.certify(client_name(token.id)) if certificate else {}

    def _expires(self, seconds: float | None) -> float | None:
        """When a token that is created now ends, in seconds since the epoch. Raises InputError."""
        if seconds is None:
            return None
        if not (math.isfinite(seconds) and 0 < seconds <= LONGEST_S):
            raise InputError(
                f"cannot create a token for {seconds} seconds: it is a time above 0, ten years at "
                "most"
            )
        return self._store.wall() + seconds

    def certify(self, name: str) -> dict[str, str]:
        """{"cert", "key"} in PEM for somebody (doors.certificate_name). Raises InputError on a head
        without an authority."""
        made = self._authority.issue_client(name)
        if made is None:
            raise InputError(
                "cannot make a certificate: this head has no authority", hint="run `layercake init`"
            )
        return made

    def certify_person(self, who: str) -> dict[str, str]:
        """The same for a person: "oidc:SUBJECT" or "local:NAME". Raises InputError."""
        kind, _, name = who.partition(":")
        if kind not in _PEOPLE or not name or printable(name, SUBJECT) != name:
            raise InputError(
                f"cannot make a certificate for {who[:80]!r}: it is no person",
                hint="oidc:SUBJECT, or local:NAME of a user of the head",
            )
        return self.certify(person_name(who))

    def _check(self, groups: list[str]) -> None:
        known = self._store.names_and_groups()[1]
        unknown = next((g for g in groups if g not in known), None)
        if unknown is not None or not groups:
            raise InputError(
                f"cannot create a token for group {str(unknown or '')[:80]!r}: no node of the "
                "inventory is in it",
                hint=nearest(unknown or "", known),
            )

    async def revoke(self, name: str) -> Token:
        """Ends a token at once, and what it has open. Raises NotFound."""
        async with self._desire.transaction(revises=False) as transaction:
            return self._tokens.revoke(transaction, name)
