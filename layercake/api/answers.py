"""What many routes answer. Programs shall expect more fields in later versions of all answers."""

from __future__ import annotations

import msgspec


class Nothing(msgspec.Struct):
    """It is done; there is nothing to say."""


Values = dict[str, str]
"""{variable: value}"""


class Names(msgspec.Struct):
    """The nodes that it was done to."""

    nodes: list[str]
