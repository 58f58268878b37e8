"""The guard's settings: what is an outage, and how much happens at once."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from layercake.moduleapi.fields import NEWER

_Count = Annotated[int, Meta(ge=1)]


class GuardSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What keeps the head from harming a site. Domains are groups of the inventory with `domain:
    true`."""

    outage_nodes: Annotated[
        int,
        Meta(
            ge=1,
            description="More nodes than this that fall silent together are an outage, "
            "if they are also more than `outage_share`.",
        ),
    ] = 3
    outage_share: Annotated[
        float, Meta(ge=0, le=1, description="That share of a domain, or of the site.")
    ] = 0.1
    outage_window_s: Annotated[
        float, Meta(gt=0, description="Nodes that fall silent within these seconds do it together.")
    ] = 90.0
    outage_settle_s: Annotated[
        float,
        Meta(
            gt=0,
            description="An outage of which some nodes have come back is over when no other "
            "one does for so many seconds.",
        ),
    ] = 120.0
    remedies: Annotated[
        _Count, Meta(description="Silent nodes of a domain that are treated at once.")
    ] = 2
    site_remedies: Annotated[
        _Count, Meta(description="Silent nodes of the site that are treated at once.")
    ] = 8
    boots: Annotated[_Count, Meta(description="Nodes of a domain that boot at once.")] = 32
    site_boots: Annotated[_Count, Meta(description="Nodes of the site that boot at once.")] = 128
    power_ons: Annotated[
        _Count, Meta(description="Nodes of a domain that are switched on within `inrush_s`.")
    ] = 16
    site_power_ons: Annotated[
        int,
        Meta(
            ge=1,
            extra=NEWER,
            description="Nodes of the site that are switched on within `inrush_s`.",
        ),
    ] = 128
    network_boots: Annotated[
        int,
        Meta(
            ge=1,
            extra=NEWER,
            description="Nodes of a network that boot at once: what its links bear.",
        ),
    ] = 128
    inrush_s: Annotated[
        float,
        Meta(gt=0, description="Seconds for `power_ons`: what a power supply needs to settle."),
    ] = 2.0
    busy: Annotated[
        Literal["hold", "auto"],
        Meta(description="Whether a silent node whose last word was BUSY waits for a person."),
    ] = "hold"
    patience_s: Annotated[
        float,
        Meta(gt=0, description="How long a silent node that still answers ARP is waited for."),
    ] = 300.0
