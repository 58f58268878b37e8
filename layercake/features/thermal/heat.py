"""What others are told of nodes that are too warm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Heat:
    """Nodes that are to be drained because they are too warm, {name: id}, and those of which nobody
    has said yet whether they are."""

    warm: Mapping[str, str] = field(default_factory=dict)
    unsure: frozenset[str] = frozenset()


COOL = Heat()
"""Nobody is too warm."""
