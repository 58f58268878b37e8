"""The head's own certificate authority: minOS pins it, so a node talks to this head and to no
other.

Below pki/: `ca.pem` are the authorities that are trusted, the acting one first; `ca.key` is the
acting one's key. `next.pem` and `next.key` are there while an authority is replaced: nodes get
certificates of the next one then, and learn to trust it, and the head itself goes on with the
acting one until all have (`finish`). How long the other certificates live is a setting.
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import socket
import ssl
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from layercake.base.files import write_atomic
from layercake.kraken.errors import InputError, OperationFailed
from minos.agent.head_link.trust import HEAD_NAME
from minos.agent.http.client import NO_CHECK_TIME

_AUTHORITY_DAYS = 3650
DAYS = 60
"""How long a certificate lives, if the settings do not say."""
_RENEWED = 2 / 3
"""The share of its life after which it is renewed."""
_DAY_S = 86_400.0
LOOPBACK = ("127.0.0.1", "::1", "localhost")
"""Names that every head's certificate has: it is also reached through an SSH tunnel."""
_SLACK = datetime.timedelta(days=2)
"""So much before it is made a certificate begins: clocks may be a little behind."""
NODE_NAME = "Layercake node"
CLIENT_NAME = "Layercake client"
_BOTH_ENDS = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
_CLIENT = (ExtendedKeyUsageOID.CLIENT_AUTH,)
"""What a certificate may be used for: head and nodes are both ends of connections."""

_Usages = tuple[x509.ObjectIdentifier, ...]


class CertificateAge(msgspec.Struct, frozen=True):
    """A certificate of the head's: what it is, until when it is good (seconds since the epoch), and
    for how many days more."""

    what: str
    until: float
    days: float


def name_of(node: str, session: int) -> str:
    """The name that a node's certificate is for: good in one session, worthless in another."""
    return f"s{session}.{node}.layercake"


def client_name(token: str) -> str:
    """The name that a certificate for a token of this id is for."""
    return f"{token}.token.layercake"


def person_name(who: str) -> str:
    """The name that a certificate for a person is for: "oidc:SUBJECT" of the site's identity
    provider, or "local:NAME" for a user of the head's machine."""
    return f"{hashlib.sha256(who.encode()).hexdigest()[:32]}.person.layercake"


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _pem(certificates: Iterable[x509.Certificate]) -> bytes:
    return b"".join(c.public_bytes(serialization.Encoding.PEM) for c in certificates)


def _key_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _builder(
    subject: str, issuer: x509.Name | None, public: ec.EllipticCurvePublicKey, days: float
) -> x509.CertificateBuilder:
    now = _now()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer or name)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SLACK)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _key_usage(*, signs: bool) -> x509.KeyUsage:
    """What a key is for: signatures of handshakes, and those below certificates if it `signs`."""
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _authority() -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    identity = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    made = (
        _builder(
            f"Layercake head CA {identity.digest.hex()[:8]}",
            None,
            key.public_key(),
            _AUTHORITY_DAYS,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs=True), critical=True)
        .add_extension(identity, critical=False)
        .sign(key, hashes.SHA256())
    )
    return made, key


def create(directory: Path, *addresses: str) -> None:
    """Writes an authority, and the server's certificate for these addresses and this host."""
    create_authority(directory)
    Authority(directory).renew(*addresses)


