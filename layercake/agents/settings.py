"""The settings of state sync."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class SyncSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """State sync. A node is lost when nothing came from it for `dead_s`, which is above
    `hello_s`."""

    port: Annotated[int, Meta(ge=0, le=65535, description="UDP port that the nodes speak to.")] = (
        31415
    )
    hello_s: Annotated[float, Meta(gt=0, description="Seconds between two HELLOs of a node.")] = 5.0
    dead_s: Annotated[
        float,
        Meta(
            gt=0,
            description="Seconds of silence after which a node is lost; three times hello_s is "
            "usual.",
        ),
    ] = 15.0
    probe_s: Annotated[
        float,
        Meta(
            gt=0, description="Seconds that a node has to answer when something speaks against it."
        ),
    ] = 3.0
