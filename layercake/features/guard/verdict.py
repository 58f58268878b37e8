"""Whether a step that does something to a machine may begin: facts in, a verdict out. Pure.

First comes a freeze, then an order, then whose machine it is, then a maintenance. A node that was
in sync is started anew when the head has listened for it long enough, it is in no outage, the
inventory and its own last word allow it, and witnesses do not say that it is alive. One that is
known to be dead needs no witnesses; one that a person has released needs nobody's leave.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from layercake.features.guard.outage import Whole, when
from layercake.features.guard.settings import GuardSettings
from layercake.features.guard.witness import Findings
from layercake.fleet.guard_state import GuardState, Stop, Verdict, Why
from layercake.fleet.store import Record
from layercake.fleet.wishes import Wishes

FRESH_S = 15.0
"""How long what witnesses said counts."""


@dataclass(frozen=True, slots=True)
class Case:
    """What is known of a node that waits for a step.

    `freeze` is the node's or the site's. `off`: its BMC says so; `firmware`: its firmware asks for
    a boot program; either way nothing runs there. `starts`: the step is on the way to a running
    node; `ends`: it ends what may run there. `expected`: the head has started anew, and listens for
    the node first. `silent` is for how many seconds, `findings` what witnesses said of it last.
    """

    name: str
    care: GuardState
    wishes: Wishes
    freeze: Stop | None = None
    off: bool = False
    firmware: bool = False
    starts: bool = True
    ends: bool = False
    expected: bool = False
    outage: Whole | None = None
    silent: float = 0.0
    findings: Findings | None = None


class Ruling(NamedTuple):
    """Why the step has to wait, None if it may begin; and whether witnesses are to be asked, once
    or anew."""

    verdict: Verdict | None
    ask: bool = False


FREE = Ruling(None)


def judge(case: Case, settings: GuardSettings, now: float, wall: float) -> Ruling:
    """Whether a step may begin. `now` is by the head's clock, `wall` by that of people."""
    care = case.care
    if case.freeze is not None:
        return _wait(
            Why.FROZEN,
            f"frozen by {case.freeze.by} for {when(case.freeze.since, wall)}: {case.freeze.reason}",
        )
    if care.order is not None:
        return FREE
    if not care.ours and not case.off:
        return _wait(
            Why.FOUND_RUNNING,
            f"it was found running and is not ours (hint: `layercake node take {case.name}` "
            "starts it anew)",
        )
    if not case.starts:
        return FREE
    if care.maintenance is not None and not care.released:
        since = when(care.maintenance.since, wall)
        return _wait(
            Why.MAINTENANCE,
            f"in maintenance by {care.maintenance.by} for {since}: {care.maintenance.reason}",
        )
    return _remedy(case, settings, now) if care.up else FREE


def kept_by(record: Record, freeze: Stop | None) -> Why | None:
    """By which word of a person nothing is begun at a node that is not as wanted, None if by none;
    `freeze` is the site's."""
    care = record.care
    frozen = freeze is not None or care.freeze is not None
    if not (frozen or care.maintenance) or record.machine.goal.met(record.machine.state):
        return None
    if frozen:
        return Why.FROZEN
    starts = record.meant == "up" and not care.released
    return Why.MAINTENANCE if care.maintenance is not None and starts else None


def passes_outage(record: Record, dead: Collection[str]) -> bool:
    """Whether a node may be treated in an outage: it is known to be down (`dead` has the ids of
    those whose firmware has asked), or a person has said so."""
    return record.care.released or record.value("power") == "OFF" or record.node.id in dead


def ends_what_runs(record: Record, mutation: str) -> bool:
    """Whether a step ends what may run on the node, or the session that it has."""
    step = record.planner.mutation(mutation)
    return step.cuts_power or (step.joins and record.session is not None)


def _remedy(case: Case, settings: GuardSettings, now: float) -> Ruling:
    """Whether a node that was in sync may be started anew."""
    care = case.care
    dead = case.off or case.firmware
    if case.expected and not dead:
        return _wait(Why.ASKING, "the head has started anew, and listens for it first")
    if care.released:
        return FREE
    lost = case.outage
    if lost is not None and not dead:
        return _wait(Why.OUTAGE, lost.text)
    if forbidden := _forbidden(case, settings):
        return forbidden
    return FREE if dead or not case.ends else _evidence(case, settings, now)


def _forbidden(case: Case, settings: GuardSettings) -> Ruling | None:
    """Why the inventory or the node's own last word leaves it to a person; None if they do not."""
    release = f" (hint: `layercake node remedy {case.name}` lets it go on)"
    if case.wishes.remedy == "never":
        return _wait(Why.NEVER, "the inventory says remedy: never" + release)
    if case.wishes.remedy == "hold":
        return _wait(Why.HOLD, "the inventory says remedy: hold" + release)
    if case.care.busy and settings.busy == "hold":
        return _wait(
            Why.BUSY, "the last that it said was that it must not be interrupted" + release
        )
    return None


def _evidence(case: Case, settings: GuardSettings, now: float) -> Ruling:
    """What witnesses say of a silent node that is on. What they said counts until they have said
    something newer."""
    found = case.findings
    if found is None:
        return _wait(
            Why.ASKING,
            "its BMC, its agent's TLS port and ARP are asked whether it is alive",
            ask=True,
        )
    ask = now - found.at > FRESH_S
    if found.agent:
        return _wait(
            Why.ALIVE,
            f"its agent answers at its TLS port, so only datagrams are lost; {found.text}",
            ask=ask,
        )
    if found.arp and case.silent < settings.patience_s:
        return _wait(
            Why.ALIVE,
            f"its kernel answers ARP; it is waited for until it was silent for "
            f"{settings.patience_s:.0f} s; {found.text}",
            ask=ask,
        )
    return Ruling(None, ask)


def _wait(why: Why, text: str, *, ask: bool = False) -> Ruling:
    return Ruling(Verdict(why, text), ask)
