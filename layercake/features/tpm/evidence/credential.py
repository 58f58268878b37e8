"""A credential that only one TPM can open, and only while it has one attestation key (TPM 2.0
Library, Part 1 section 24). Pure."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass

from cryptography.hazmat.decrepit.ciphers.modes import CFB
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from layercake.kraken.errors import InputError
from minos.tpm.keys import AK_FIXED, ENDORSEMENTS, POINT_BYTES, Endorsement
from minos.tpm.wire import SHA256, Reader, sized, u16, u32

_EXPONENT = 65537
"""Of a key whose exponent stands as 0 (Part 2 section 12.2.3.5)."""
_CURVES: dict[int, ec.EllipticCurve] = {32: ec.SECP256R1(), 48: ec.SECP384R1()}
_LABEL = b"IDENTITY\0"
Key = rsa.RSAPublicKey | ec.EllipticCurvePublicKey


@dataclass(frozen=True, slots=True)
class Named:
    """An endorsement key, and of what kind it is."""

    kind: Endorsement
    key: Key

    @property
    def hash(self) -> hashes.HashAlgorithm:
        """The hash of its name, by which all that is for it is made."""
        return hashes.SHA256() if self.kind.hash == SHA256 else hashes.SHA384()


def name_of(public: bytes) -> bytes:
    """The name of a key (Part 1 section 16)."""
    return u16(SHA256) + hashlib.sha256(public).digest()


def endorsement_key(public: bytes) -> Named:
    """The endorsement key of what a node says that it is. Raises InputError for a key with other
    properties than TPMs' have."""
    kind = next((kind for kind in ENDORSEMENTS if public.startswith(kind.fixed)), None)
    if kind is None:
        raise InputError(
            "cannot take the TPM: its endorsement key is of no usual kind",
            hint=f"usual are {'; '.join(kind.name for kind in ENDORSEMENTS)}",
        )
    try:
        reader = Reader(public[len(kind.fixed) :])
        parts = [reader.sized() for _ in range(2 if kind.size in _CURVES else 1)]
        if reader.left or any(len(part) > kind.size for part in parts):
            raise ValueError("it is too long")
        return Named(kind, _public_key(parts, kind.size))
    except ValueError as error:
        raise InputError(f"cannot take the TPM: its endorsement key is no key: {error}") from None


def _public_key(parts: list[bytes], size: int) -> Key:
    """A point of a curve, by its two coordinates, or the modulus of an RSA key. `size` is in
    bytes. Raises ValueError."""
    first, *rest = (int.from_bytes(part, "big") for part in parts)
    if rest:
        return ec.EllipticCurvePublicNumbers(first, rest[0], _CURVES[size]).public_key()
    if len(parts[0]) != size:
        raise ValueError("it is too short")
    return rsa.RSAPublicNumbers(_EXPONENT, first).public_key()


def attestation_key(public: bytes) -> ec.EllipticCurvePublicKey:
    """The attestation key. Raises InputError for one that could sign something else than what the
    TPM has made."""
    try:
        reader = Reader(public)
        if reader.read(len(AK_FIXED)) != AK_FIXED:
            raise ValueError("it has other properties than a restricted key has")
        x = reader.sized()
        y = reader.sized()
        if reader.left or max(len(x), len(y)) > POINT_BYTES:
            raise ValueError("its point is too long")
        numbers = ec.EllipticCurvePublicNumbers(
            int.from_bytes(x, "big"), int.from_bytes(y, "big"), ec.SECP256R1()
        )
        return numbers.public_key()
    except ValueError as error:
        raise InputError(
            f"cannot take the TPM: its attestation key is not as agreed: {error}"
        ) from None


def derived(
    hash_: hashes.HashAlgorithm, key: bytes, label: bytes, about: bytes, bits: int
) -> bytes:
    """A key of a key (KDFa, Part 1 section 11.4.10.2), no longer than the hash."""
    return _mac(hash_, key, u32(1) + label + b"\0" + about + u32(bits))[: bits // 8]


def make(endorsement: Named, name: bytes, held: bytes) -> tuple[bytes, bytes]:
    """A credential that holds something, for the attestation key of this name, and its encrypted
    seed."""
    hash_ = endorsement.hash
    bits = endorsement.kind.bits
    seed, encrypted = _seed(endorsement)
    cipher = Cipher(
        algorithms.AES(derived(hash_, seed, b"STORAGE", name, bits)), CFB(bytes(16))
    ).encryptor()
    hidden = cipher.update(sized(held)) + cipher.finalize()
    mark = _mac(
        hash_, derived(hash_, seed, b"INTEGRITY", b"", 8 * hash_.digest_size), hidden + name
    )
    return sized(mark) + hidden, encrypted


def _seed(endorsement: Named) -> tuple[bytes, bytes]:
    """A new seed, and how it is told to the one TPM: encrypted (Part 1 section B.10.3), or by a key
    of its own (section C.6.3)."""
    hash_ = endorsement.hash
    key = endorsement.key
    if isinstance(key, rsa.RSAPublicKey):
        seed = secrets.token_bytes(hash_.digest_size)
        return seed, key.encrypt(seed, padding.OAEP(padding.MGF1(hash_), hash_, _LABEL))
    size = endorsement.kind.size
    mine = ec.generate_private_key(key.curve)
    shared = mine.exchange(ec.ECDH(), key)
    point = mine.public_key().public_numbers()
    its = key.public_numbers()
    x, y, its_x = (number.to_bytes(size, "big") for number in (point.x, point.y, its.x))
    digest = hashes.Hash(hash_)
    digest.update(u32(1) + shared + _LABEL + x + its_x)  # KDFe, section 11.4.10.3
    return digest.finalize(), sized(x) + sized(y)


def _mac(hash_: hashes.HashAlgorithm, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, hash_.name)