def create_authority(directory: Path) -> None:
    """Writes an authority alone."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    made, key = _authority()
    write_atomic(directory / "ca.key", _key_bytes(key))
    write_atomic(directory / "ca.pem", _pem([made]), mode=0o644)


def serial_of(certificate: str) -> int:
    """The serial number of a certificate in PEM."""
    return x509.load_pem_x509_certificate(certificate.encode()).serial_number


class Authority:
    """The head's authority. Files are read when they are needed. A directory without one is a head
    that serves no node's API. `days` is how long its certificates live."""

    def __init__(self, directory: Path, days: float = DAYS) -> None:
        self._directory = directory
        self._days = days
        self.trusted = directory / "ca.pem"
        """The file of the authorities that are trusted."""
        self.changed: Callable[[], None] = lambda: None
        """Called when the head's certificate or the trusted authorities are others."""
        self._loaded: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None = None
        self._marked: tuple[tuple[int, int, int], str] = (0, 0, 0), ""

    @property
    def server(self) -> tuple[Path, Path]:
        """The files of the head's own certificate and its key."""
        return self._directory / "server.pem", self._directory / "server.key"

    @property
    def renew_s(self) -> float:
        """After how many seconds a certificate is renewed."""
        return self._days * _RENEWED * _DAY_S

    @property
    def life_s(self) -> float:
        """For how many seconds a certificate is good, from when it is made."""
        return self._days * _DAY_S

    @property
    def left_at_renewal(self) -> float:
        """For how many days a certificate that is renewed is still good."""
        return self._days * (1 - _RENEWED)

    @property
    def made_at(self) -> float | None:
        """When the acting authority was made, in seconds since the epoch; None without one. Raises
        OperationFailed."""
        acting = self._read("ca")
        return None if acting is None else _made_at(acting[0]).timestamp()

    @property
    def mark(self) -> str:
        """Tells one set of trusted authorities from another; "" without any. Each node that asks
        for its desired state is told it, so the file is read again only when it is another."""
        try:
            found = self.trusted.stat()
        except FileNotFoundError:
            return ""
        file = (found.st_ino, found.st_mtime_ns, found.st_size)
        if self._marked[0] != file:
            self._marked = file, hashlib.sha256(self.trusted.read_bytes()).hexdigest()[:16]
        return self._marked[1]

    @property
    def changing(self) -> bool:
        """Whether the authority is being replaced."""
        return (self._directory / "next.pem").exists()

    def _read(self, name: str) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None:
        try:
            certificate = x509.load_pem_x509_certificate(
                (self._directory / f"{name}.pem").read_bytes()
            )
            key = serialization.load_pem_private_key(
                (self._directory / f"{name}.key").read_bytes(), None
            )
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise OperationFailed(
                f"cannot use the head's authority in {self._directory}: {error}"
            ) from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise OperationFailed(
                f"cannot use the head's authority in {self._directory}: its key is not of an "
                "elliptic curve"
            )
        return certificate, key

    @property
    def _newest(self) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None:
        """What nodes' certificates are made with."""
        if self._loaded is None:
            self._loaded = self._read("next") or self._read("ca")
        return self._loaded

    def sign(self, data: bytes) -> bytes | None:
        """The acting authority's signature (ECDSA over SHA-256) of some data, None on a head
        without an authority."""
        acting = self._read("ca")
        return None if acting is None else acting[1].sign(data, ec.ECDSA(hashes.SHA256()))

    def issue(self, node: str, session: int) -> dict[str, str] | None:
        """{"cert", "key"} in PEM for one session, None on a head without an authority. The key is
        secret and is not kept."""
        return self._issued(NODE_NAME, name_of(node, session), _BOTH_ENDS)

    def issue_client(self, name: str) -> dict[str, str] | None:
        """The same for somebody who uses the API: client_name or person_name."""
        return self._issued(CLIENT_NAME, name, _CLIENT)

    def _issued(self, subject: str, name: str, usages: _Usages) -> dict[str, str] | None:
        if self._newest is None:
            return None
        cert, key = _signed(self._newest, subject, [x509.DNSName(name)], usages, self._days)
        return {"cert": _pem([cert]).decode(), "key": _key_bytes(key).decode()}

    def issue_head(self, *addresses: str) -> dict[str, str]:
        """The same for another head of the site, which is at these addresses. Raises
        OperationFailed without an authority."""
        acting = self._read("ca")
        if acting is None:
            raise OperationFailed("cannot make a head's certificate: there is no authority")
        names = [_san(address) for address in dict.fromkeys((*addresses, *LOOPBACK))]
        cert, key = _signed(acting, HEAD_NAME, names, _BOTH_ENDS, self._days)
        return {"cert": _pem([cert]).decode(), "key": _key_bytes(key).decode()}

    def revocations(self, serials: Iterable[int]) -> bytes:
        """The acting authority's list, in PEM, of certificates that count no more. Raises
        OperationFailed without an authority."""
        acting = self._read("ca")
        if acting is None:
            raise OperationFailed("cannot revoke certificates: there is no authority")
        now = _now()
        until = now + datetime.timedelta(days=_AUTHORITY_DAYS)
        made = x509.CertificateRevocationListBuilder().issuer_name(acting[0].subject)
        made = made.last_update(now - _SLACK).next_update(until)
        for serial in serials:
            one = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now)
            made = made.add_revoked_certificate(one.build())
        return made.sign(acting[1], hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def reread(self, *addresses: str) -> None:
        """The files are those of another head by now. Raises OperationFailed."""
        self._loaded = None
        if not self.renew(*addresses):
            self.changed()

    def renew(self, *addresses: str) -> bool:
        """Makes the server's certificate anew if it is old, is not there, or is for other addresses
        (or DNS names) or of another authority. Whether it did. Raises OperationFailed without an
        authority."""
        acting = self._read("ca")
        if acting is None:
            raise OperationFailed(
                f"cannot make the head's certificate: there is no authority in {self._directory}",
                hint="run `layercake init`",
            )
        own = [_san(address) for address in dict.fromkeys((*addresses, *LOOPBACK))]
        names = list(dict.fromkeys([*own, x509.DNSName(socket.gethostname() or "head")]))
        if self._fresh(acting[0], own):
            return False
        cert, key = _signed(acting, HEAD_NAME, names, _BOTH_ENDS, self._days)
        write_atomic(self._directory / "server.key", _key_bytes(key))
        write_atomic(self._directory / "server.pem", _pem([cert]), mode=0o644)
        self.changed()
        return True

    def _fresh(self, authority: x509.Certificate, names: list[x509.GeneralName]) -> bool:
        try:
            found = self._read("server")
        except OperationFailed:
            return False
        if (
            found is None
            or found[0].issuer != authority.subject
            or found[0].public_key() != found[1].public_key()
        ):
            return False
        made = _made_at(found[0])
        life = found[0].not_valid_after_utc - made
        now = _now()
        known = found[0].extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return (
            life <= datetime.timedelta(days=self._days)
            and made - _SLACK <= now < made + life * _RENEWED
            and set(names) <= set(known)
        )

    def ages(self) -> list[CertificateAge]:
        """How long the head's certificates are still good, the soonest first."""
        found = []
        for what, name in (
            ("head", "server.pem"),
            ("authority", "ca.pem"),
            ("next authority", "next.pem"),
        ):
            try:
                certificate = x509.load_pem_x509_certificate((self._directory / name).read_bytes())
            except (FileNotFoundError, ValueError):
                continue
            until = certificate.not_valid_after_utc
            found.append(
                CertificateAge(
                    what, until.timestamp(), round((until - _now()).total_seconds() / 86400, 1)
                )
            )
        return sorted(found, key=lambda age: age.until)

    def begin(self) -> None:
        """Makes the next authority; it is trusted beside the acting one from now on. Raises
        InputError."""
        acting = self._read("ca")
        if acting is None or self.changing:
            raise InputError(
                "cannot replace the authority: "
                + ("there is none" if acting is None else "that has begun already"),
                hint="see `layercake authority`",
            )
        made, key = _authority()
        write_atomic(self._directory / "next.key", _key_bytes(key), durable=True)
        write_atomic(self._directory / "ca.pem", _pem([acting[0], made]), mode=0o644, durable=True)
        write_atomic(self._directory / "next.pem", _pem([made]), mode=0o644, durable=True)
        self._loaded = None
        self.changed()

    def finish(self, *addresses: str) -> None:
        """The next authority is the only one from now on. Raises InputError."""
        if not self.changing:
            raise InputError(
                "cannot finish: the authority is not being replaced",
                hint="see `layercake authority`",
            )
        key = (self._directory / "next.key").read_bytes()
        write_atomic(self._directory / "ca.key", key, durable=True)
        write_atomic(
            self._directory / "ca.pem",
            (self._directory / "next.pem").read_bytes(),
            mode=0o644,
            durable=True,
        )
        self._loaded = None
        self.renew(*addresses)
        (self._directory / "next.pem").unlink()
        (self._directory / "next.key").unlink()


def _made_at(certificate: x509.Certificate) -> datetime.datetime:
    """When a certificate of ours was made."""
    return certificate.not_valid_before_utc + _SLACK


def _san(address: str) -> x509.GeneralName:
    """An address or a DNS name as a certificate has it."""
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def _signed(
    authority: tuple[x509.Certificate, ec.EllipticCurvePrivateKey],
    subject: str,
    names: list[x509.GeneralName],
    usages: _Usages,
    days: float,
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """A new key, and its certificate, good for `usages` and no others."""
    issuer, signer = authority
    key = ec.generate_private_key(ec.SECP256R1())
    made = (
        _builder(subject, issuer.subject, key.public_key(), days)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .sign(signer, hashes.SHA256())
    )
    return made, key


def _context(authority: Authority) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    context.verify_mode = ssl.CERT_OPTIONAL
    context.verify_flags |= NO_CHECK_TIME
    context.load_verify_locations(cafile=str(authority.trusted))
    context.load_cert_chain(*authority.server)
    return context


def between_heads(authority: Authority) -> ssl.SSLContext:
    """How another head of the site is asked: it is one by its certificate, and this one shows its
    own. Whatever their clocks say. Raises OSError and ssl.SSLError."""
    context = ssl.create_default_context(cafile=str(authority.trusted))
    context.verify_flags |= NO_CHECK_TIME
    context.load_cert_chain(*authority.server)
    return context


def serving(authority: Authority) -> ssl.SSLContext:
    """How the head serves: it shows its certificate of the time of each handshake, and looks at one
    that a client shows. Nodes show theirs, which are of one session, so that no clock has a say in
    it. Nothing is resumed: who was trusted before an authority was replaced is looked at anew."""
    now = [_context(authority)]

    def renewed() -> None:
        now[0] = _context(authority)

    def switch(link: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        link.context = now[0]

    first = _context(authority)
    first.sni_callback = switch
    authority.changed = renewed
    return first
