"""What people are shown of the nodes."""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from imageapi.spec.state import given_up
from layercake.fleet.boots import Boots
from layercake.fleet.guard_state import Verdict, Why
from layercake.fleet.store import Record
from layercake.fleet.table import Table
from layercake.fleet.wishes import wishes
from layercake.inventory.schema import Node
from layercake.kraken.facts import Active, Quarantine
from layercake.modules.boot_timeouts import BootTimeouts


class Status(enum.Enum):
    """How a node is, in a word: the same word wherever nodes are listed, counted or explained.
    MAINTENANCE is one that is as wanted, and that a person works on; UNWELL one that is as wanted
    but for the health of a container; SILENT one that fell silent in an outage."""

    CONVERGED = "converged"
    MAINTENANCE = "maintenance"
    UNWELL = "unwell"
    WORKING = "working"
    WAITING = "waiting"
    ASKING = "asking"
    HELD = "held"
    SILENT = "silent"
    BLOCKED = "blocked"
    QUARANTINED = "quarantined"


def status_of(
    record: Record, now: float, waits: Verdict | None = None, *, brief: bool = False
) -> tuple[Status, str]:
    """A node's status and a line that says why; `waits` is why the guard leaves it alone, or holds
    its next step (Guard.why).
    `brief`: for viewers, who are not shown what a BMC or a container said."""
    machine = record.machine
    if machine.quarantine is not None:
        return Status.QUARANTINED, _given_up(machine.quarantine, brief=brief)
    why = waits.why if waits is not None else None
    if waits is not None and why is Why.OUTAGE:
        return Status.SILENT, waits.text
    if machine.active is not None and why not in _BY_PERSON:
        return _under_way(record, machine.active, now)
    if record.held is not None:
        return Status.HELD, "it is being released" if brief else record.held.why
    if machine.goal.met(machine.state):
        return _as_wanted(record, brief=brief)
    return _waiting(record, now, waits, brief=brief) or _stuck(record, brief=brief)


def _given_up(quarantine: Quarantine, *, brief: bool) -> str:
    name = quarantine.mutation
    reason = "" if brief and name else quarantine.reason
    return ": ".join(filter(None, (name, reason)))


def _as_wanted(record: Record, *, brief: bool) -> tuple[Status, str]:
    if record.acked < record.cfg_revision and record.goal_values.get("run") == "SYNC":
        return Status.WORKING, "the node has yet to take the newest desired state"
    stop = record.care.maintenance
    if stop is None:
        unwell = "" if brief else record.unhealthy
        return Status.UNWELL if record.unhealthy else Status.CONVERGED, unwell
    why = "in maintenance" if brief else f"in maintenance by {stop.by}: {stop.reason}"
    off = "; wanted off, also when that is over" if record.node.state == "off" else ""
    return Status.MAINTENANCE, why + off


def _under_way(record: Record, active: Active, now: float) -> tuple[Status, str]:
    seconds = max(0.0, now - active.started)
    if wish := wish_of(record):
        return Status.ASKING, f"{wish}; waited for {seconds:.0f} s by now"
    return Status.WORKING, f"{active.mutation}, {seconds:.0f} s"


def _waiting(
    record: Record, now: float, waits: Verdict | None, *, brief: bool
) -> tuple[Status, str] | None:
    """Of a node whose next step may not begin yet."""
    machine = record.machine
    if waits is not None and (machine.asked or record.value("image") != "FATAL"):
        step = f"{machine.asked} waits" if machine.asked else "nothing is done to it"
        return Status.HELD, step + ("" if brief else f": {waits.text}")
    if machine.held_until > now:
        left = machine.held_until - now
        return (Status.HELD, f"the head has started anew; its agent has {left:.0f} s to come back")
    if machine.not_before > now:
        why = "" if brief else f": {machine.last_error}"
        return Status.WAITING, f"next attempt in {machine.not_before - now:.0f} s{why}"
    return None


def _stuck(record: Record, *, brief: bool) -> tuple[Status, str]:
    """Of a node with nothing to wait for: given up, without a way, or about to begin."""
    if record.value("image") == "FATAL":
        dead = [
            f"{c['name']}: {(not brief and c['error']) or c['last_error']}"
            for c in record.containers
            if given_up(c["last_error"])
        ]
        return Status.QUARANTINED, f"the node has given up on {'; '.join(dead) or 'its images'}"
    if record.planner.next(record.machine.state, record.machine.goal) is None:
        return Status.BLOCKED, "there is no way to what is wanted; see explain"
    return Status.WORKING, ""


_BY_PERSON = (Why.FROZEN, Why.MAINTENANCE)
AS_WANTED = frozenset({Status.CONVERGED, Status.MAINTENANCE, Status.UNWELL})


def wish_of(record: Record) -> str:
    """What a person is asked to do at a node now, "" if nothing."""
    active = record.machine.active
    return (
        record.planner.mutation(active.mutation).person
        if active is not None and active.mutation in record.planner
        else ""
    )


