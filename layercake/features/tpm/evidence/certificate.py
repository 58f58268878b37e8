"""The certificate by which a maker says that an endorsement key is that of a TPM of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from layercake.base.text import printable
from layercake.features.tpm.evidence.credential import Key
from layercake.kraken.errors import InputError

MOST_BYTES = 8192


class Vouched(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known by a certificate: who issued it, and why it is not to be trusted, "" if it
    is."""

    issuer: str = ""
    trouble: str = "it has no certificate of its maker's"


def authorities(directory: str) -> list[x509.Certificate]:
    """The authorities whose TPMs are taken: all certificates (PEM) in the files of a directory.
    Raises InputError."""
    found: list[x509.Certificate] = []
    try:
        for path in sorted(Path(directory).iterdir()):
            if path.suffix in (".pem", ".crt"):
                found += x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot read the authorities of TPMs in {directory}: {error}",
            hint="certificates as PEM, in files *.pem",
        ) from None
    if not found:
        raise InputError(
            f"cannot read the authorities of TPMs in {directory}: there are none",
            hint="certificates in files *.pem",
        )
    return found


def vouched(data: bytes, key: Key, trusted: Sequence[x509.Certificate]) -> Vouched:
    """What a certificate says of an endorsement key. Dates do not count: TPMs outlive their
    certificates."""
    if not data.strip(b"\0\xff"):
        return Vouched()
    try:
        # The place that it is in may be longer than it: its own length is in front (DER, SEQUENCE
        # with a length of two bytes).
        size = int.from_bytes(data[2:4], "big") + 4 if data[:2] == b"\x30\x82" else len(data)
        found = x509.load_der_x509_certificate(data[:size])
        issuer = printable(found.issuer.rfc4514_string())
        its = found.public_key()
    # Makers' certificates are odd in many ways, and so are the errors of the library.
    except Exception as error:  # noqa: BLE001
        return Vouched(trouble=f"its certificate cannot be read: {printable(str(error))}")
    if its != key:
        return Vouched(issuer, "its certificate is of another key")
    for authority in trusted:
        if authority.subject == found.issuer:
            try:
                found.verify_directly_issued_by(authority)
            except (InvalidSignature, TypeError, ValueError):
                continue
            return Vouched(issuer, "")
    return Vouched(
        issuer,
        f"its certificate is of {issuer or 'nobody'}, who is not among the authorities of TPMs",
    )
