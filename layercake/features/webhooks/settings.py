"""The settings of webhooks."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from layercake.base.text import describe, show
from layercake.features.webhooks.formats import Format
from layercake.moduleapi.fields import NEWER, Check, Mistake, not_in_the_open, secret_name, text

OF_WEBHOOKS = "webhooks"
"""The secrets of webhooks are below this in the directory of secrets."""
OF_MAIL = "mail"
"""And those of mail servers."""
_ADDRESS = re.compile(
    r"[A-Za-z0-9!#$%&'*+/=?^_{|}~.-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,180}[A-Za-z0-9])?"
)
MOST_KINDS = 100
MOST_RECIPIENTS = 50


def url(value: object) -> str:
    """Where a webhook is told: https, or http on this machine; without user and password."""
    word = text(value)
    if not word:
        return word
    try:
        found = urlsplit(word)
        name = found.hostname or ""
        found.port  # noqa: B018 (raises for one that there is not)
    except ValueError:
        raise Mistake("the URL cannot be read", "https://HOST/PATH") from None
    if (
        found.username is not None
        or found.password is not None
        or re.search(r"[\s\x00-\x1f\x7f]", word)
    ):
        raise Mistake(
            "a URL has no user, password or blanks",
            "`secret` signs what is told; `url_secret` hides the URL",
        )
    if found.scheme not in ("https", "http") or not name:
        raise Mistake(f"expected a URL, https://HOST/PATH, found {describe(value)}")
    not_in_the_open(found.scheme, name)
    return word


def is_here(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def server(value: object) -> str:
    """A mail server: smtp://, which has to offer STARTTLS unless it is on this machine, or
    smtps://, which is TLS from the start."""
    word = text(value)
    if not word:
        return word
    such = "smtp://HOST:587, smtps://HOST:465, or smtp://localhost"
    try:
        found = urlsplit(word)
        port = found.port
    except ValueError:
        raise Mistake("the address of the mail server cannot be read", such) from None
    if (
        found.scheme not in ("smtp", "smtps")
        or not found.hostname
        or port == 0
        or re.search(r"[\s\x00-\x1f\x7f]", word)
        or found.path.strip("/")
        or found.query
        or found.username is not None
        or found.password is not None
    ):
        raise Mistake(
            f"expected the address of a mail server, found {describe(value)}",
            f"{such}; `username` and `password` stand beside it",
        )
    return word


def address(value: object) -> str:
    """A mail address, without a name."""
    word = text(value)
    if word and (not _ADDRESS.fullmatch(word) or ".." in word):
        raise Mistake(f"{show(word)} is no mail address", "such as head@example.org")
    return word


def addresses(value: object) -> list[str]:
    """Mail addresses."""
    if not isinstance(value, list) or len(value) > MOST_RECIPIENTS:
        raise Mistake(
            f"expected a list of at most {MOST_RECIPIENTS} mail addresses, found {describe(value)}",
            "such as [admins@example.org]",
        )
    return [address(word) for word in value]


def kinds(value: object) -> list[str]:
    """What kinds of events begin with."""
    if (
        not isinstance(value, list)
        or len(value) > MOST_KINDS
        or not all(isinstance(word, str) and word for word in value)
    ):
        raise Mistake(
            f"expected a list of kinds of events, found {describe(value)}",
            "such as [outage, node.boot-slow]",
        )
    return [str(word) for word in value]


class ReceiverSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What each receiver has: which events it is told, and whom it trusts."""

    ca: Annotated[
        str,
        Meta(description="A file with the authority of its certificate; empty for the system's."),
    ] = ""
    kinds: Annotated[
        list[str],
        Check(kinds),
        Meta(description="Events whose kinds begin with one of these; all if empty."),
    ] = []
    severity: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="Events that are at least so grave."),
    ] = "warning"


class WebhookSettings(ReceiverSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One webhook."""

    url: Annotated[
        str,
        Check(url),
        Meta(description="Where it is told, https://...; http:// on this machine only."),
    ] = ""
    url_secret: Annotated[
        str,
        Check(secret_name(OF_WEBHOOKS)),
        Meta(
            description="Instead of url, where whoever knows it may tell: the secret that holds "
            "it, a file in `webhooks/` in the "
            "directory of secrets."
        ),
    ] = ""
    secret: Annotated[
        str,
        Check(secret_name(OF_WEBHOOKS)),
        Meta(
            description="The secret that signs what is told (HMAC-SHA256): a file in `webhooks/` "
            "in the directory of secrets. PagerDuty's routing key."
        ),
    ] = ""
    format: Annotated[
        Format,
        Meta(
            extra=NEWER,
            description="How it is told: `layercake` has each event as the API shows it; the "
            "others have alerts, of many nodes in one, and nothing of nodes in maintenance or in "
            "an outage.",
        ),
    ] = "layercake"


class MailSettings(ReceiverSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One list of people who get mail."""

    server: Annotated[
        str,
        Check(server),
        Meta(
            description="The mail server: `smtp://HOST[:587]` by STARTTLS, `smtps://HOST[:465]` by "
            "TLS from the start, `smtp://localhost[:25]` on this machine, without either."
        ),
    ]
    sender: Annotated[str, Check(address), Meta(description="The address that it comes from.")]
    to: Annotated[list[str], Check(addresses), Meta(description="Who gets it.")]
    username: Annotated[str, Meta(description="The user at the mail server; empty for none.")] = ""
    password: Annotated[
        str,
        Check(secret_name(OF_MAIL)),
        Meta(
            description="The secret that holds the user's password: a file in `mail/` in the "
            "directory of secrets."
        ),
    ] = ""
