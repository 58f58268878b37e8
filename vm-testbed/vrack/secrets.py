"""A rack's own password and certificate, made anew for each rack."""

from __future__ import annotations

import datetime
import ipaddress
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import bcrypt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from vrack.spec import USERNAME


@dataclass(frozen=True, slots=True)
class RackSecrets:
    """Where they lie. The password file is for the inventory; the auth file holds its bcrypt hash
    for sushy-emulator."""

    password_file: Path
    auth_file: Path
    certificate: Path
    key: Path

    @property
    def password(self) -> str:
        """The password of all BMCs of the rack."""
        return self.password_file.read_text().strip()


def _write(path: Path, data: bytes) -> Path:
    path.touch(mode=0o600)
    path.write_bytes(data)
    return path


def make_secrets(directory: Path, addresses: Iterable[str]) -> RackSecrets:
    """Makes them in `directory`. The password is 16 characters: IPMI 1.5 allows no more.

    The hash has the fewest bcrypt rounds there are: the emulator computes it for every request, and
    the password is random.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    password = secrets.token_hex(8)
    hashed = bcrypt.hashpw(password.encode(), bcrypt.gensalt(rounds=4))
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "virtual rack BMCs")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.IPAddress(ipaddress.ip_address(a)) for a in addresses]
            ),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return RackSecrets(
        password_file=_write(directory / "bmc-password", password.encode() + b"\n"),
        auth_file=_write(directory / "bmc-htpasswd", USERNAME.encode() + b":" + hashed + b"\n"),
        certificate=_write(directory / "bmc.pem", certificate.public_bytes(pem)),
        key=_write(
            directory / "bmc.key",
            key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
        ),
    )
