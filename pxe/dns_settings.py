"""The settings of DNS: `boot.dns` in config.yaml."""

from __future__ import annotations

import ipaddress
from typing import Annotated

import msgspec
from msgspec import Meta

from layercake.base.text import describe, show
from layercake.moduleapi.fields import Check, Mistake, text
from layercake.moduleapi.network import addresses, domain

MAX_SUBNETS = 64
HEAD = "layercake"
"""The head's name in each domain."""


def forward(value: object) -> tuple[str, ...] | None:
    """Servers to ask, or null."""
    return None if value is None else addresses(value)


def subnets(value: object) -> tuple[str, ...]:
    """IPv4 subnets, perhaps none."""
    if not isinstance(value, list) or len(value) > MAX_SUBNETS:
        raise Mistake(
            f"expected a list of at most {MAX_SUBNETS} IPv4 subnets, found {describe(value)}",
            "such as [10.9.0.0/16]",
        )
    networks = []
    for plain in map(text, value):
        try:
            networks.append(str(ipaddress.IPv4Network(plain)))
        except ValueError:
            raise Mistake(
                f"{show(plain)} is not an IPv4 subnet",
                "write the first address and the length of the prefix",
            ) from None
    return tuple(networks)


class DnsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """DNS of the head."""

    serve: Annotated[
        bool,
        Meta(
            description="Whether the head answers DNS, by UDP and TCP, on its own address; nodes "
            "whose network has no `dns` are told "
            "it then."
        ),
    ] = False
    port: Annotated[int, Meta(ge=1, le=65535, description="UDP and TCP port; nodes ask 53.")] = 53
    domain: Annotated[
        str,
        Check(domain),
        Meta(description="The domain of nodes whose network has none of its own."),
    ] = "cluster.internal"
    forward: Annotated[
        tuple[str, ...] | None,
        Check(forward),
        Meta(
            description="The servers that are asked for all other names; `dns` if null, none with "
            "[]."
        ),
    ] = None
    allow: Annotated[
        tuple[str, ...],
        Check(subnets),
        Meta(
            description="Subnets that may ask, besides those that nodes are in. Everybody else is "
            "refused."
        ),
    ] = ()
    ttl_s: Annotated[
        int,
        Meta(ge=0, le=86400, description="Seconds that others may keep an answer about the site."),
    ] = 30
    rate: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="How often a second a client gets the same answer by UDP; every other one "
            "beyond that is "
            "told to ask by TCP, the rest gets nothing. 0: without limit.",
        ),
    ] = 100
