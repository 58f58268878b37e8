"""What the guard knows of one node, and what people have said about it. Kept with the node's
record. Frozen facts, no behaviour."""

from __future__ import annotations

import enum
from typing import Literal

import msgspec
from msgspec.structs import replace

PAST_KEPT = 20
"""How many past maintenances of a node are kept."""


class Stop(msgspec.Struct, frozen=True):
    """A person's word that a node is to be left alone. Times are seconds since the epoch; `until`
    None is until somebody ends it.

    `ended` is when it was ended, and `ended_by` by whom: only of one that is over.
    """

    reason: str
    by: str
    since: float
    until: float | None = None
    ended: float | None = None
    ended_by: str = ""


class Order(msgspec.Struct, frozen=True):
    """What a person ordered of a node's power, carried out by the engine. A cycle is done when the
    node was seen off; forced, it does not wait for images or for work that must not be interrupted.
    `soft`: the system inside shuts down by itself, or the node stays on; such an order stands until
    it is done, or a person says something else."""

    what: Literal["cycle", "off"]
    force: bool
    by: str
    at: float
    soft: bool = False


class GuardState(msgspec.Struct, frozen=True):
    """What is to be minded of a node.

    `ours`: the head has started it, it has joined, or a person said so; what runs on another is not
    ours to end. `up`: it has been in sync since it was last meant to go down, so that starting it
    again is a remedy. `busy`: its last word was that it must not be interrupted. `released`: a
    person said that it shall be started, until it is up. `wished`: since when it waits for its turn
    to be started, in seconds since the epoch, 0.0 if it does not; it keeps its turn over a restart
    of the head.
    """

    ours: bool = False
    up: bool = False
    busy: bool = False
    released: bool = False
    freeze: Stop | None = None
    maintenance: Stop | None = None
    past: tuple[Stop, ...] = ()
    order: Order | None = None
    wished: float = 0.0


def ended(care: GuardState, by: str, now: float) -> GuardState:
    """The care once its maintenance is over: that goes to its past."""
    if care.maintenance is None:
        return care
    over = replace(care.maintenance, ended=now, ended_by=by)
    return replace(care, maintenance=None, past=(*care.past, over)[-PAST_KEPT:])


def maintenance_over(text: str, name: str, state: str) -> str:
    """What is told of the end of a node's maintenance: who has switched it off has to switch it on
    again, as a person may still have a hand in it."""
    if state != "off":
        return text
    return f"{text}; it is wanted off (hint: `layercake power on {name}` boots it)"


class Why(enum.Enum):
    """Why a step has to wait."""

    FROZEN = "frozen"
    MAINTENANCE = "in maintenance"
    FOUND_RUNNING = "found running, and not ours"
    OUTAGE = "an outage"
    NEVER = "no remedies (remedy: never)"
    HOLD = "remedies need a person's word"
    BUSY = "its last word was BUSY"
    ASKING = "witnesses are asked"
    ALIVE = "something says that it is alive"
    QUEUE = "its turn has not come"
    UNWRITTEN = "what became of its last order is not on disk"
    NOT_LEADING = "this head does not lead, or has just begun to"


class Verdict(msgspec.Struct, frozen=True):
    """Why a step waits, and in words."""

    why: Why
    text: str
