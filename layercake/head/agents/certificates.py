"""Certificates for the nodes' own APIs, signed by the head's authority: one for each session, worthless in another."""

from __future__ import annotations

import datetime
import functools
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from layercake.kraken.errors import OperationFailed

_DAYS = 3650  # a session ends with its boot; nobody renews a certificate before
_SLACK = datetime.timedelta(days=2)


def name_of(node: str, session: int) -> str:
    """The name that a node's certificate is for."""
    return f"s{session}.{node}.layercake"


class NodeCertificates:
    """Issues them. The authority's key is read once, when the first node joins."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    def authority(self) -> Path:
        """The authority's certificate."""
        return self._directory / "ca.pem"

    @functools.cached_property
    def _signer(self) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None:
        try:
            certificate = x509.load_pem_x509_certificate(self.authority.read_bytes())
            key = serialization.load_pem_private_key((self._directory / "ca.key").read_bytes(), None)
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise OperationFailed(f"cannot use the head's authority in {self._directory}: {error}") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise OperationFailed(f"cannot use the head's authority in {self._directory}: its key is not of an elliptic curve")
        return certificate, key

    def sign(self, data: bytes) -> bytes | None:
        """The authority's signature (ECDSA over SHA-256) of some data, None on a head without an authority."""
        return None if self._signer is None else self._signer[1].sign(data, ec.ECDSA(hashes.SHA256()))

    def issue(self, node: str, session: int) -> dict[str, str] | None:
        """{"cert", "key"} in PEM for one session, None on a head without an authority. The key is secret and is not kept."""
        if self._signer is None:
            return None
        authority, signer = self._signer
        key, name = ec.generate_private_key(ec.SECP256R1()), name_of(node, session)
        now = datetime.datetime.now(datetime.UTC)
        certificate = (
            x509.CertificateBuilder().subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Layercake node")]))
            .issuer_name(authority.subject).public_key(key.public_key()).serial_number(x509.random_serial_number())
            .not_valid_before(now - _SLACK).not_valid_after(now + datetime.timedelta(days=_DAYS))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
            .sign(signer, hashes.SHA256())
        )
        private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return {"cert": certificate.public_bytes(serialization.Encoding.PEM).decode(), "key": private.decode()}
