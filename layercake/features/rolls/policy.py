"""Whether a change of images goes at once or as rolls, and as which: pure, over records.

What counts is how many nodes run something that would be interrupted. When they are more than the
site's settings allow at once, each image set with each policy gets a roll of its own, so that every
new image meets a canary first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from layercake.base.text import grouped
from layercake.features.rolls.facts import Amount, Plan, parse_amount, plan_view
from layercake.features.rolls.module import MODULE, RollPart, RollSettings
from layercake.fleet.store import Record
from layercake.inventory.schema import Node


@dataclass(frozen=True, slots=True)
class Wish:
    """Other images for a node: their names, and the node as the inventory has it then."""

    record: Record
    node: Node
    images: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Move:
    """A roll to be begun: these nodes, to these images, so."""

    records: tuple[Record, ...]
    images: tuple[str, ...]
    plan: Plan

    def to_record(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "nodes": [r.name for r in self.records],
            "images": list(self.images),
            "plan": plan_view(self.plan),
        }


def settings_of(settings: Mapping[str, Any]) -> RollSettings:
    """The site's settings, out of those of all modules."""
    found = settings.get(MODULE.name)
    return found if isinstance(found, RollSettings) else RollSettings()


def runs(record: Record) -> bool:
    """Whether other images for a node may interrupt something. One that is off, was never there or
    runs no images has nothing to lose; one of which nothing is known, as after a restart of the
    head, may well be at work."""
    if record.session is None or not record.wanted:
        return False
    return record.value("run") == "SYNC" or (
        record.value("power") != "OFF" and record.node.state != "off"
    )


def plan_for(node: Node, settings: RollSettings) -> Plan:
    """The policy of a node: what the inventory says, the site's for the rest."""
    said = node.parts.get(MODULE.name)
    given = (
        {k: v for k, v in msgspec.structs.asdict(said).items() if v is not None}
        if isinstance(said, RollPart)
        else {}
    )
    policy = msgspec.structs.replace(settings, **given)
    return Plan(
        _amount(policy.batch),
        _amount(policy.max_unavailable),
        policy.canary,
        policy.health_s,
        policy.on_failure,
    )


def policies(records: Iterable[Record], settings: RollSettings) -> dict[Plan, list[Record]]:
    """The nodes that each policy is for."""
    return grouped((plan_for(record.node, settings), record) for record in records)


def _amount(text: str) -> Amount | None:
    return parse_amount("batch", text) if text else None


def moves(wishes: Iterable[Wish], settings: RollSettings) -> list[Move]:
    """The rolls that a change asks for; none if it goes at once. Nodes that are not in one may
    change at once."""
    touched = [w for w in wishes if runs(w.record)]
    if len(touched) <= settings.at_once:
        return []
    found: dict[tuple[tuple[str, ...], Plan], list[Record]] = {}
    plans: dict[
        object, Plan
    ] = {}  # nodes with the same policy share one: worked out for each, ten thousand take 0.1 s
    for wish in touched:
        said = wish.node.parts.get(MODULE.name)
        plan = plans.get(said) or plans.setdefault(said, plan_for(wish.node, settings))
        found.setdefault((wish.images, plan), []).append(wish.record)
    return [Move(tuple(records), images, plan) for (images, plan), records in found.items()]
