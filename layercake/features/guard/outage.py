"""Outages: when many nodes fall silent together, that is the network's or the power's fault until
shown otherwise. Pure.

The rule is that of others: OpenShift's MachineHealthCheck stops its remedies above maxUnhealthy,
Kubernetes' node lifecycle controller when most of a zone is gone, Ceph's
mon_osd_down_out_subtree_limit when a whole rack is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from layercake.features.guard.settings import GuardSettings

SITE = ""
"""The domain that every node is in."""


@dataclass(frozen=True, slots=True)
class Outage:
    """Many nodes of a domain are silent. `silent` are their ids, `members` how many of the domain
    there are, `back` when one last came back, None before."""

    domain: str
    since: float
    silent: frozenset[str]
    members: int
    back: float | None = None

    @property
    def where(self) -> str:
        """The domain in words."""
        return f"domain {self.domain}" if self.domain else "the site"

    def view(self, names: Mapping[str, str], now: float) -> dict[str, Any]:
        """What is shown of it. `names` are those of the nodes that may be shown, by id."""
        return {
            "domain": self.domain,
            "where": self.where,
            "seconds": round(now - self.since, 1),
            "silent": len(self.silent),
            "members": self.members,
            "nodes": sorted(names[key] for key in self.silent if key in names)[:100],
        }


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
) -> dict[str, Outage]:
    """The outages now, by domain. `members` is how many nodes should speak, by domain and of the
    site; `silent` which of them do not, and since when.

    A domain of one node, and a site of nodes that are all in one domain, are no evidence of their
    own.
    """
    found: dict[str, Outage] = {}
    recent = together(silent.get(SITE, {}), settings.outage_window_s)
    for domain in sorted(silent.keys() | outages.keys()):
        of_domain = silent.get(domain, {})
        count = members.get(domain, 0)
        old = outages.get(domain)
        gone = of_domain.keys() & (recent.keys() if old is None else of_domain.keys())
        if old is None:
            if is_outage(len(gone), count, settings):
                found[domain] = Outage(domain, min(recent[n] for n in gone), frozenset(gone), count)
            continue
        back = now if old.silent - gone else old.back
        settled = back is not None and now - back >= settings.outage_settle_s
        receding = (
            back is not None
        )  # the others follow: they were away as long, and one comes back before the other
        if gone and (receding or is_outage(len(gone), count, settings)) and not settled:
            found[domain] = replace(old, silent=frozenset(gone), members=count, back=back)
    return found
