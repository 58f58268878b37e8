"""What many routes are asked, and answer. Programs shall expect more fields in later
versions of all answers."""

from __future__ import annotations

import msgspec


class NodesRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The nodes that it is to be done to, and who asks."""

    range: str
    by: str = ""


class Nothing(msgspec.Struct):
    """It is done; there is nothing to say."""


Values = dict[str, str]
"""{variable: value}"""


class Names(msgspec.Struct):
    """The nodes that it was done to."""

    nodes: list[str]
