"""With what an inventory is made the desired state, and what that does to a node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from imageapi.store.store import ImageStore
from layercake.agents.sync import Sync
from layercake.api.delegation import Delegations
from layercake.base.secrets import Vault
from layercake.features.boots.boot_sets import BootSets
from layercake.features.guard.guard import Guard
from layercake.features.machines.manager import Machines
from layercake.features.rolls.manager import Rolls
from layercake.fleet.desired import DesiredState
from layercake.fleet.networks import SiteNetworks
from layercake.fleet.store import Record, Store
from layercake.fleet.table import Table
from layercake.fleet.wishes import wishes
from layercake.inventory import entry
from layercake.inventory.changes import Change
from layercake.inventory.schema import Node
from layercake.kernel.membership import Membership
from layercake.kraken.mutation import Mutation
from layercake.modules.notifier import ModuleNotifier

Spread = Callable[[Sequence[tuple[Node, Node]] | None], Awaitable[None]]
"""Has nodes told of files that are not as before, where these are others, (before, now); None where
any may be."""


@dataclass(frozen=True, slots=True)
class Means:
    """With what an inventory is made the desired state. `beside` are the head's addresses with the
    length of their prefixes; `simulated`: its nodes are made up. `delegations` is what those
    who are bound to groups may name."""

    store: Store
    table: Table
    desire: DesiredState
    membership: Membership
    networks: SiteNetworks
    notifier: ModuleNotifier
    sync: Sync
    vault: Vault
    images: ImageStore
    boots: BootSets
    rolls: Rolls
    guard: Guard
    machines: Machines
    beside: Sequence[str]
    simulated: bool
    delegations: Delegations


def plan_node(means: Means, change: Change, node: Node) -> dict[str, Any]:
    """What will be done to a node that changes: see answers.NodePlan."""
    planner = means.table.planner_for(node)
    known = means.store.find(node.id)
    wants = means.desire.goal_values(node.state, node.images)
    chain = planner.chain(known.machine.state if known else 0, planner.layout.goal(wants))
    names = [m.name for m in chain or ()]
    if chain == () and known is not None and _other_images(known, node):
        names = ["image-update"]
    ends = known is None and any(step.mutation.cuts_power for step in planner.graph.steps)
    return {
        "node": node.name,
        "found_running": known is not None and _is_foreign(known),
        "adopt": wishes(node).adopt if ends else None,
        "chain": names,
        "to": wants,
        "blocked": None if chain is not None else "no way there now",
        "at_boot": _at_boot(means, change, chain),
    }


def _at_boot(means: Means, change: Change, chain: Iterable[Mutation] | None) -> list[str]:
    """What of a change takes effect at the next boot, which the chain does not bring about."""
    if any(step.turns_on for step in chain or ()):
        return []
    return entry.at_next_boot(change, means.table.parts)


def _other_images(record: Record, node: Node) -> bool:
    """Whether a node is to have other images than before."""
    return tuple(image.name for image in record.wanted) != node.images


def _is_foreign(record: Record) -> bool:
    """Whether a machine was found running that is not the head's."""
    return not record.care.ours and record.value("power") in ("ON", "HANG")
