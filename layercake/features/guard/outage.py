"""Outages: when many nodes fall silent together, that is the network's or the power's fault until
shown otherwise. Pure.

The rule is that of others: OpenShift's MachineHealthCheck stops its remedies above maxUnhealthy,
Kubernetes' node lifecycle controller when most of a zone is gone, Ceph's
mon_osd_down_out_subtree_limit when a whole rack is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import msgspec

from layercake.base.clock import Clock
from layercake.base.text import count_of
from layercake.features.guard.settings import GuardSettings
from layercake.fleet.guard_state import Verdict, Why
from layercake.inventory.ranges import fold
from layercake.inventory.schema import Node

SITE = ""
"""The domain that every node is in."""
GATHER_S = 10.0
"""After so many seconds an outage is told of: by then it is known whether it is of one rack, or of
the site, whose racks are one after the other found to be silent."""


@dataclass(frozen=True, slots=True)
class Outage:
    """Many nodes of a domain are silent. `silent` are their ids, `members` how many of the domain
    there are, `back` when one last came back, None before. `late` are those of `silent` that fell
    silent after the first came back: they are held like the others, and when they come back says
    nothing of the outage."""

    domain: str
    since: float
    silent: frozenset[str]
    members: int
    back: float | None = None
    late: frozenset[str] = frozenset()

    @property
    def where(self) -> str:
        """The domain in words."""
        return f"domain {self.domain}" if self.domain else "the site"


def when(at: float, now: float) -> str:
    """How long ago, for people."""
    seconds = max(0.0, now - at)
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.0f} h"
    )


class Whole(NamedTuple):
    """An outage that is in no other, with the domains whose outages are in it."""

    outage: Outage
    domains: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """What it is, for people."""
        one = self.outage
        return (
            f"an outage of {one.where}: {len(one.silent)} of {one.members} nodes fell silent "
            "together, and nothing is done to them until they are back"
        )


class _Kept(msgspec.Struct, array_like=True):
    """The same, as it is kept."""

    outage: Outage
    domains: tuple[str, ...]


def whole(outages: Iterable[Outage], window_s: float) -> list[Whole]:
    """The outages as people see them, the largest first: one of the site, or of a row, holds those
    of its racks. Of two with the same nodes the smaller place says more. One that began more than
    `window_s` before another is no part of that."""
    found: list[tuple[Outage, list[str]]] = []
    for one in sorted(
        outages, key=lambda o: (-len(o.silent), o.members, o.domain == SITE, o.domain)
    ):
        holder = next((of for of in found if _holds(of[0], one, window_s)), None)
        if holder is None:
            found.append((one, []))
        elif one.domain != SITE:
            holder[1].append(one.domain)
    return [Whole(outage, tuple(sorted(domains))) for outage, domains in found]


def _holds(outage: Outage, other: Outage, window_s: float) -> bool:
    return other.silent <= outage.silent and other.since >= outage.since - window_s


Note = Callable[[Whole, str, bool], None]
"""Tells of an outage, in words; and whether it is over."""


@dataclass(slots=True)
class Outages:
    """The outages of a head, as they come and go. `keep` keeps which were told of, for the next
    head: it tells none of them twice, and of each that it is over."""

    settings: GuardSettings
    clock: Clock
    note: Note
    keep: Callable[[bytes], None] = lambda document: None
    by_domain: dict[str, Outage] = field(default_factory=dict)
    whole: list[Whole] = field(default_factory=list)
    holds: dict[str, Verdict] = field(default_factory=dict)
    """Why nothing is done to the nodes in outages, by their ids."""
    _of: dict[str, Whole] = field(default_factory=dict)
    _told: dict[str, Whole] = field(default_factory=dict)
    _restored_until: float = float("-inf")
    _ended: set[str] = field(default_factory=set)
    """Nodes whose outage is over, by itself or by a person, for as long as they are silent."""

    def restore(self, document: bytes, until: float) -> None:
        """Takes over what an earlier head has told of. Whether it is over is known `until` then:
        nodes that are silent are not known to be before."""
        self._told = {
            one.outage.domain: Whole(one.outage, one.domains)
            for one in msgspec.json.decode(document, type=list[_Kept])
        }
        self._restored_until = until

    def _save(self) -> None:
        self.keep(msgspec.json.encode([_Kept(*one) for one in self._told.values()]))

    def update(self, members: Mapping[str, int], silent: Mapping[str, Mapping[str, float]]) -> None:
        """Looks at who is silent now; see `outages_now`."""
        now = self.clock()
        before = self.by_domain
        self._ended &= silent.get(SITE, {}).keys()
        found = outages_now(before, members, silent, self.settings, now, self._ended)
        for domain in before.keys() - found.keys():  # the rest of one that is over is no new one
            self._ended |= before[domain].silent
        if found or before:
            self.replace_all(found)
        before_told = dict(self._told)
        for one in self.whole:
            outage = one.outage
            if outage.domain not in self._told and now - outage.since >= GATHER_S:
                self._told[outage.domain] = one
                within = f"; domains {fold(one.domains)}" if one.domains else ""
                self.note(one, one.text + within, False)
        unknown = now < self._restored_until
        for domain in [domain for domain in self._told if domain not in found and not unknown]:
            told = self._told.pop(domain)
            was = before.get(domain, told.outage)
            was = replace(was, since=min(was.since, told.outage.since))
            left = len(was.silent & silent.get(domain, {}).keys())
            away = count_of(left, "node")
            text = f"{was.where}: over after {when(was.since, now)}; {away} still silent"
            self.note(told._replace(outage=was), text, True)
        if self._told.keys() != before_told.keys():
            self._save()

    def replace_all(self, outages: dict[str, Outage]) -> None:
        """These are the outages now, by domain."""
        self.by_domain = outages
        self.whole = whole(outages.values(), self.settings.outage_window_s)
        self._of = {key: one for one in reversed(self.whole) for key in one.outage.silent}
        holds = {one.outage.domain: Verdict(Why.OUTAGE, one.text) for one in self.whole}
        self.holds = {key: holds[one.outage.domain] for key, one in self._of.items()}

    def end(self, domain: str) -> None:
        """A person has ended the outage of a domain, with those in it: of what was told of these it
        is told that it is over. One that is over by then is no error."""
        ends = self.by_domain.get(domain)
        if ends is None:
            return
        left = {name: one for name, one in self.by_domain.items() if not one.silent <= ends.silent}
        for name in sorted(self.by_domain.keys() - left.keys()):
            told = self._told.pop(name, None)
            if told is not None and name != domain:
                text = f"{told.outage.where}: ended with that of {ends.where}"
                self.note(told._replace(outage=self.by_domain[name]), text, True)
        self._ended |= ends.silent
        self.replace_all(left)
        self._save()

    def of(self, key: str) -> Whole | None:
        """The outage that a node, by its id, fell silent in."""
        return self._of.get(key)

    def concerns(self, node: Node) -> bool:
        """Whether a node is one that fell silent in an outage, or in a domain that has one."""
        return node.id in self._of or not self.by_domain.keys().isdisjoint(node.domains)

    def view(self, names: Mapping[str, str], *, some: bool) -> list[dict[str, Any]]:
        """What is shown of them. `names` are those of the nodes that may be shown, by id; with
        `some`, only outages of such nodes, and no domain but theirs."""
        now = self.clock()
        return [
            {
                "domain": one.outage.domain,
                "where": one.outage.where,
                "domains": [] if some else list(one.domains),
                "seconds": round(now - one.outage.since, 1),
                "silent": len(one.outage.silent),
                "members": one.outage.members,
                "nodes": sorted(names[key] for key in one.outage.silent if key in names),
            }
            for one in self.whole
            if not some or not names.keys().isdisjoint(one.outage.silent)
        ]


def together(silent: Mapping[str, float], window_s: float) -> dict[str, float]:
    """Those of {node: since when it is silent} that fell silent with the newest of them."""
    newest = max(silent.values(), default=0.0)
    return {node: since for node, since in silent.items() if since >= newest - window_s}


def is_outage(silent: int, members: int, settings: GuardSettings) -> bool:
    """Whether so many of so many are an outage."""
    if silent == members:
        return members >= 2
    return silent > settings.outage_nodes and silent > settings.outage_share * members


def outages_now(
    outages: Mapping[str, Outage],
    members: Mapping[str, int],
    silent: Mapping[str, Mapping[str, float]],
    settings: GuardSettings,
    now: float,
    ended: Set[str] = frozenset(),
) -> dict[str, Outage]:
    """The outages now, by domain. `members` is how many nodes should speak, by domain and of the
    site; `silent` which of them do not, and since when. Of those `ended` none is called anew.

    A domain of one node, and a site of nodes that are all in one domain, are no evidence of their
    own.
    """
    found: dict[str, Outage] = {}
    recent = together(silent.get(SITE, {}), settings.outage_window_s)
    for domain in sorted(silent.keys() | outages.keys()):
        of_domain = silent.get(domain, {})
        count = members.get(domain, 0)
        old = outages.get(domain)
        if old is not None:
            after = _as_it_goes_on(old, of_domain.keys(), recent.keys(), count, settings, now)
            if after is not None:
                found[domain] = after
            continue
        gone = (of_domain.keys() & recent.keys()) - ended
        if is_outage(len(gone), count, settings):
            found[domain] = Outage(domain, min(recent[n] for n in gone), frozenset(gone), count)
    return found


def _as_it_goes_on(
    outage: Outage,
    silent: Set[str],
    recent: Set[str],
    members: int,
    settings: GuardSettings,
    now: float,
) -> Outage | None:
    """What has become of an outage, None if it is over. As long as nodes come back the others are
    waited for: they were away as long, and one comes back before the other. Those that have fallen
    silent since the first came back are `late`, or another wave of it."""
    if not silent:
        return None
    back = now if outage.silent - outage.late - silent else outage.back
    if back is None:
        if not is_outage(len(silent), members, settings):
            return None
        return replace(outage, silent=frozenset(silent), members=members)
    late = outage.late & silent
    if outage.back is not None:
        late |= silent - outage.silent
    if is_outage(len(late & recent), members, settings):
        return replace(
            outage, silent=frozenset(silent), members=members, back=None, late=frozenset()
        )
    if now - back >= settings.outage_settle_s:
        return None
    return replace(
        outage, silent=frozenset(silent), members=members, back=back, late=frozenset(late)
    )
