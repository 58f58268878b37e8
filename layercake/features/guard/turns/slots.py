"""How much happens at once: remedies, boots and power-ons, over the site, in each domain and in
each network. Pure."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from layercake.base.text import count_of
from layercake.features.guard.outage import SITE
from layercake.features.guard.settings import GuardSettings


@dataclass(frozen=True, slots=True)
class _Held:
    remedy: bool
    domains: tuple[str, ...]
    network: str
    since: float


class Slots:
    """Who has a slot. A node in several domains has one in each, and one in its network."""

    def __init__(self, settings: GuardSettings) -> None:
        self.settings = settings
        self._held: dict[str, _Held] = {}
        self._remedies: Counter[str] = Counter()
        self._boots: Counter[str] = Counter()
        self._networks: Counter[str] = Counter()
        self._switched: dict[str, deque[float]] = {}

    def __contains__(self, node: str) -> bool:
        return node in self._held

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._held))

    def __len__(self) -> int:
        return len(self._held)

    @property
    def none_left(self) -> bool:
        """Whether no node of the site gets a slot now, whichever it is."""
        return len(self._held) >= self.settings.site_boots

    def full(self, domains: Iterable[str], *, remedy: bool, now: float, network: str = "") -> str:
        """Why a node of these domains and this network gets no slot now, "" if it may have one."""
        for domain in (SITE, *domains):
            where = f"in domain {domain}" if domain else "at the site"
            remedies = self.settings.remedies if domain else self.settings.site_remedies
            boots = self.settings.boots if domain else self.settings.site_boots
            if remedy and self._remedies[domain] >= remedies:
                treated = count_of(self._remedies[domain], "remedy", "remedies")
                return f"{treated} under way {where}, no more at once"
            if self._boots[domain] >= boots:
                return f"{count_of(self._boots[domain], 'boot')} under way {where}, no more at once"
            recent = len(self._recent(domain, now))
            if recent >= (self.settings.power_ons if domain else self.settings.site_power_ons):
                return f"{count_of(recent, 'node')} just switched on {where}"
        if self._networks[network] >= self.settings.network_boots:
            return (
                f"{count_of(self._networks[network], 'boot')} under way in network "
                f"{network or 'of the head'}, no more at once"
            )
        return ""

    def reserve(
        self,
        node: str,
        domains: tuple[str, ...],
        *,
        remedy: bool,
        now: float = 0.0,
        network: str = "",
    ) -> None:
        """Gives a node a slot, until `free`."""
        self.free(node)
        self._held[node] = _Held(remedy, domains, network, now)
        self._networks[network] += 1
        for domain in (SITE, *domains):
            self._boots[domain] += 1
            self._remedies[domain] += remedy

    def switched(self, domains: Iterable[str], now: float) -> None:
        """A node of these domains is switched on."""
        for domain in (SITE, *domains):
            self._recent(domain, now).append(now)

    def _recent(self, domain: str, now: float) -> deque[float]:
        """When nodes of a domain were just switched on."""
        times = self._switched.setdefault(domain, deque())
        while times and now - times[0] >= self.settings.inrush_s:
            times.popleft()
        return times

    def free(self, node: str) -> float | None:
        """A node is up, or given up. Since when it had a slot, None if it had none."""
        held = self._held.pop(node, None)
        if held is None:
            return None
        self._networks[held.network] -= 1
        for domain in (SITE, *held.domains):
            self._boots[domain] -= 1
            self._remedies[domain] -= held.remedy
        return held.since
