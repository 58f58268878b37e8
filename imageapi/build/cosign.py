"""Signatures that cosign made of an OCI image, checked by a public key, before anything of the
image is unpacked.

    index.json ─> signature's manifest ─> layer: the payload, which says "docker-manifest-digest"
               │                               its annotation: the signature
               └> the image's manifest, or an index of manifests: what that digest must be

Read are layouts as `cosign save` writes them, and those into which the tag sha256-DIGEST.sig was
copied. Certificates and transparency logs are not looked at: the key is the answer.

Source: cosign's SIGNATURE_SPEC.md, "simple signing"; OCI image layout 1.0.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from imageapi.build.tools import run
from layercake.base.text import count_of, parse_json
from layercake.kraken.errors import InputError, Refused

PAYLOAD = "application/vnd.dev.cosign.simplesigning.v1+json"
SIGNATURE = "dev.cosignproject.cosign/signature"
TYPE = "cosign container image signature"
MOST = 4 << 20
"""Bytes of a manifest or payload."""
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_BESIDE = re.compile(r"sha256-[0-9a-f]{64}\.(att|sbom)")
Key = ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey | rsa.RSAPublicKey


def read_key(path: Path) -> Key:
    """A public key: ECDSA, Ed25519 or RSA, in PEM. Raises InputError."""
    try:
        key = load_pem_public_key(path.read_bytes())
    except OSError as error:
        raise InputError(f"cannot read the cosign key {path}: {error.strerror}") from None
    except ValueError:
        raise InputError(
            f"cannot use the cosign key {path}: it is no public key in PEM",
            hint="cosign.pub, not cosign.key",
        ) from None
    except UnsupportedAlgorithm as error:
        raise InputError(f"cannot use the cosign key {path}: {error}") from None
    if not isinstance(key, Key):
        raise InputError(
            f"cannot use the cosign key {path}: it is neither ECDSA, nor Ed25519, nor RSA"
        )
    return key


def proves(key: Key, payload: bytes, signature: bytes) -> bool:
    """Whether a key proves a signature."""
    try:
        if isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(signature, payload)
        elif isinstance(key, rsa.RSAPublicKey):
            key.verify(signature, payload, padding.PKCS1v15(), SHA256())
        else:
            key.verify(signature, payload, ec.ECDSA(SHA256()))
    except InvalidSignature:
        return False
    return True


class _Layout:
    """Reads a layout, and believes nothing of it but what its digest says."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.index = self._json(self._bytes(directory / "index.json"))

    def _bytes(self, path: Path) -> bytes:
        try:
            if not path.is_file() or path.stat().st_size > MOST:
                raise Refused(
                    f"cannot check the signature: {path.name[:80]} in the layout is missing, no "
                    "file, or too large"
                )
            return path.read_bytes()
        except OSError as error:
            raise Refused(
                f"cannot check the signature: {path.name[:80]}: {error.strerror}"
            ) from None

    def _json(self, data: bytes) -> dict[str, Any]:
        try:
            value = parse_json(data)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise Refused("cannot check the signature: a manifest in the layout is no JSON object")
        return value

    def blob(self, descriptor: Mapping[str, Any]) -> bytes:
        """The content of a descriptor. Raises Refused."""
        digest = str(descriptor.get("digest"))
        if not _DIGEST.fullmatch(digest):
            raise Refused(f"cannot check the signature: {digest[:80]!r} is no sha256 digest")
        data = self._bytes(self._directory / "blobs/sha256" / digest.removeprefix("sha256:"))
        if hashlib.sha256(data).hexdigest() != digest.removeprefix("sha256:"):
            raise Refused(
                f"cannot check the signature: the content of {digest[:24]} is not what its digest "
                "says"
            )
        return data

    def manifest(self, descriptor: Mapping[str, Any]) -> dict[str, Any]:
        """The same, as JSON."""
        return self._json(self.blob(descriptor))


