"""What people are shown of tokens: never what would let one in."""

from __future__ import annotations

from typing import Any

from layercake.features.access.tokens import Token


def token_view(token: Token, now: float) -> dict[str, Any]:
    """A token as the API shows it. `groups` null is the whole site; times are seconds since the
    epoch, `expires` null is never."""
    return {
        "name": token.name,
        "id": token.id,
        "role": token.role,
        "groups": None if token.groups is None else list(token.groups),
        "exec": token.exec,
        "certificate": token.certificate,
        "made": token.made,
        "by": token.by,
        "expires": token.expires,
        "expired": token.expires is not None and now >= token.expires,
    }
