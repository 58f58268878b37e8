"""Images that cosign has signed. There is no cosign in the registries of the tests' machines: the
signatures are made here by its published specification (SIGNATURE_SPEC.md), the layouts by umoci
and skopeo."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from imageapi.build import cosign
from layercake.kraken.errors import InputError, LayercakeError, Refused
from tests.build.conftest import Build, busybox_tree

pytestmark = pytest.mark.root
PAYLOAD = "application/vnd.dev.cosign.simplesigning.v1+json"
ODD = """-----BEGIN PUBLIC KEY-----
MD4wEAYHKoZIzj0CAQYFK4EEAAkDKgAE6sntAhdT9yQ6oYL8rNtdVpbEUaIqThCU
i/V3oMQwSOQqEprnUcFoIw==
-----END PUBLIC KEY-----
"""
"""Of secp160k1, which cryptography does not have."""
Private = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey
KEYS: dict[str, Callable[[], Private]] = {
    "ecdsa": lambda: ec.generate_private_key(ec.SECP256R1()),
    "ed25519": ed25519.Ed25519PrivateKey.generate,
    "rsa": lambda: rsa.generate_private_key(65537, 2048),
}


def tool(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def layout_of(directory: Path, text: str) -> Path:
    root = busybox_tree(directory / f"{text}-root")
    (root / "bin/which").write_text(text)
    layout = directory / text
    tool("umoci", "init", "--layout", str(layout))
    tool("umoci", "new", "--image", f"{layout}:a")
    tool("umoci", "insert", "--image", f"{layout}:a", str(root / "bin"), "/bin")
    tool("umoci", "config", "--image", f"{layout}:a", "--config.cmd", "/bin/sh")
    tool("umoci", "gc", "--layout", str(layout))
    return layout


def index(layout: Path) -> dict[str, Any]:
    return dict(json.loads((layout / "index.json").read_text()))


def digest_of(layout: Path) -> str:
    return str(index(layout)["manifests"][0]["digest"])


def put(layout: Path, data: bytes) -> dict[str, Any]:
    name = hashlib.sha256(data).hexdigest()
    (layout / "blobs/sha256" / name).write_bytes(data)
    return {"digest": f"sha256:{name}", "size": len(data)}


def sign(
    layout: Path,
    key: Private,
    digest: str = "",
    *,
    kind: str = "cosign container image signature",
    annotations: dict[str, str] | None = None,
) -> None:
    """What `cosign sign --key` puts beside an image, and `cosign save` writes down."""
    digest = digest or digest_of(layout)
    payload = json.dumps(
        {
            "critical": {
                "identity": {"docker-reference": "registry.example/web"},
                "image": {"docker-manifest-digest": digest},
                "type": kind,
            },
            "optional": None,
        }
    ).encode()
    if isinstance(key, ed25519.Ed25519PrivateKey):
        proof = key.sign(payload)
    elif isinstance(key, rsa.RSAPrivateKey):
        proof = key.sign(payload, padding.PKCS1v15(), SHA256())
    else:
        proof = key.sign(payload, ec.ECDSA(SHA256()))
    layer = put(layout, payload) | {
        "mediaType": PAYLOAD,
        "annotations": {"dev.cosignproject.cosign/signature": base64.b64encode(proof).decode()},
    }
    config = put(layout, b"{}") | {"mediaType": "application/vnd.oci.image.config.v1+json"}
    manifest = put(
        layout,
        json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": config,
                "layers": [layer],
            }
        ).encode(),
    )
    found = index(layout)
    found["manifests"].append(
        manifest
        | {
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "annotations": annotations or {"kind": "dev.cosignproject.cosign/sigs"},
        }
    )
    (layout / "index.json").write_text(json.dumps(found))


def public(key: Private, path: Path) -> Path:
    path.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return path


@pytest.mark.parametrize("kind", KEYS)
def test_an_image_that_the_key_has_signed_is_built(kind: str, make: Build, tmp_path: Path) -> None:
    key, layout = KEYS[kind](), layout_of(tmp_path, "good")
    plain = make(layout, "plain")
    sign(layout, KEYS["ecdsa"]())
    sign(
        layout,
        key,
        annotations={
            "org.opencontainers.image.ref.name": digest_of(layout).replace(":", "-") + ".sig"
        },
    )
    pem = public(key, tmp_path / "cosign.pub")
    assert make(layout, "signed", cosign_key=pem).digest == plain.digest
    tool("tar", "-cf", str(tmp_path / "archive.tar"), "-C", str(layout), ".")
    assert make(tmp_path / "archive.tar", "archive", cosign_key=pem).digest == plain.digest


def test_an_image_of_a_stranger_is_refused(make: Build, tmp_path: Path) -> None:
    """The attack: an image that is passed off as the signed one, with what signatures the attacker
    has. Before, it was built."""
    key, good = KEYS["ecdsa"](), layout_of(tmp_path, "good")
    pem = public(key, tmp_path / "cosign.pub")

    def refused(name: str, why: str) -> Path:
        evil = layout_of(tmp_path, name)
        {
            "unsigned": lambda: None,
            "other-key": lambda: sign(evil, KEYS["ecdsa"]()),
            "other-image": lambda: sign(evil, key, digest_of(good)),
            "other-type": lambda: sign(evil, key, kind="atomic container signature"),
        }[name]()
        with pytest.raises(Refused, match=why):
            make(evil, name, cosign_key=pem)
        return evil

    refused("unsigned", "no cosign signature")
    refused("other-key", "none of its 1 signatures is by this key")
    refused("other-image", "the key has signed 'sha256:")
    refused("other-type", "the key has signed")


def test_a_signed_image_whose_content_was_changed_is_refused(make: Build, tmp_path: Path) -> None:
    key, layout = KEYS["ecdsa"](), layout_of(tmp_path, "good")
    other = layout_of(tmp_path, "evil")
    sign(layout, key)
    pem = public(key, tmp_path / "cosign.pub")
    blobs, theirs = layout / "blobs/sha256", other / "blobs/sha256"
    named = digest_of(layout).removeprefix("sha256:")
    manifest, before = json.loads((blobs / named).read_text()), (blobs / named).read_bytes()
    for file in theirs.iterdir():
        if not (blobs / file.name).exists():
            (blobs / file.name).write_bytes(file.read_bytes())
    (blobs / named).write_bytes((theirs / digest_of(other).removeprefix("sha256:")).read_bytes())
    with pytest.raises(Refused, match="not what its digest says"):
        make(layout, "manifest", cosign_key=pem)
    (blobs / named).write_bytes(before)
    layer = manifest["layers"][-1]["digest"].removeprefix("sha256:")
    data = (blobs / layer).read_bytes()
    (blobs / layer).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(LayercakeError):
        make(layout, "layer", cosign_key=pem)
    (blobs / layer).write_bytes(data)
    found = index(layout)
    found["manifests"].append(index(other)["manifests"][0])
    (layout / "index.json").write_text(json.dumps(found))
    with pytest.raises(Refused, match="holds 2 images"):
        make(layout, "two", cosign_key=pem)


def test_what_came_out_must_be_what_was_signed(tmp_path: Path) -> None:
    """The source may be changed between the look at its signature and its copying."""
    layout = layout_of(tmp_path, "good")
    cosign.check_copy(layout, frozenset({digest_of(layout)}))
    with pytest.raises(Refused, match="not what was signed"):
        cosign.check_copy(layout, frozenset({"sha256:" + "0" * 64}))


@pytest.mark.parametrize(
    "hostile",
    [
        b"",
        b"[]",
        b"{}",
        b'{"manifests": 3}',
        b'{"manifests": [3, null, {"digest": 3}]}',
        b"[" * 100_000,
        b'{"a":"\\ud800"}',
        b'{"manifests": [{"digest": "sha256:../../../etc/passwd"}]}',
        b'{"manifests": [{"digest": "md5:0", "annotations": []}]}',
    ],
)
def test_a_hostile_layout_is_refused_in_words(hostile: bytes, make: Build, tmp_path: Path) -> None:
    (tmp_path / "l/blobs/sha256").mkdir(parents=True)
    (tmp_path / "l/oci-layout").write_text("{}")
    (tmp_path / "l/index.json").write_bytes(hostile)
    with pytest.raises(LayercakeError, match="cannot"):
        make(tmp_path / "l", cosign_key=public(KEYS["ed25519"](), tmp_path / "pub"))
    (tmp_path / "l/index.json").unlink()
    os.mkfifo(tmp_path / "l/index.json")
    with pytest.raises(Refused, match="no file"):
        make(tmp_path / "l", cosign_key=tmp_path / "pub")


def test_only_what_can_be_signed_takes_a_key(context: Path, make: Build, tmp_path: Path) -> None:
    pem = public(KEYS["ecdsa"](), tmp_path / "pub")
    with pytest.raises(InputError, match="it is a Dockerfile"):
        make(context, cosign_key=pem)
    layout = layout_of(tmp_path, "good")
    private = KEYS["ed25519"]().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "private").write_bytes(private)
    (tmp_path / "odd").write_text(ODD)
    for name, why in (
        ("none", "No such file"),
        ("private", "no public key"),
        ("odd", "not supported"),
    ):
        with pytest.raises(InputError, match=why):
            make(layout, cosign_key=tmp_path / name)
