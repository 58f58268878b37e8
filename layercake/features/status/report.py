"""What operators ask each morning: what failed, was slow, was held back, and changed since
yesterday; and how it is now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from layercake.agents.pki import Authority, CertificateAge
from layercake.features.rolls.views import roll_view
from layercake.features.status.views import Census, Observed
from layercake.fleet import events
from layercake.fleet.persistence.history import Tally
from layercake.kraken.events import EventKind, Severity

SECTIONS: Mapping[str, tuple[EventKind, ...]] = {
    "held": (
        events.REMEDY_HELD,
        events.OUTAGE_CALLED,
        events.OUTAGE_OVER,
        events.ROLL_SKIPPED,
        events.FROZEN,
        events.NODE_FOUND,
    ),
    "slow": (events.BOOT_SLOW, events.HEAD_SLOW),
    "changed": (
        events.INVENTORY_ADDED,
        events.INVENTORY_CHANGED,
        events.INVENTORY_REMOVED,
        events.INVENTORY_NETWORKS,
        events.DESIRED_STATE,
        events.POWER_CYCLE,
        events.IMAGE_ADDED,
        events.IMAGE_REMOVED,
        events.BOOT_DEFAULT,
        events.MAINTENANCE_BEGUN,
        events.FILES_CHANGED,
        events.HEAD_STARTED,
    ),
}
"""The kinds of a section, whatever their severity; others are in `security`, `failed` or `warned`,
or in none."""
SOON_DAYS = 30
MOST_ROLLS = 20


def _soon(age: CertificateAge, authority: Authority) -> float:
    """For how many days a certificate is to be good at least: that of the head renews itself."""
    return authority.left_at_renewal if age.what == "head" else SOON_DAYS


def section_of(tally: Tally, kinds: Mapping[str, EventKind]) -> str:
    """Where a kind stands in the report, "" for what is usual."""
    for name, of in SECTIONS.items():
        if any(tally.kind == kind.name for kind in of):
            return name
    if tally.severity not in (Severity.WARNING, Severity.ERROR):
        return ""
    kind = kinds.get(tally.kind)
    if kind is not None and kind.security:
        return "security"
    return "failed" if tally.severity == Severity.ERROR else "warned"


def lines_of(
    tallies: Iterable[Tally], kinds: Mapping[str, EventKind]
) -> dict[str, list[dict[str, Any]]]:
    """{section: its kinds, what happened most often first}."""
    found: dict[str, list[dict[str, Any]]] = {
        name: [] for name in ("failed", "slow", "held", "warned", "security", "changed")
    }
    for tally in sorted(tallies, key=lambda one: (-one.count, one.kind)):
        if section := section_of(tally, kinds):
            kind = kinds.get(tally.kind)
            found[section].append(
                {
                    "kind": tally.kind,
                    "count": tally.count,
                    "last": tally.last,
                    "nodes": dict(sorted(tally.nodes.items())),
                    "meaning": kind.meaning if kind is not None else "",
                    "node": tally.node,
                    "text": tally.text,
                }
            )
    return found


async def report_view(of: Observed, census: Census, since: float, until: float) -> dict[str, Any]:
    """The report from one time to another, seconds since the epoch. Raises OperationFailed if the
    database cannot be read."""
    changed = [kind.name for kind in SECTIONS["changed"]]
    tallies = await of.database.history.tallies(since, until, changed)
    found = lines_of(tallies, of.table.events)
    counts = await census.counts()
    rolls = [
        roll
        for roll in of.rolls.all()
        if roll.at <= until and (roll.ended is None or roll.ended >= since)
    ]
    guard = of.guard.view()
    return {
        "since": since,
        "until": until,
        "head": of.address,
        "nodes": {status.value: count for status, count in counts.items()},
        "outages": guard["outages"],
        "frozen": guard["frozen"],
        "database": of.database.health.view(of.store),
        "certificates": [age for age in of.authority.ages() if age.days < _soon(age, of.authority)],
        "rolls": [roll_view(roll, of.store, "none") for roll in rolls[:MOST_ROLLS]],
        "sections": found,
    }
