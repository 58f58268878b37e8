"""What a head knows of the others: in its settings, and the files beside them."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Annotated

import msgspec
from cryptography import x509
from msgspec import Meta

from layercake.base.files import read_json
from layercake.heads import member
from layercake.heads.log import Seal
from layercake.kraken.errors import InputError

DIRECTORY = "heads"
"""Below the data directory: the key that the heads share, and the certificates for their store."""
KEY = "site.key"
KEY_BYTES = 32
ENDPOINTS = "heads/endpoints.json"
"""Where the members of the store were seen last, of a site that runs its own."""


class HeadsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Several heads of one site (section `heads`)."""

    name: Annotated[
        str,
        Meta(
            description="This head's name among the heads of its site; empty: it is the only one.",
            pattern=r"^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)?$",
        ),
    ] = ""
    store: Annotated[
        list[str],
        Meta(
            description="Where the members of etcd are that the heads share: `https://HOST:PORT`, "
            "all of them."
        ),
    ] = []
    prefix: Annotated[
        str, Meta(description="What the keys of this site begin with in that etcd.")
    ] = "/layercake/"


def read_seal(data_dir: Path) -> Seal:
    """The seal of the site's heads. Raises InputError."""
    path = data_dir / DIRECTORY / KEY
    try:
        key = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"cannot read the key of the heads, {path}: {error.strerror}",
            hint="`layercake heads invite NAME` on the head that leads says how to join",
        ) from None
    if len(key) != KEY_BYTES:
        raise InputError(f"cannot use {path}: it does not have {KEY_BYTES} bytes")
    return Seal(key)


def store_tls(data_dir: Path, endpoints: list[str]) -> ssl.SSLContext | None:
    """How etcd is asked: with our certificate, and by its authority. None for one that is asked
    without TLS, which is possible on loopback only. Raises InputError."""
    plain = [e for e in endpoints if not e.startswith("https://")]
    if plain and not all(e.startswith(("http://127.", "http://[::1]")) for e in plain):
        raise InputError(
            f"cannot use {plain[0]} as the heads' store: it is asked without TLS",
            hint="https:// everywhere but on loopback",
        )
    if plain:
        return None
    where = data_dir / DIRECTORY
    try:
        context = ssl.create_default_context(cafile=str(where / "store-ca.pem"))
        context.load_cert_chain(where / "store.pem", where / "store.key")
    except (OSError, ssl.SSLError) as error:
        raise InputError(
            f"cannot use the certificates for the heads' store in {where}: {error}"
        ) from None
    return context


def store_endpoints(data_dir: Path, settings: HeadsSettings) -> list[str]:
    """Where the members of the store are: those of the settings, and those that this head has seen
    besides, of a site that runs its own."""
    own = (data_dir / member.FILE).exists()
    try:
        found = (read_json(data_dir / ENDPOINTS) if own else None) or ()
        return [*settings.store, *(str(url) for url in found if url not in settings.store)]
    except (OSError, ValueError):
        return list(settings.store)


def store_certificate_ends(data_dir: Path) -> float:
    """When the certificate by which this head asks its store ends, or the authority of the store
    does, whichever is first (seconds since the epoch); 0.0 if there is none that can be read."""
    ends = []
    for name in ("store.pem", "store-ca.pem"):
        try:
            found = x509.load_pem_x509_certificates((data_dir / DIRECTORY / name).read_bytes())
        except (OSError, ValueError):
            continue
        ends += [one.not_valid_after_utc.timestamp() for one in found]
    return min(ends, default=0.0)
