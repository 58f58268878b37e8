"""The key by which a head signs what it took in (Ed25519): contents (imageapi.spec.image.manifest),
and boot sets.

Contents in a cluster lie where others can write: a head that finds one there already uses it only
if its manifest was signed with its own key, and says what the head itself has just measured. Nodes
check the same signature before they use one.
"""

from __future__ import annotations

import base64
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from layercake.base.files import write_atomic
from layercake.kraken.errors import InputError


class Signer:
    """The head's signing key, in a file for the owner only; made when it is first needed."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._key: Ed25519PrivateKey | None = None

    def _load(self) -> Ed25519PrivateKey:
        if self._key is None:
            self._key = self._read() if self._file.exists() else self._make()
        return self._key

    def _read(self) -> Ed25519PrivateKey:
        try:
            key = load_pem_private_key(self._file.read_bytes(), None)
        except (OSError, ValueError) as error:
            raise InputError(
                f"cannot read the images' signing key {self._file}: {error}", hint="restore it"
            ) from None
        if not isinstance(key, Ed25519PrivateKey):
            raise InputError(
                f"cannot use the images' signing key {self._file}: it is not an Ed25519 key"
            )
        return key

    def _make(self) -> Ed25519PrivateKey:
        key = Ed25519PrivateKey.generate()
        self._file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(
            self._file, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        )
        return key

    @property
    def public(self) -> str:
        """What nodes check signatures by: the public key's 32 bytes, in base64."""
        return base64.b64encode(
            self._load().public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        ).decode()

    def sign(self, text: str) -> str:
        """The signature of a text, in base64."""
        return base64.b64encode(self._load().sign(text.encode())).decode()

    def signed(self, text: str, signature: str) -> bool:
        """Whether this key has signed exactly this text."""
        try:
            self._load().public_key().verify(
                base64.b64decode(signature, validate=True), text.encode()
            )
        except (InvalidSignature, ValueError):
            return False
        return True
