"""What people are shown of a roll. Nothing here changes anything."""

from __future__ import annotations

from typing import Any

from layercake.features.rolls.facts import (
    ENDED,
    NodePhase,
    NodeRoll,
    Phase,
    Roll,
    counted,
    describe,
)
from layercake.features.rolls.manager import Rolls
from layercake.fleet.store import Record, Store
from layercake.kernel.feature import NodeField

SHOWS = ("all", "open", "none")
_LATE_S = 5.0


def roll_view(
    roll: Roll, store: Store, nodes: str = "all", *, brief: bool = False
) -> dict[str, Any]:
    """A roll as the API shows it, with all of its nodes, those that are not done (open), or none of
    them. `brief`: for viewers, without reasons, which may quote what a container or a BMC said."""
    view = describe(roll) | ({"reason": ""} if brief else {})
    view["left_s"] = left_s(roll, store.wall())
    if nodes == "none":
        return view
    chosen = [
        (k, n) for k, n in roll.nodes.items() if nodes == "all" or n.state is not NodePhase.DONE
    ]
    told = {"reason": "", "trouble": ""} if brief else {}
    return {**view, "nodes": [_row(roll, node, store.find(key)) | told for key, node in chosen]}


def begun_view(roll: Roll) -> dict[str, Any]:
    """A roll that a request began, or has begin later."""
    names = [node.name for node in roll.nodes.values()]
    return {"id": roll.id, "nodes": names, "starts": roll.starts}


def left_s(roll: Roll, now: float) -> float | None:
    """About how many seconds a roll still takes, at the pace that it has had since it began; None
    before a node is through, and while it stands still."""
    counts = roll.stands or counted(roll.nodes.values())
    done = counts.get(NodePhase.DONE, 0)
    if roll.state is not Phase.ROLLING or not done:
        return None
    left = len(roll.nodes) - sum(counts.get(state, 0) for state in ENDED)
    return max(0.0, now - roll.at) * left / done


def _row(roll: Roll, node: NodeRoll, record: Record | None) -> dict[str, Any]:
    return {
        "name": node.name,
        "state": node.state.value,
        "batch": node.batch,
        "stage": roll.stages[node.stage],
        "reason": node.reason,
        "trouble": _trouble(record, roll) if node.reason and record is not None else "",
    }


def _trouble(record: Record, roll: Roll) -> str:
    """The newest error that the node itself has told of its images since the roll began; events
    come a little late."""
    end = roll.ended + _LATE_S if roll.ended is not None else float("inf")
    for event in reversed(record.errors):
        if event.id > roll.after and event.at <= end:
            return event.text
    return ""


def roll_field(rolls: Rolls) -> NodeField:
    """The roll that is under way with a node, and how far the node is in it; null without one."""

    def place(record: Record) -> tuple[Roll, NodeRoll] | None:
        key = record.node.id
        return next(((r, r.nodes[key]) for r in rolls.active() if key in r.nodes), None)

    def view(record: Record) -> dict[str, Any] | None:
        if (found := place(record)) is None:
            return None
        roll, node = found
        return {"id": roll.id, "image": roll.image, "state": node.state.value}

    def number(record: Record) -> tuple[str, ...]:
        found = place(record)
        return () if found is None else (str(found[0].id),)

    def state(record: Record) -> tuple[str, ...]:
        found = place(record)
        return () if found is None else (found[1].state.value,)

    return NodeField(view, {"roll": number, "roll-state": state})
