"""The head's own keys of a node in the inventory: how careful to be with it."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from layercake.base.text import describe
from layercake.inventory.schema import Node
from layercake.moduleapi.fields import Check, Mistake
from layercake.moduleapi.module import NodePart

_MOST = 100


def priority(value: object) -> int:
    """How early a node boots."""
    if isinstance(value, bool) or not isinstance(value, int) or not -_MOST <= value <= _MOST:
        raise Mistake(f"expected a whole number from -{_MOST} to {_MOST}, found {describe(value)}")
    return value


class Wishes(NodePart, frozen=True, kw_only=True):
    """What may be done to a node without asking."""

    remedy: Annotated[Literal["auto", "hold", "never"], Meta(
        description="Whether a node that has fallen silent is started anew: by itself, when a person says so, never.")] = "auto"
    adopt: Annotated[Literal["ask", "reset"], Meta(
        description="What happens to a machine that is found running: it is left alone, or started anew.")] = "ask"
    priority: Annotated[int, Check(priority), Meta(
        description="Of nodes that wait for others' boots, those with more go first; -100 to 100.")] = 0


def wishes(node: Node) -> Wishes:
    """What the inventory says of how careful to be with a node."""
    found = node.parts.get("head")
    return found if isinstance(found, Wishes) else Wishes()
