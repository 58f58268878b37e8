"""Which certificates the head takes from who connects, and a node's server may show: those of its
own authority, for what they are made for."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from layercake.agents import pki
from layercake.agents.pki import Authority
from minos.agent.http.client import tls_context

NODE = "0f8fad5b-d9cb-469f-a165-70867728950e"
NAME = pki.name_of(NODE, 1)


def connect(client: ssl.SSLContext, server: ssl.SSLContext, name: str | None) -> ssl.SSLObject:
    """A handshake in memory; the server's end. Raises SSLError for what either does not take."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    its = server.wrap_bio(to_server, to_client, server_side=True)
    ours = client.wrap_bio(to_client, to_server, server_hostname=name)
    for _ in range(4):
        for end in (ours, its):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return its


def client_of(authority: Path, pair: dict[str, str] | None, folder: Path) -> ssl.SSLContext:
    """A client that trusts an authority, and shows a certificate."""
    assert pair is not None
    file = folder / "client.pem"
    file.write_text(pair["cert"] + pair["key"])
    context = tls_context(authority)
    context.check_hostname = False
    context.load_cert_chain(file)
    return context


def made(directory: Path, *usages: x509.ObjectIdentifier) -> dict[str, str]:
    """A certificate of a node's name by the authority in a directory, for these usages."""
    signer = serialization.load_pem_private_key((directory / "ca.key").read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    issuer = x509.load_pem_x509_certificate((directory / "ca.pem").read_bytes())
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    found = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, pki.NODE_NAME)]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .sign(signer, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return {"cert": found.public_bytes(pem).decode(), "key": private.decode()}


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """The directory of the head's authority; another head's is beside it."""
    pki.create(tmp_path / "own", "127.0.0.1")
    pki.create(tmp_path / "other", "127.0.0.1")
    return tmp_path / "own"


def test_the_head_takes_certificates_of_its_own_authority_for_clients(own: Path) -> None:
    authority, other = Authority(own), own.with_name("other")
    trusted = own / "ca.pem"
    client = client_of(trusted, authority.issue(NODE, 1), own)
    shown = connect(client, pki.serving(authority), None).getpeercert()
    assert shown is not None and ("DNS", NAME) in shown["subjectAltName"]
    for wrong in (
        Authority(other).issue(NODE, 1),
        made(other, ExtendedKeyUsageOID.CLIENT_AUTH),
        made(own, ExtendedKeyUsageOID.SERVER_AUTH),
    ):
        with pytest.raises(ssl.SSLError):
            connect(client_of(trusted, wrong, own), pki.serving(authority), None)


def test_what_a_token_has_is_no_servers(own: Path) -> None:
    """The head goes to a node by its name: who has a token's certificate cannot stand there."""
    authority = Authority(own)
    for pair, fine in ((authority.issue(NODE, 1), True), (authority.issue_client(NAME), False)):
        assert pair is not None
        (own / "server-pair.pem").write_text(pair["cert"] + pair["key"])
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(own / "server-pair.pem")
        if fine:
            connect(tls_context(own / "ca.pem"), server, NAME)
        else:
            with pytest.raises(ssl.SSLError):
                connect(tls_context(own / "ca.pem"), server, NAME)
