"""The metrics of the heads of a site; of one that is alone those that it has, too, so that alerts
are about what there is."""

from __future__ import annotations

from layercake.features.heads.known import KnownHeads
from layercake.features.heads.troubles import KINDS
from layercake.features.nodes.lists.metrics import Page
from layercake.heads.etcd import MemberStatus
from layercake.heads.upkeep import WriteCounts

STATES = ("up", "down", "learner")


def _state(member: MemberStatus) -> str:
    return "down" if member.trouble else "learner" if member.learner else "up"


def add_heads(page: Page, known: KnownHeads) -> None:
    """Adds them to a page."""
    site = known.site
    shown = known.shown
    there = {one.head: one for one in shown.heads}
    leader = shown.leader or (known.names[0] if site is None else "")
    page.add(
        "heads_leader",
        "gauge",
        "Whether a head leads the site.",
        [({"head": name}, name == leader) for name in known.names],
    )
    page.add(
        "heads_up",
        "gauge",
        "Whether a head is there, and may be ready to take over.",
        [({"head": name}, site is None or name in there) for name in known.names],
    )
    page.add(
        "heads_behind_entries",
        "gauge",
        "Entries of the log that a head has not yet.",
        [({"head": name}, shown.entry - one.entry) for name, one in there.items()],
    )
    page.add(
        "heads_behind_seconds",
        "gauge",
        "For how long a head lacks an entry of the log.",
        [({"head": name}, one.behind_s) for name, one in there.items()],
    )
    page.add("heads_epoch", "gauge", "How many leaders there have been.", [({}, known.epoch)])
    page.add(
        "heads_lease_seconds",
        "gauge",
        "For how long the head leads still if its lease cannot be renewed.",
        [({}, site.lease_s)] if site is not None else [],
    )
    _of_store(page, known)


def _of_store(page: Page, known: KnownHeads) -> None:
    writes = known.site.writes if known.site is not None else WriteCounts()
    members = known.shown.members
    page.add(
        "heads_writes_refused_total",
        "counter",
        "Writes that were refused, as the store of the heads did not take them.",
        [({}, writes.refused)],
    )
    page.histograms(
        "heads_commit_seconds",
        "How long changes took until the store of the heads had them.",
        [({}, writes.commits)],
    )
    page.add(
        "heads_store_members",
        "gauge",
        "Members of the store of the heads, by how they are.",
        [
            ({"state": state}, sum(_state(member) == state for member in members))
            for state in STATES
        ],
    )
    kinds = {one.kind for one in known.troubles}
    page.add(
        "heads_trouble",
        "gauge",
        "Whether something is wrong with the heads and their store (`layercake heads`).",
        [({"trouble": kind}, kind in kinds) for kind in KINDS],
    )
