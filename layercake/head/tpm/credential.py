"""A credential that only one TPM can open, and only while it has one attestation key (TPM 2.0 Library, Part 1 section 24). Pure."""

from __future__ import annotations

import hashlib
import hmac

from cryptography.hazmat.decrepit.ciphers.modes import CFB
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from layercake.kraken.errors import InputError
from minos.tpm.keys import AK_FIXED, EK_BYTES, EK_FIXED, POINT_BYTES
from minos.tpm.wire import SHA256, Reader, sized, u16, u32

SEED_BYTES = 32
_EXPONENT = 65537
"""Of a key whose exponent stands as 0 (Part 2 section 12.2.3.5)."""


def name_of(public: bytes) -> bytes:
    """The name of a key (Part 1 section 16)."""
    return u16(SHA256) + hashlib.sha256(public).digest()


def endorsement_key(public: bytes) -> rsa.RSAPublicKey:
    """The endorsement key of what a node says that it is. Raises InputError for a key with other properties than all TPMs have."""
    if len(public) != len(EK_FIXED) + 2 + EK_BYTES or not public.startswith(EK_FIXED + u16(EK_BYTES)):
        raise InputError("cannot take the TPM: its endorsement key is not RSA of 2048 bits by the usual template")
    try:
        return rsa.RSAPublicNumbers(_EXPONENT, int.from_bytes(public[-EK_BYTES:], "big")).public_key()
    except ValueError as error:
        raise InputError(f"cannot take the TPM: its endorsement key is no key: {error}") from None


def attestation_key(public: bytes) -> ec.EllipticCurvePublicKey:
    """The attestation key. Raises InputError for one that could sign something else than what the TPM has made."""
    try:
        reader = Reader(public)
        if reader.take(len(AK_FIXED)) != AK_FIXED:
            raise ValueError("it has other properties than a restricted key has")
        x, y = reader.sized(), reader.sized()
        if reader.left or max(len(x), len(y)) > POINT_BYTES:
            raise ValueError("its point is too long")
        numbers = ec.EllipticCurvePublicNumbers(int.from_bytes(x, "big"), int.from_bytes(y, "big"), ec.SECP256R1())
        return numbers.public_key()
    except ValueError as error:
        raise InputError(f"cannot take the TPM: its attestation key is not as agreed: {error}") from None


def derived(key: bytes, label: bytes, about: bytes, bits: int) -> bytes:
    """A key of a key (KDFa, Part 1 section 11.4.10.2), of 256 bits at most."""
    message = u32(1) + label + b"\0" + about + u32(bits)
    return hmac.new(key, message, hashlib.sha256).digest()[:bits // 8]


def make(endorsement: rsa.RSAPublicKey, name: bytes, held: bytes, seed: bytes) -> tuple[bytes, bytes]:
    """A credential that holds something, for the attestation key of this name, and its encrypted seed. `seed` is 32 random bytes
    that are used once."""
    whole = padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), b"IDENTITY\0")
    cipher = Cipher(algorithms.AES(derived(seed, b"STORAGE", name, 128)), CFB(bytes(16))).encryptor()
    hidden = cipher.update(sized(held)) + cipher.finalize()
    mark = hmac.new(derived(seed, b"INTEGRITY", b"", 256), hidden + name, hashlib.sha256).digest()
    return sized(mark) + hidden, endorsement.encrypt(seed, whole)
