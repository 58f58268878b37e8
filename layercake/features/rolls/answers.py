"""What is answered about rolls."""

from __future__ import annotations

import msgspec


class RollNode(msgspec.Struct):
    """A node of a roll."""

    name: str
    state: str
    batch: int
    stage: str
    reason: str
    trouble: str


class RollShown(msgspec.Struct):
    """A roll and how far it is; times are seconds since the epoch. `starts` is when one begins that
    was asked for before, `left_s` about how many seconds it still takes, if that can be said.
    `nodes` is left out where they were not asked for."""

    id: int
    by: str
    at: float
    image: str
    state: str
    reason: str
    kind: str
    ended: float | None
    starts: float | None
    left_s: float | None
    batch: int
    stage: str
    stages: list[str]
    nodes_total: int
    counts: dict[str, int]
    plan: RollPlan
    nodes: list[RollNode] = []


class OneRoll(msgspec.Struct):
    """A roll."""

    roll: RollShown


class RollList(msgspec.Struct):
    """The rolls, newest first."""

    rolls: list[RollShown]


class RollPlan(msgspec.Struct):
    """How a roll goes; amounts are "5" or "10%"."""

    batch: str | None
    max_unavailable: str | None
    canary: int
    health_timeout_s: float
    on_failure: str
    on_stage_failure: str


class PlannedRoll(msgspec.Struct):
    """A roll that applying begins."""

    nodes: list[str]
    images: list[str]
    plan: RollPlan


class RollBegun(msgspec.Struct):
    """A roll that has begun, or does when it `starts`, and its nodes."""

    id: int
    nodes: list[str]
    starts: float | None = None


class PassedOver(msgspec.Struct):
    """A node that a roll leaves alone, and why."""

    node: str
    why: str
