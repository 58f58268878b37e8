"""What a TPM says of its registers: the quote is checked, and held against the values that the node
gives. Pure."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from layercake.kraken.errors import Refused
from minos.tpm.wire import ATTEST_QUOTE, ECDSA, GENERATED, SHA256, Reader


class Quote(msgspec.Struct, frozen=True):
    """What a TPM says (TPMS_ATTEST of a quote, Part 2 section 10.12): how often it was reset and
    restarted, milliseconds that it was on, and the registers with what all of them together are."""

    qualifying: bytes
    clock: int
    resets: int
    restarts: int
    firmware: int
    registers: tuple[int, ...]
    digest: bytes


def read(data: bytes) -> Quote:
    """A quote. Raises ValueError."""
    reader = Reader(data)
    if reader.number(4) != GENERATED or reader.number(2) != ATTEST_QUOTE:
        raise ValueError("it is no quote that a TPM has made")
    reader.sized()  # the name of the key that signed it: its signature says so too
    qualifying = reader.sized()
    clock = reader.number(8)
    resets = reader.number(4)
    restarts = reader.number(4)
    reader.read(1)
    firmware = reader.number(8)
    registers = reader.selection()
    digest = reader.sized()
    if reader.left:
        raise ValueError("there is more behind it")
    return Quote(qualifying, clock, resets, restarts, firmware, registers, digest)


def signed(key: ec.EllipticCurvePublicKey, data: bytes, signature: bytes) -> bool:
    """Whether a signature (TPMT_SIGNATURE of ECDSA with SHA-256) is this key's. Raises
    ValueError."""
    reader = Reader(signature)
    if reader.number(2) != ECDSA or reader.number(2) != SHA256:
        raise ValueError("it is not signed by ECDSA with SHA-256")
    r, s = (int.from_bytes(reader.sized(), "big") for _ in "rs")
    try:
        key.verify(encode_dss_signature(r, s), data, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def checked(
    key: ec.EllipticCurvePublicKey,
    data: bytes,
    signature: bytes,
    qualifying: bytes,
    registers: tuple[int, ...],
    values: Mapping[int, bytes],
) -> Quote:
    """The quote, when all of it holds: this key's signature, this word in it, these registers with
    these values. Raises Refused that says which does not."""
    try:
        if not signed(key, data, signature):
            raise Refused("cannot take the quote: its signature is not of the TPM's key")
        found = read(data)
    except ValueError as error:
        raise Refused(f"cannot take the quote: it is not as agreed: {error}") from None
    if not hmac.compare_digest(found.qualifying, qualifying):
        raise Refused(
            "cannot take the quote: it is not of this join, or not of the TPM that the credential "
            "was made for"
        )
    if found.registers != registers or set(values) != set(registers):
        raise Refused(
            "cannot take the quote: it is of other registers than those that were asked for"
        )
    if any(len(values[number]) != hashlib.sha256().digest_size for number in registers):
        raise Refused("cannot take the quote: a register's value is not a SHA-256")
    if hashlib.sha256(b"".join(values[number] for number in registers)).digest() != found.digest:
        raise Refused(
            "cannot take the quote: the values of the registers are others than those in it"
        )
    return found