def _images(images: tuple[Any, ...]) -> list[dict[str, str]]:
    return [{"name": i.name, "digest": i.digest} for i in images]


def parts_view(node: Node, table: Table, *, brief: bool = False) -> dict[str, Any]:
    """What the modules show of their parts of a node ("bmc"); nothing of that to viewers."""
    found: dict[str, Any] = {}
    for name, part in table.parts.items():
        found |= part.view(None if brief else node.parts.get(name))
    return found


def interfaces_view(record: Record, *, brief: bool = False) -> list[dict[str, Any]]:
    """A node's interfaces as it says; nothing of one that does not speak. Viewers are not shown why
    one is not as it should be."""
    found = record.interfaces if record.value("run") == "SYNC" else ()
    return [{**msgspec.to_builtins(one), **({"trouble": ""} if brief else {})} for one in found]


def node_view(
    record: Record,
    now: float,
    table: Table,
    waits: Verdict | None = None,
    *,
    brief: bool = False,
    patience: BootTimeouts | None = None,
) -> dict[str, Any]:
    """A node as the API shows it; see the OpenAPI document for the fields. `brief` is for
    viewers."""
    status = status_of(record, now, waits, brief=brief)
    return steady_view(record, table, brief=brief) | moving_view(record, now, status, patience)


def moving_view(
    record: Record, now: float, status: tuple[Status, str], patience: BootTimeouts | None
) -> dict[str, Any]:
    """What of it goes with the time."""
    active = record.machine.active
    return {
        "status": status[0].value,
        "status_text": status[1],
        "boot_time": patience.view(record) if patience is not None else None,
        "last_seen_s": None if record.last_seen is None else round(now - record.last_seen, 1),
        "active": active
        and {
            "mutation": active.mutation,
            "attempt": active.attempt,
            "seconds": round(now - active.started, 1),
            "deadline_s": None if wish_of(record) else round(active.deadline - now, 1),
        },
        "since_s": round(max(0.0, now - record.changed_at), 1),
    }


def steady_view(record: Record, table: Table, *, brief: bool = False) -> dict[str, Any]:
    """What of it stays as long as `steady` of the record is equal."""
    run = record.value("run")
    return {
        "name": record.name,
        "id": record.node.id,
        "state": record.values(),
        "goal": record.goal_values,
        "wanted": record.node.state,
        "in_use": run == "SYNC" or record.value("image") in ("ACTIVE", "UPDATE"),
        "stopped": stops(record),
        "ours": record.care.ours,
        "images": {"wanted": _images(record.wanted), "running": []},
        "containers": [],
        "ip": record.node.ip,
        "macs": list(record.node.macs),
        "firmware": record.node.firmware,
        "groups": list(record.node.groups),
        "labels": wishes(record.node).labels,
        "domains": list(record.node.domains),
        "profile": record.node.profile or None,
        "network": record.node.network or None,
        "cards": [msgspec.to_builtins(card) for card in record.cards],
        "clock": None,
        "interfaces": interfaces_view(record, brief=brief),
        **parts_view(record.node, table, brief=brief),
        "boot_id": record.session.boot_id if record.session else None,
        "boots": _boots_view(record.boots, brief=brief),
        "revision": record.cfg_revision,
        **(_in_sync_view(record, brief=brief) if run == "SYNC" else {}),
    }


def stops(record: Record) -> list[str]:
    """Why nothing is done to a node: the kinds of a person's word for it."""
    care = record.care
    stops = {
        "frozen": care.freeze is not None,
        "maintenance": care.maintenance is not None,
        "release": record.held is not None,
    }
    return [name for name, holds in stops.items() if holds]


def _boots_view(boots: Boots, *, brief: bool) -> dict[str, Any]:
    return {
        "next": boots.wanted or None,
        "runs": boots.runs or None,
        "agent": boots.agent_runs or None,
        "agent_error": None if brief else boots.agent_error or None,
    }


def _in_sync_view(record: Record, *, brief: bool) -> dict[str, Any]:
    """What only a node in sync is believed. The errors of its containers are not for viewers."""
    containers = record.containers
    return {
        "images": {"wanted": _images(record.wanted), "running": _images(record.running)},
        "containers": [{**c, "error": ""} for c in containers] if brief else list(containers),
        "clock": None if record.clock is None else msgspec.to_builtins(record.clock),
    }


def steady(record: Record) -> tuple[Any, ...]:
    """What `steady_view` is made of. Whoever adds to that adds here."""
    machine = record.machine
    return (
        machine.state,
        machine.goal,
        record.node,
        record.cfg_revision,
        record.care,
        record.wanted,
        record.running,
        record.containers,
        record.cards,
        record.clock,
        record.interfaces,
        record.session,
        record.boots,
        record.held is None,
    )