def _mappings(data: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    items = data.get(key)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _annotations(descriptor: Mapping[str, Any]) -> dict[str, Any]:
    annotations = descriptor.get("annotations")
    return annotations if isinstance(annotations, dict) else {}


def verify(directory: Path, key: Key) -> tuple[dict[str, Any], frozenset[str]]:
    """(the descriptor of the one image in a layout, the digests of its manifests), if the key has
    signed it. Raises Refused."""
    layout = _Layout(directory)
    images: dict[str, dict[str, Any]] = {}
    proofs: list[dict[str, Any]] = []
    for descriptor in _mappings(layout.index, "manifests"):
        annotations = _annotations(descriptor)
        if _BESIDE.fullmatch(str(annotations.get("org.opencontainers.image.ref.name"))) or str(
            annotations.get("kind")
        ).endswith("/atts"):
            continue
        payloads = [
            layer
            for layer in _mappings(layout.manifest(descriptor), "layers")
            if layer.get("mediaType") == PAYLOAD
        ]
        proofs += payloads
        if not payloads:
            images[str(descriptor["digest"])] = descriptor
    if len(images) != 1:
        raise Refused(
            f"cannot check the signature: the layout holds {count_of(len(images), 'image')}",
            hint="copy the one that you want",
        )
    ((digest, image),) = images.items()
    _check(layout, key, digest, proofs)
    inner = _mappings(layout.manifest(image), "manifests")
    return image, frozenset(str(m.get("digest")) for m in inner) if inner else frozenset({digest})


def _check(layout: _Layout, key: Key, digest: str, proofs: list[dict[str, Any]]) -> None:
    """Raises Refused unless one of the signatures is by the key, and of this image."""
    others = []
    for layer in proofs:
        payload = layout.blob(layer)
        try:
            signature = base64.b64decode(str(_annotations(layer).get(SIGNATURE)), validate=True)
        except ValueError:
            continue
        if not proves(key, payload, signature):
            continue
        try:
            critical = parse_json(payload)["critical"]
            claims = (critical["type"], critical["image"]["docker-manifest-digest"])
        except (ValueError, KeyError, TypeError):
            claims = ("", "something else")
        if claims == (TYPE, digest):
            return
        others.append(str(claims[1])[:80])
    if others:
        raise Refused(
            f"cannot use the image: the key has signed {others[0]!r}, and this is {digest}"
        )
    raise Refused(
        f"cannot use the image {digest}: "
        + (
            f"none of its {len(proofs)} signatures is by this key"
            if proofs
            else "there is no cosign signature beside it"
        ),
        hint="`cosign save IMAGE --dir DIRECTORY` takes the signatures along",
    )


def signed_layout(
    source: Path, scratch: Path, key: Path, environment: dict[str, str]
) -> tuple[Path, frozenset[str]]:
    """A layout in `scratch` with nothing but the image of an OCI layout or archive, if the key has
    signed it, and the digests of its manifests. Raises InputError, Refused."""
    public_key = read_key(key)
    source = source.absolute()
    only = scratch / "signed"
    only.mkdir()
    if source.is_dir():
        (only / "blobs").symlink_to(source / "blobs")
    else:
        archive = scratch / "archive"
        archive.mkdir()
        run(
            ["tar", "-xf", str(source), "-C", str(archive), "--no-same-owner"],
            f"unpack {source}",
            "tar",
            environment,
        )
        (only / "blobs").symlink_to(archive / "blobs")
        source = archive
    image, digests = verify(source, public_key)
    (only / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    (only / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [image]}))
    return only, digests


def check_copy(layout: Path, digests: frozenset[str]) -> None:
    """Raises Refused if the one image in a layout is not one of those that were signed: the source
    may have changed since."""
    copied = _Layout(layout)
    for descriptor in _mappings(copied.index, "manifests"):
        copied.blob(descriptor)
        if descriptor["digest"] not in digests:
            raise Refused(
                f"cannot use the image: {descriptor['digest']} came out of the layout, which is "
                "not what was signed"
            )
