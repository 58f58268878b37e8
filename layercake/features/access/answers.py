"""What is answered about who did it, and who may."""

from __future__ import annotations

import msgspec

from layercake.features.access.audit import AuditRecord


class AuditList(msgspec.Struct):
    """Records, oldest first."""

    audit: list[AuditRecord]


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
