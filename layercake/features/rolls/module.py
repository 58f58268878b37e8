"""How rolls go when nobody says it: a section of config.yaml for the site, and keys of the
inventory for nodes and groups.

A module of its own, without variables and without a process: its keys and settings are read,
checked and documented like those of any other.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from layercake.base.text import describe
from layercake.features.rolls.facts import OnFailure, parse_amount
from layercake.kraken.errors import InputError
from layercake.moduleapi.fields import NEWER, Check, Mistake, number, one_of
from layercake.moduleapi.module import Module, NodePart, Part

HEALTH_MAX_S = 24 * 3600.0
CANARY_MAX = 65536


_CANARY = number(0, CANARY_MAX, "a number of nodes", "1 is usual, 0 is none")
_HEALTH = number(0, HEALTH_MAX_S, "seconds", "5 is the default", kind=float)


def amount(value: object) -> str:
    """A number of nodes or a share of them, as text."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise Mistake(
            f"expected a number of nodes or a percentage, found {describe(value)}",
            'for example 5 or "10%"',
        )
    try:
        return str(parse_amount("it", str(value)))
    except InputError as error:
        raise Mistake("expected a number of nodes or a percentage", error.hint) from None


class RollPart(NodePart, frozen=True, kw_only=True):
    """How a change of a node's images goes. What is not said is as config.yaml has it."""

    KEY: ClassVar[str] = "roll"

    canary: Annotated[
        int | None,
        Check(_CANARY),
        Meta(description="So many nodes go first, as a batch of their own; 0 for none."),
    ] = None
    batch: Annotated[
        str | None,
        Check(amount),
        Meta(
            description="So many nodes, or this share of the roll's, go together and pass a gate "
            "together."
        ),
    ] = None
    max_unavailable: Annotated[
        str | None, Check(amount), Meta(description="No more of them switch at a time.")
    ] = None
    health_s: Annotated[
        float | None,
        Check(_HEALTH),
        Meta(
            description="Seconds that a node must be well after its switch; its health checks have "
            "to pass in any case."
        ),
    ] = None
    on_failure: Annotated[
        OnFailure | None,
        Check(one_of("rollback", "pause")),
        Meta(
            description="When a node fails: its batch goes back (rollback), or the roll is paused."
        ),
    ] = None


class RollSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a change of images goes unless the inventory or the command says otherwise."""

    at_once: Annotated[
        int,
        Meta(
            ge=0, description="A change that touches more running nodes than these goes in batches."
        ),
    ] = 10
    canary: Annotated[
        int, Check(_CANARY), Meta(description="So many nodes go first; 0 for none.")
    ] = 1
    batch: Annotated[
        str,
        Check(amount),
        Meta(description="So many nodes, or this share of the roll's, go together."),
    ] = "10%"
    max_unavailable: Annotated[
        str,
        Check(lambda value: amount(value) if value != "" else ""),
        Meta(description="No more of them switch at a time; empty for no limit but the batch's."),
    ] = ""
    health_s: Annotated[
        float,
        Check(_HEALTH),
        Meta(description="Seconds that a node must be well after its switch."),
    ] = 5.0
    on_failure: Annotated[
        OnFailure,
        Check(one_of("rollback", "pause")),
        Meta(
            description="When a node fails: its batch goes back (rollback), or the roll is paused."
        ),
    ] = "rollback"
    staging_mbit_s: Annotated[
        int,
        Meta(
            ge=0,
            description="The most million bits a second by which a node fetches an image "
            "beforehand, while it computes; 0 for as fast as it goes. One that would take longer "
            "than ten minutes is fetched as fast as that needs.",
            extra=NEWER,
        ),
    ] = 0


def view(part: RollPart | None) -> dict[str, Any]:
    """What people see of it with the node: what the inventory says."""
    return (
        {"roll": {k: v for k, v in msgspec.structs.asdict(part).items() if v is not None}}
        if part is not None
        else {}
    )


MODULE = Module(
    name="rolls",
    doc="How a change of images goes that nobody said more of.",
    section="rolls",
    settings=RollSettings,
    part=Part(RollPart, view=view),
)
