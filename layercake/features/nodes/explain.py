"""`node explain`: where a node is, where it should be, what blocks it, what was tried; as data, and
as text for people."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from layercake.features.events.views import View, event_view
from layercake.features.guard.guard import Guard
from layercake.features.machines.manager import Machines
from layercake.features.machines.table import Machine, wanted_places
from layercake.features.nodes.views import interfaces_view, status_of
from layercake.fleet.store import Event, Record
from layercake.kraken.events import Severity
from layercake.kraken.views.explain import explain
from layercake.modules.boot_timeouts import BootTimeouts

_TROUBLE = (Severity.WARNING, Severity.ERROR)
_KINDS = {"port": "switch port", "serial": "serial number", "option 82": "place by option 82"}
_BOOT = "boot."
"""What the kinds of all events of a boot begin with."""


def explain_view(
    record: Record,
    now: float,
    guard: Guard,
    history: Iterable[Event] = (),
    brief: View | None = None,
    patience: BootTimeouts | None = None,
    machines: Machines | None = None,
    files: Iterable[str] = (),
    disks: Iterable[str] = (),
    tpm: Iterable[str] = (),
    console: Iterable[str] = (),
) -> dict[str, Any]:
    """Where a node is, where it should be, the way there, what blocks it, what was tried, and the
    last trouble that its history tells of. `files`, `disks` and `tpm` are what is wrong with these;
    `console` is what it said last. `brief` is how a viewer is shown events: errors and their
    reasons are left out for one."""
    view = explain(record.planner, record.machine, now).to_dict()
    show = brief or event_view
    shown = list(history)
    status, status_text = status_of(record, now, guard.why(record), brief=brief is not None)
    if blocked := _blocked_by_guard(record, guard):
        view["blocked"] = [*view["blocked"], blocked]
    view = {
        "node": record.name,
        "status": status.value,
        "status_text": status_text,
        **view,
        "unhealthy": record.unhealthy,
        "network": network_troubles(interfaces_view(record, brief=brief is not None)),
        "files": list(files),
        "disks": list(disks),
        "tpm": list(tpm),
        "console": list(console),
        "hardware": [] if brief is not None else hardware_of(record, machines),
        "trouble": [show(e) for e in shown if e.severity in _TROUBLE][-5:],
        "boot": [show(e) for e in shown if e.kind.startswith(_BOOT)][-8:],
        "boot_time": patience.view(record) if patience is not None else None,
    }
    return view if brief is None else view | _for_viewers(view)


def _for_viewers(view: Mapping[str, Any]) -> dict[str, Any]:
    """What a viewer is shown instead: no errors and no reasons."""
    quarantine = view["quarantine"]
    return {
        "summary": view["status_text"],
        "blocked": [],
        "quarantine": quarantine and {**quarantine, "reason": ""},
        "last_error": "",
        "unhealthy": "",
        "files": [],
        "disks": [],
        "tpm": [],
    }


def _blocked_by_guard(record: Record, guard: Guard) -> str:
    """Why the guard holds the node's next step, or why it is left alone; "" if neither."""
    waits = guard.why(record)
    if waits is not None and record.machine.asked:
        return f"{record.machine.asked} waits: {waits.text}"
    return guard.stopped(record)


def hardware_of(record: Record, machines: Machines | None) -> list[str]:
    """What is to be said of a node's machine, for people: where it is, what differs, who else
    claims to be it, and what is missing to know it."""
    if machines is None:
        return []
    own = machines.of(record)
    lines = [f"differs: {line}" for line in own.drift] if own is not None else []
    lines += [f"moved: {line}" for line in machines.elsewhere(record)]
    lines += _how_known(record, own)
    lines += _who_else(record, own, machines)
    claims = machines.claimants(record)
    reported = {mac for claim in claims for mac in claim.macs}
    lines += [line for mac, line in machines.replacing.lines(record) if mac not in reported]
    if len(claims) > 1:
        lines.append(f"{len(claims)} machines claim to be it: none of them is taken for it")
    return lines


def _who_else(record: Record, own: Machine | None, machines: Machines) -> list[str]:
    """The machines that have what this node is known by too."""
    rivals = machines.rivals(own) if own is not None else []
    lines = []
    if own is not None and record.node.macs:
        lines += [
            f"{machines.name_of(rival)} has {_in_common(rival, own)} too" for rival in rivals[:5]
        ]
    known = {rival.key for rival in rivals}
    return lines + [
        f"{claim.mac} at {claim.address}, which no inventory knows, has "
        f"{_of_inventory(record, claim)} of this node "
        f"(hint: layercake node set {record.name} mac={claim.mac})"
        for claim in machines.claimants(record)[:5]
        if claim.key not in known
    ]


