"""The CLI over the network: TLS checked against the head's CA, a token from a file, never in
clear."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.cli.canned_api import CannedApi

Run = Callable[..., Any]


def certificate(folder: Path, name: str) -> Path:
    """A self-signed certificate for 127.0.0.1, with its key in the same file."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / f"{name}.pem"
    path.write_bytes(
        made.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    return certificate(tmp_path, "head")


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("s3cret\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def network(ca: Path) -> Iterator[CannedApi]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(ca)
    fake = CannedApi()
    fake.start(tls=context)
    fake.answers["GET /v1/images"] = (200, {"images": []})
    yield fake
    fake.stop()


def test_the_token_goes_out_over_checked_tls(
    run: Run, network: CannedApi, ca: Path, token: Path
) -> None:
    result = run(
        "--url",
        f"https://127.0.0.1:{network.port}",
        "--ca",
        str(ca),
        "--token-file",
        str(token),
        "image",
        "list",
    )
    assert result.code == 0, result.err
    assert network.headers[-1]["Authorization"] == "Bearer s3cret"


def test_an_untrusted_certificate_is_exit_3_and_the_token_stays_here(
    run: Run, network: CannedApi, tmp_path: Path, token: Path
) -> None:
    other = certificate(tmp_path, "other")
    for arguments in (["--ca", str(other)], []):
        result = run(
            "--url",
            f"https://127.0.0.1:{network.port}",
            *arguments,
            "--token-file",
            str(token),
            "image",
            "list",
        )
        assert result.code == 3
        assert "--ca" in result.err and "s3cret" not in result.err
    assert not network.requests


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1",
        "127.0.0.1:8443",
        "https://",
        "ftp://x",
        "https://h:99999",
        "https://h:x",
        "https://[::1",
    ],
)
def test_a_url_that_is_not_https_is_exit_2(run: Run, token: Path, url: str) -> None:
    result = run("--url", url, "--token-file", str(token), "image", "list")
    assert result.code == 2
    assert "https://HOST:PORT" in result.err


@pytest.mark.parametrize("host", ["a b", "x" * 70 + ".invalid", "127.0.0.1:1"])
def test_a_host_that_is_not_there_is_exit_3(run: Run, token: Path, host: str) -> None:
    result = run("--url", f"https://{host}", "--token-file", str(token), "image", "list")
    assert result.code == 3
    assert "cannot reach the head at https://" in result.err


def test_a_missing_token_or_ca_is_exit_2(run: Run, token: Path, tmp_path: Path) -> None:
    assert run("--url", "https://127.0.0.1:1", "image", "list").code == 2
    assert (
        run(
            "--url", "https://127.0.0.1:1", "--token-file", str(tmp_path / "none"), "image", "list"
        ).code
        == 2
    )
    result = run(
        "--url",
        "https://127.0.0.1:1",
        "--token-file",
        str(token),
        "--ca",
        str(tmp_path / "none"),
        "image",
        "list",
    )
    assert result.code == 2
    assert "--ca" in result.err
