"""What a machine that becomes a head or a witness says, and what it gets."""

from __future__ import annotations

import ipaddress
import re

import msgspec

from layercake.kraken.errors import InputError

JOIN = "/head/v1/join"
AUTHORITY = "/head/v1/authority"
MOST_BYTES = 64 << 10
MOST_ADDRESSES = 64
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


class JoinRequest(msgspec.Struct, frozen=True):
    """A machine wants to be a head, or a witness: with the token of its invitation, its addresses,
    that first at which others reach its member of the store, and the ports of that."""

    token: str
    addresses: list[str]
    version: str
    client_port: int
    peer_port: int
    witness: bool = False


class JoinAnswer(msgspec.Struct, frozen=True):
    """What it needs: its name; where the members of the store are, what the site's keys begin with
    there, and the files, by name, that it asks with; the URLs of its own member, and those by which
    the members reach each other, "" and none where it is to have no member. A witness gets nothing
    else. `site_key` in base64; `site` are the settings of the site in YAML, `authorities` and
    `server` what it serves by in PEM."""

    name: str
    prefix: str
    store: list[str]
    files: dict[str, str]
    client_url: str = ""
    peer_url: str = ""
    peers: dict[str, str] = {}
    site_key: str = ""
    site: str = ""
    authorities: str = ""
    server: dict[str, str] = {}


def check_name(name: str) -> str:
    """A name of a head. Raises InputError."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"cannot call a head {name[:80]!r}: a name is lower case letters, digits and -, at "
            "most 63"
        )
    return name


def check_request(request: JoinRequest) -> None:
    """Raises InputError for what another machine says that cannot be so."""
    if not 1 <= len(request.addresses) <= MOST_ADDRESSES:
        raise InputError("cannot join: a head has at least one address")
    for address in request.addresses:
        try:
            ipaddress.ip_address(address)
        except ValueError:
            raise InputError(f"cannot join: {address[:80]!r} is no address") from None
    if not all(0 < port < 65536 for port in (request.client_port, request.peer_port)):
        raise InputError("cannot join: there is no such port")


def url_of(address: str, port: int) -> str:
    """Where a member of the store is."""
    host = f"[{address}]" if ":" in address else address
    return f"https://{host}:{port}"
