"""The settings of who is let in over the network, and of the record of changes."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from layercake.base.text import clean, show
from layercake.features.access.tokens import NAME
from layercake.moduleapi.fields import Check, Mistake, text

_LONGEST_SITE = 80


def token_name(value: object) -> str:
    """The name of a token, or nothing."""
    word = text(value)
    if word and not NAME.fullmatch(word):
        raise Mistake(
            f"{show(word)} is no name of a token",
            "lower case letters, digits and . _ -, at most 63",
        )
    return word


def site_name(value: object) -> str:
    """The name of a site: one line of at most 80 characters, or nothing."""
    word = text(value)
    if len(word) > _LONGEST_SITE or word != clean(word) or not word.isprintable():
        raise Mistake(f"{show(word)} is no name of a site", "one line of at most 80 characters")
    return word


class AccessSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who is let in over the network."""

    client_certificates: Annotated[
        bool,
        Meta(
            description="Whether everybody on the network, people of the identity provider and "
            "their browsers too, needs a client certificate of this head's beside the token or "
            "the session."
        ),
    ] = False
    emergency_token: Annotated[
        str,
        Check(token_name),
        Meta(
            description="The name of the only token of Layercake's own that lets somebody in; all "
            "others are switched off. Empty: all tokens let in."
        ),
    ] = ""


class AuditSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The audit log: who changed what."""

    days: Annotated[int, Meta(ge=1, le=36500, description="How long a record is kept.")] = 400
    site: Annotated[
        str,
        Check(site_name),
        Meta(
            description="The name of this site, in each record: for who collects the records of "
            "several sites."
        ),
    ] = ""
