"""Who may do what. On the Unix socket: its owner, as admin. On the network: bearer tokens, each with a role."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from pathlib import Path

from layercake.base.files import write_atomic
from layercake.kraken.errors import InputError
from layercake.moduleapi.module import Role

FILE_NAME = "tokens.json"


def _digest(token: str) -> str:
    return hashlib.blake2b(token.encode("utf-8", "surrogateescape"), digest_size=32).hexdigest()


def name_of(header: str) -> str:
    """What a connection with this Authorization header is counted under: the token cannot be told from it."""
    return f"token {_digest(header)[:16]}"


class Tokens:
    """The API tokens; only their digests are kept."""

    def __init__(self, path: Path) -> None:
        try:
            data = json.loads(path.read_text())
            self._roles = {digest: Role[name.upper()] for digest, name in data.items()}
        except FileNotFoundError:
            self._roles = {}
        except (ValueError, KeyError) as error:
            raise InputError(f"cannot read {path}: {error}", hint="it maps token digests to viewer, operator or admin") from None

    def role(self, header: str) -> Role | None:
        """The role of an Authorization header, None if it has none. Takes the same time whatever the token."""
        scheme, _, token = header.partition(" ")
        given, found = _digest(token.strip()), None
        for digest, role in self._roles.items():
            if hmac.compare_digest(digest, given):
                found = role
        return found if scheme.lower() == "bearer" else None


def create(directory: Path) -> Path:
    """Makes an admin token: its digest goes to tokens.json, the token to admin.token (0600), whose path is returned."""
    token = secrets.token_urlsafe(32)
    for name, text in ((FILE_NAME, json.dumps({_digest(token): "admin"})), ("admin.token", token + "\n")):
        write_atomic(directory / name, text)
    return directory / "admin.token"
