"""What a simulation says when its fleet is up: how to talk to its head, which nodes have faults,
and, last, the link that signs a browser in."""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Collection
from pathlib import Path

from layercake.base.text import count_of
from layercake.inventory import ranges
from layercake.sim.api import Api
from layercake.sim.fleet.fleet import wrong
from layercake.sim.fleet.machine import Machine


def begin(address: str, machines: Collection[Machine], command: str) -> list[str]:
    """What there is: a head at an address, how to talk to it by `command`, and which nodes have
    which fault."""
    return [
        f"a head at {address} with {count_of(len(machines), 'simulated node')}; talk to it, in "
        "another terminal:",
        f"  {command} status",
        "Ctrl-C ends it.",
        *(f"{what}: {ranges.fold(names)}" for what, names in wrong(machines).items() if names),
    ]


def fingerprint(certificate: Path) -> str:
    """The SHA-256 fingerprint of a certificate, as browsers show it. Raises OSError."""
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate.read_text())).hexdigest().upper()
    return ":".join(digest[at : at + 2] for at in range(0, len(digest), 2))


def link(api: Api, certificate: Path, command: str) -> list[str]:
    """How to open the dashboard; the last line is a link that signs in once. `command` is the
    command line that talks to the head. Raises OSError, OperationFailed."""
    ticket = api.request("POST", "/v1/session/ticket", {"exec": True})
    return [
        "",
        "The browser warns of the certificate, which this simulation has made for itself. Its "
        "SHA-256 fingerprint:",
        f"  {fingerprint(certificate)}",
        f"Another link, when this one was used or is over:  {command} dashboard",
        f"The dashboard, good once and for {ticket['seconds'] / 60:.0f} minutes:",
        ticket["url"],
    ]
