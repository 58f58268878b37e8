"""The settings of what is to be replaced after a time: certificates, the authority, passwords."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from layercake.agents.pki import DAYS


class CertificateSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The certificates that the head makes: of nodes, of tokens and people, and its own."""

    days: Annotated[
        int,
        Meta(
            ge=1,
            le=365,
            description="How long one is good. Those of nodes and of the head are renewed after "
            "two thirds of it.",
        ),
    ] = DAYS


class RotationSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """After how many days the head asks for a replacement: `rotation.due`, once a day until it is
    done."""

    authority_days: Annotated[
        int,
        Meta(
            ge=0, le=36500, description="The head's authority (`layercake authority`); 0 for never."
        ),
    ] = 0
    bmc_passwords_days: Annotated[
        int,
        Meta(
            ge=0,
            le=36500,
            description="A BMC's password, by the date of its file; 0 for never. Of one in the "
            "environment nobody knows how old it is.",
        ),
    ] = 0
