"""The settings of who gets logs."""

from __future__ import annotations

import re
from typing import Annotated, Literal
from urllib.parse import SplitResult, urlsplit

import msgspec
from msgspec import Meta

from layercake.base.text import describe
from layercake.moduleapi.fields import Check, Mistake, not_in_the_open, secret_name, text

OF_LOGS = "logs"
"""The secrets of collectors are below this in the directory of secrets."""
_PORTS = {"udp": 514, "tcp": 514, "tls": 6514}
_SUCH = "udp://HOST, tcp://HOST, tls://HOST for syslog, or https://HOST:4318/v1/logs for OTLP"


def to(value: object) -> str:
    """Where logs go. Encrypted, or to this machine, or by syslog in the clear because the site has
    said so by `udp` or `tcp`."""
    word = text(value)
    try:
        found = urlsplit(word)
        name = found.hostname or ""
        port = found.port
    except ValueError:
        raise Mistake("the address cannot be read", _SUCH) from None
    if not name or found.scheme not in (*_PORTS, "https", "http"):
        raise Mistake(f"expected {_SUCH}, found {describe(value)}")
    if (
        found.username is not None
        or found.password is not None
        or re.search(r"[\s\x00-\x1f\x7f]", word)
        or port == 0
    ):
        raise Mistake(
            "an address has no user, password or blanks", "`authorization` names a secret"
        )
    if found.scheme in _PORTS and (found.path or found.query):
        raise Mistake("an address of syslog has no path", _SUCH)
    not_in_the_open(found.scheme, name)
    return word


def port_of(address: SplitResult) -> int:
    """The port of a syslog server."""
    return address.port or _PORTS[address.scheme]


class LogSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One collector of logs."""

    to: Annotated[
        str,
        Check(to),
        Meta(
            description="Where they go: `udp://HOST[:514]`, `tcp://HOST[:514]` or "
            "`tls://HOST[:6514]` for syslog (RFC 5424), "
            "`https://...` for OTLP by HTTP; http:// on this machine only."
        ),
    ]
    level: Annotated[
        Literal["info", "warning", "error", "none"],
        Meta(description="What of the head's own log is at least so grave."),
    ] = "info"
    containers: Annotated[
        str,
        Meta(
            description="The range of nodes whose containers' logs go there too, such as "
            "`@compute`; empty for none. Of each container or console 200 lines a second are "
            "sent, 4,000 at once; what is more is left out, and counted."
        ),
    ] = ""
    consoles: Annotated[
        str,
        Meta(
            description="The range of nodes whose consoles' lines go there too; empty for none. "
            "What is typed there is in them."
        ),
    ] = ""
    audit: Annotated[
        bool,
        Meta(
            description="Whether audit records go there too: one JSON object when a change is "
            "asked for, and one with the same `id` when its outcome is known."
        ),
    ] = False
    ca: Annotated[
        str,
        Meta(description="A file with the authority of its certificate; empty for the system's."),
    ] = ""
    authorization: Annotated[
        str,
        Check(secret_name(OF_LOGS)),
        Meta(
            description="For OTLP: the secret that holds the header Authorization, such as `Bearer "
            "...`: a file in `logs/` in the "
            "directory of secrets."
        ),
    ] = ""
