"""What is answered about who did it, and who may."""

from __future__ import annotations

from typing import Any

import msgspec


class RecordShown(msgspec.Struct):
    """A change, who asked for it, and what became of it. `status` 0: cut off; null: nobody
    knows."""

    id: int
    at: float
    by: str
    kind: str
    token: str
    role: str
    scope: list[str] | None
    address: str
    program: str
    request: str
    asked: dict[str, Any]
    status: int | None
    error: str
    site: str


class AuditList(msgspec.Struct):
    """Records, oldest first."""

    audit: list[RecordShown]


class TokenShown(msgspec.Struct):
    """A token, without what lets one in. `groups` null is the whole site, `expires` null is
    never."""

    name: str
    id: str
    role: str
    groups: list[str] | None
    exec: bool
    certificate: bool
    made: float
    by: str
    expires: float | None
    expired: bool


class TokenList(msgspec.Struct):
    """All tokens."""

    tokens: list[TokenShown]


class KeyPair(msgspec.Struct):
    """A certificate and its key, PEM; this once."""

    cert: str
    key: str


class NewToken(TokenShown, kw_only=True):
    """A token, with what lets one in; this once. `tls`: the certificate that it needs."""

    token: str
    tls: KeyPair | None = None


class RevokedToken(msgspec.Struct):
    """The token that was revoked."""

    revoked: TokenShown


class SessionShown(msgspec.Struct):
    """Who asks. `groups` null is the whole site, `expires` (seconds since the epoch) null is never;
    `exec`: the right to run commands on nodes, and to type on their consoles."""

    name: str
    role: str
    groups: list[str] | None
    exec: bool
    expires: float | None
    version: str


class TicketShown(msgspec.Struct):
    """A link, and for how many seconds it is good."""

    url: str
    seconds: float
