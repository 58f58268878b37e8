"""The settings of what is done on many nodes at once."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class FanOutSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`node exec`, `node logs` and `node copy` of a range of nodes."""

    at_once: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            description="So many nodes are asked at the same time. One that was overtaken by as "
            "many no longer counts, so that hung and dead nodes hold up no others; with "
            "--fan-out each counts until it is done.",
        ),
    ] = 256
    output_kb: Annotated[
        int,
        Meta(
            ge=1,
            le=1024,
            description="So much of what a command writes on a node is kept, in kB; the rest is "
            "dropped, and counted.",
        ),
    ] = 256
