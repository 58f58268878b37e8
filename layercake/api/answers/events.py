"""What is answered about what happened, who did it, and who may."""

from __future__ import annotations

from typing import Any

import msgspec


class EventShown(msgspec.Struct):
    """Something that happened. `at` is seconds since the epoch; `node` "" is the head itself;
    `security`: of those that no others can push out."""

    id: int
    at: float
    node: str
    kind: str
    severity: str
    text: str
    data: dict[str, Any]
    security: bool


class EventList(msgspec.Struct):
    """Events, oldest first."""

    events: list[EventShown]


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


class CallShown(msgspec.Struct):
    """What a module can be asked, with JSON schemas of request and answer."""

    name: str
    module: str
    summary: str
    role: str
    per_node: bool
    request: dict[str, Any]
    answer: dict[str, Any]


class CallList(msgspec.Struct):
    """All calls."""

    calls: list[CallShown]


class CallAnswer(msgspec.Struct):
    """The answer of a call of one node, or why there is none."""

    node: str
    ok: bool
    answer: Any
    error: str
    hint: str


class CallAnswers(msgspec.Struct):
    """The answers, one for each node."""

    answers: list[CallAnswer]