def _how_known(record: Record, own: Machine | None) -> list[str]:
    """What is missing to know a node's machine by more than its MAC address."""
    places = wanted_places(record)
    if not record.node.macs:
        return [
            f"it has no `mac`, and no machine was seen yet that has its "
            f"{' or '.join(map(str, places))}: the first one is taken for it"
        ]
    if own is None:
        lines = ["it has not reported yet: it is known by its MAC address alone"]
        return lines if places else []
    lacks = {place.kind for place in places} - {kind for kind, _ in own.claims}
    return [
        f"its {_KINDS.get(kind, kind)} was not seen in its last survey" for kind in sorted(lacks)
    ]


def _in_common(one: Machine, other: Machine) -> str:
    return ", ".join(
        sorted(f"{kind} {value}" for kind, value in set(one.claims) & set(other.claims))
    )


def _of_inventory(record: Record, one: Machine) -> str:
    has = set(one.claims)
    return (
        ", ".join(str(claim) for claim in wanted_places(record) if (claim.kind, claim.value) in has)
        or "what its last survey had"
    )


def network_troubles(interfaces: list[dict[str, Any]]) -> list[str]:
    """What is wrong with a node's interfaces, for people."""
    found = []
    for one in interfaces:
        what = (
            [one["trouble"]] if one["trouble"] else [one["state"]] if one["state"] != "up" else []
        )
        what += [
            f"its leg {leg['name']}: {leg['state']}" for leg in one["legs"] if leg["state"] != "up"
        ]
        found += [f"{one['name']}: {'; '.join(what)}"] if what else []
    return found


def _when(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))


def boot_time_text(times: dict[str, Any] | None) -> str:
    """How long a node takes to boot, for people; "" if nothing is known."""
    if not times or (times["usual_s"] is None and times["now_s"] is None):
        return ""
    often = times["usual_s"]
    now = times["now_s"]
    text = (
        "not yet known how long"
        if often is None
        else (
            f"usually {often:.0f} s (the longest of {times['boots']}: {times['longest_s']:.0f} s)"
        )
    )
    if now is not None:
        text += f"; now {now:.0f} s" + (
            ": more than twice" if often is not None and now > 2 * often else ""
        )
    if times["limit_s"] is not None:
        text += f"; its firmware is waited for {times['limit_s']:.0f} s"
    return text


def explain_text(view: dict[str, Any]) -> str:
    """The explanation of `explain_view` as lines of text."""
    status = f" ({view['status_text']})" if view["status_text"] else ""
    lines = [f"{view['node']}: {view['status']}{status}"]
    lines.append("  is:      " + _pairs(view["state"]))
    lines.append("  wanted:  " + (_pairs(view["goal"]) or "nothing"))
    for label, key in _LABELLED.items():
        texts = view.get(key) or []
        lines += [
            f"  {label + ':':<8} {text}" for text in ([texts] if isinstance(texts, str) else texts)
        ]
    lines += _way(view.get("chain"))
    lines += _tried(view, lines)
    if time_text := boot_time_text(view.get("boot_time")):
        lines.append(f"  boots:   {time_text}")
    if console := view.get("console"):
        lines += ["  the console said last:", *(f"    {text}" for text in console)]
    lines += _events("  the last boot:", view["boot"])
    lines += _events("  the last trouble:", view["trouble"])
    return "\n".join(lines)


_LABELLED = {
    "unwell": "unhealthy",
    "network": "network",
    "files": "files",
    "disks": "disks",
    "tpm": "tpm",
    "machine": "hardware",
    "blocked": "blocked",
}
"""{how a line begins: the key of the view that it is from, a text or some}, in their order."""


def _pairs(values: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())


def _way(chain: Sequence[Mapping[str, Any]] | None) -> list[str]:
    if chain is None:
        return ["  way:     none"]
    steps = [
        f"    {number}. {step['name']:<16} {step['doc']} [{step['where']}]"
        for number, step in enumerate(chain, 1)
    ]
    return ["  way:", *steps] if steps else []


def _tried(view: Mapping[str, Any], shown: Sequence[str]) -> list[str]:
    """What was tried in vain, and its last error if nothing shown has it yet."""
    tried = view.get("attempts") or {}
    if not tried:
        return []
    lines = ["  tried:   " + ", ".join(f"{name} {count}x" for name, count in tried.items())]
    error = view["last_error"]
    if error and not any(error in line for line in (*shown, *lines)):
        lines.append(f"  failed:  {error}")
    return lines


def _events(title: str, events: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [f"    {_when(e['at'])} {e['kind']}: {e['text']}" for e in events]
    return [title, *lines] if lines else []
