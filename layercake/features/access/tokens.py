"""Named tokens: who holds one may do what its role says, to the nodes of its groups, until it
expires or is revoked.

A token is 256 random bits. Only its SHA-256 is kept, with the head's state: a guess is hopeless, so
nothing slower is needed. Digests that `tokens.json` of an older Layercake holds (BLAKE2b) are taken
in when the head starts.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import re
import secrets
import sqlite3
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from layercake.base.clock import Clock
from layercake.fleet.transaction import Transaction
from layercake.kraken.errors import InputError, NotFound
from layercake.moduleapi.module import Role

log = logging.getLogger("layercake.tokens")
FILE_NAME = "tokens.json"
DOCUMENTS = "access/"
_DOCUMENT = "access/tokens"
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
MOST = 1000
"""How many tokens there may be: each is read by people, now and then."""


class Token(msgspec.Struct, frozen=True):
    """One token. `digest` is "sha256:..." (or "blake2b:...", of an older Layercake); `groups` None
    is the whole site. `made` and `expires` are seconds since the epoch, `expires` None is never.
    `file`: it came from tokens.json. `certificate`: it is worth nothing without a certificate of
    its own (mutual TLS)."""

    name: str
    digest: str
    role: str
    groups: tuple[str, ...] | None
    exec: bool
    made: float
    by: str
    expires: float | None
    file: bool = False
    certificate: bool = False

    @property
    def id(self) -> str:
        """What tells it from another token that had its name before."""
        return self.digest.partition(":")[2][:8]

    @property
    def rank(self) -> Role:
        """Its role."""
        return Role[self.role.upper()]


class _Kept(msgspec.Struct, frozen=True):
    """The document. `gone` are digests of revoked tokens that tokens.json may still hold."""

    tokens: tuple[Token, ...] = ()
    gone: tuple[str, ...] = ()


def sha256(token: str) -> str:
    """The digest of a token."""
    return "sha256:" + hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def blake2b(token: str) -> str:
    """The digest of a token in tokens.json."""
    return hashlib.blake2b(token.encode("utf-8", "surrogateescape"), digest_size=32).hexdigest()


class Tokens:
    """The tokens of a head. `ended` is called with the id of each that is revoked: what it has open
    ends. `only` is the name of the one token that lets in, "" for all of them."""

    def __init__(
        self, wall: Clock, ended: Callable[[str], None] = lambda token: None, only: str = ""
    ) -> None:
        self._wall = wall
        self._ended = ended
        self._only = only
        self._kept = _Kept()
        self._by_digest: dict[str, Token] = {}
        self._by_id: dict[str, Token] = {}

    def load(self, documents: Mapping[str, bytes]) -> None:
        """Takes over what an earlier head left."""
        if data := documents.get(_DOCUMENT):
            self._set_kept(msgspec.json.decode(data, type=_Kept))

    def _set_kept(self, kept: _Kept) -> None:
        self._kept = kept
        self._by_digest = {t.digest: t for t in kept.tokens}
        self._by_id = {t.id: t for t in kept.tokens}

    def adopt(self, path: Path, documents: dict[str, Callable[[], bytes]]) -> None:
        """Takes in the tokens of an older Layercake's file, for the whole site and for ever, as
        they were; those that are known, or were revoked since, stay as they are. `documents` is
        what the next flush writes. Raises InputError."""
        fresh = list(self._kept.tokens)
        for digest, role in _read(path).items():
            name = next(
                n
                for n in (role, *(f"{role}-{i}" for i in range(2, MOST)))
                if all(t.name != n for t in fresh)
            )
            found = Token(
                name,
                f"blake2b:{digest}",
                role,
                None,
                role != "viewer",
                self._wall(),
                path.name,
                None,
                file=True,
            )
            if found.digest not in self._kept.gone and found.digest not in self._by_digest:
                log.info(
                    "token %s was taken over from %s; `layercake token revoke %s` ends it",
                    name,
                    path.name,
                    name,
                )
                fresh.append(found)
        if len(fresh) > len(self._kept.tokens):
            self._set_kept(replace(self._kept, tokens=tuple(fresh)))
            documents[_DOCUMENT] = partial(msgspec.json.encode, self._kept)

    def all(self) -> list[Token]:
        """All tokens, by name; expired ones too."""
        return sorted(self._kept.tokens, key=lambda t: t.name)

    def find(self, text: str) -> Token | None:
        """The token of this text, None if there is none that lets in."""
        return self._valid(
            self._by_digest.get(sha256(text)) or self._by_digest.get(f"blake2b:{blake2b(text)}")
        )

    def known(self, identity: str) -> Token | None:
        """The token of an id (Token.id), None if there is none any more that lets in."""
        return self._valid(self._by_id.get(identity))

    def is_revoked(self, identity: str) -> bool:
        """Whether there is no token of an id any more; one that has expired is still there."""
        return identity not in self._by_id

    def _valid(self, token: Token | None) -> Token | None:
        """A token that lets in now: it has not expired, and is not switched off."""
        if token is None or (token.expires is not None and self._wall() >= token.expires):
            return None
        return token if self._only in ("", token.name) else None

    def make(
        self,
        transaction: Transaction,
        name: str,
        role: Role,
        groups: tuple[str, ...] | None,
        *,
        may_exec: bool,
        by: str,
        expires: float | None,
        certificate: bool = False,
    ) -> tuple[Token, str]:
        """A new token, from when the draft is on disk: what is kept of it, and its text, which
        nobody can learn again. Raises InputError."""
        if not NAME.fullmatch(name):
            raise InputError(
                f"cannot create token {name[:80]!r}: a name is lower case letters, digits and . _ "
                "-, at most 63"
            )
        if self._only not in ("", name):
            raise InputError(
                f"cannot create token {name}: all tokens but {self._only} are switched off",
                hint="access.emergency_token in config.yaml",
            )
        if any(t.name == name for t in self._kept.tokens):
            raise InputError(
                f"cannot create token {name}: there is one",
                hint=f"`layercake token revoke {name}` ends it",
            )
        if len(self._kept.tokens) >= MOST:
            raise InputError(
                f"cannot create token {name}: there are {MOST} already",
                hint="revoke some: `layercake token list`",
            )
        text = secrets.token_urlsafe(32)
        token = Token(
            name,
            sha256(text),
            role.name.lower(),
            groups,
            may_exec,
            self._wall(),
            by,
            expires,
            certificate=certificate,
        )
        self._change(transaction, replace(self._kept, tokens=(*self._kept.tokens, token)))
        return token, text

    def revoke(self, transaction: Transaction, name: str) -> Token:
        """Ends a token, from when the draft is on disk. Raises NotFound."""
        token = next((t for t in self._kept.tokens if t.name == name), None)
        if token is None:
            raise NotFound(
                f"cannot revoke token {name[:80]!r}: there is none",
                hint="see `layercake token list`",
            )
        gone = (*self._kept.gone, token.digest) if token.file else self._kept.gone
        self._change(
            transaction, _Kept(tuple(t for t in self._kept.tokens if t is not token), gone)
        )
        transaction.after(self._ended, token.id)
        return token

    def _change(self, transaction: Transaction, kept: _Kept) -> None:
        transaction.documents[_DOCUMENT] = partial(msgspec.json.encode, kept)
        transaction.after(self._set_kept, kept)


def drop_all(database: Path) -> None:
    """Ends all tokens in a head's database that is not in use. Raises sqlite3.Error."""
    with contextlib.closing(sqlite3.connect(database)) as db:
        db.execute("PRAGMA journal_mode=DELETE")  # all of it in one file
        if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'documents'").fetchone():
            db.execute("DELETE FROM documents WHERE key = ?", (_DOCUMENT,))
        db.commit()


def _read(path: Path) -> dict[str, str]:
    """{digest: role} of tokens.json, {} without a file. Raises InputError."""
    try:
        data = json.loads(path.read_bytes())
        return {str(digest): Role[name.upper()].name.lower() for digest, name in data.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, AttributeError) as error:
        raise InputError(
            f"cannot read {path}: {error}",
            hint="it maps token digests to viewer, operator or admin",
        ) from None
