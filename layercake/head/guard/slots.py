"""How much happens at once: remedies, boots and power-ons, over the site and in each domain. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from layercake.head.guard.outage import SITE
from layercake.head.guard.settings import GuardSettings


class Slots:
    """Who has a slot. A node in several domains has one in each."""

    def __init__(self, settings: GuardSettings) -> None:
        self._settings = settings
        self._held: dict[str, tuple[bool, tuple[str, ...]]] = {}
        self._remedies: Counter[str] = Counter()
        self._boots: Counter[str] = Counter()
        self._switched: dict[str, list[float]] = {}

    def __contains__(self, node: str) -> bool:
        return node in self._held

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._held))

    def full(self, domains: Iterable[str], *, remedy: bool, now: float) -> str:
        """Why a node of these domains gets no slot now, "" if it may have one."""
        for domain in (SITE, *domains):
            where = f"in domain {domain}" if domain else "at the site"
            remedies = self._settings.remedies if domain else self._settings.site_remedies
            boots = self._settings.boots if domain else self._settings.site_boots
            if remedy and self._remedies[domain] >= remedies:
                return f"{self._remedies[domain]} silent nodes are treated {where}, no more at once"
            if self._boots[domain] >= boots:
                return f"{self._boots[domain]} nodes boot {where}, no more at once"
            recent = [at for at in self._switched.get(domain, ()) if now - at < self._settings.inrush_s]
            if domain and len(recent) >= self._settings.power_ons:
                return f"{len(recent)} nodes {where} were just switched on"
        return ""

    def take(self, node: str, domains: tuple[str, ...], *, remedy: bool) -> None:
        """Gives a node a slot, until `free`."""
        self.free(node)
        self._held[node] = (remedy, domains)
        for domain in (SITE, *domains):
            self._boots[domain] += 1
            self._remedies[domain] += remedy

    def switched(self, domains: Iterable[str], now: float) -> None:
        """A node of these domains is switched on."""
        for domain in domains:
            times = self._switched.setdefault(domain, [])
            times[:] = [at for at in times if now - at < self._settings.inrush_s] + [now]

    def free(self, node: str) -> None:
        """A node is up, or given up."""
        remedy, domains = self._held.pop(node, (False, None))
        for domain in (SITE, *domains) if domains is not None else ():
            self._boots[domain] -= 1
            self._remedies[domain] -= remedy
