"""`node explain`: where a node is, where it should be, what blocks it, what was tried; as data, and
as text for people."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from layercake.base.clock import Clock
from layercake.features.consoles.operations import Consoles
from layercake.features.events.views import View, event_view, meanings
from layercake.features.guard.guard import Guard
from layercake.features.nodes.views import AS_WANTED, interfaces_view, status_of
from layercake.fleet.store import Event, Record
from layercake.fleet.table import Table
from layercake.kraken.events import Severity
from layercake.kraken.views.explain import explain
from layercake.modules.boot_timeouts import BootTimeouts

RollOf = Callable[[Record], Mapping[str, Any] | None]
"""The roll that has a node: {"id", "image", "state": how far the node is}; None without one."""
_TROUBLE = (Severity.WARNING, Severity.ERROR)
_BOOT = "boot."
"""What the kinds of all events of a boot begin with."""


TROUBLES = ("bmc", "files", "disks", "tpm", "hardware")
"""What features say is wrong with a node (Running.troubles)."""
LAST_LINES = 8
"""Of a node's console, where it is explained why it is not as wanted."""


def explain_view(
    record: Record,
    now: float,
    guard: Guard,
    history: Iterable[Event] = (),
    brief: View | None = None,
    patience: BootTimeouts | None = None,
    troubles: Mapping[str, list[str]] = MappingProxyType({}),
    console: Iterable[str] = (),
    roll: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Where a node is, where it should be, the way there, what blocks it, what was tried, and the
    last trouble that its history tells of. `troubles` are what is wrong with its BMC, files, disks,
    TPM and hardware; `console` is what it said last, `roll` the roll that has it. `brief` is how a
    viewer is shown events: errors and their reasons are left out for one."""
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
        **{what: troubles.get(what, []) for what in TROUBLES},
        "roll": roll_text(roll),
        "console": list(console),
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
        **{what: [] for what in TROUBLES},
    }


def roll_text(roll: Mapping[str, Any] | None) -> str:
    """Which roll has a node, and how far the node is in it; "" for none."""
    if roll is None:
        return ""
    return f"{roll['id']} to {roll['image']}: {roll['state']}; `layercake roll status {roll['id']}`"


def _blocked_by_guard(record: Record, guard: Guard) -> str:
    """Why the guard holds the node's next step, or why it is left alone; "" if neither, as while a
    step is under way."""
    if record.machine.active is not None:
        return ""
    waits = guard.why(record)
    if waits is not None and record.machine.asked:
        return f"{record.machine.asked} waits: {waits.text}"
    return guard.stopped(record)


class Explainer:
    """Explains nodes. `troubles` gives what features say is wrong with one, `roll_of` its roll."""

    def __init__(
        self,
        table: Table,
        clock: Clock,
        guard: Guard,
        boot_timeouts: BootTimeouts,
        troubles: Callable[[Record], Mapping[str, list[str]]],
        consoles: Consoles,
        roll_of: RollOf,
    ) -> None:
        self._roll_of = roll_of
        self._table = table
        self.clock = clock
        self.guard = guard
        self.boot_timeouts = boot_timeouts
        self._troubles = troubles
        self._consoles = consoles

    async def explain(
        self, record: Record, history: Iterable[Event], *, brief: bool
    ) -> dict[str, Any]:
        """See explain_view; `brief` is for viewers."""
        now = self.clock()
        status = status_of(record, now, self.guard.why(record))[0]
        stuck = not (brief or status in AS_WANTED) and record.value("power") != "OFF"
        return explain_view(
            record,
            now,
            self.guard,
            history,
            meanings(self._table.events) if brief else None,
            self.boot_timeouts,
            {} if brief else self._troubles(record),
            await self._consoles.last(record, LAST_LINES) if stuck else (),
            self._roll_of(record),
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
    "bmc": "bmc",
    "files": "files",
    "disks": "disks",
    "tpm": "tpm",
    "machine": "hardware",
    "blocked": "blocked",
    "roll": "roll",
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
