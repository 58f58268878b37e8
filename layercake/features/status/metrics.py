"""The head's metrics for Prometheus."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from layercake import __version__
from layercake.base.histogram import Histogram
from layercake.features.heads.known import KnownHeads
from layercake.features.nodes.lists.causes import alike, what_of
from layercake.features.nodes.lists.metrics import Page, process, states
from layercake.features.nodes.views import Status
from layercake.features.rolls.facts import Phase
from layercake.features.status.heads_metrics import add_heads
from layercake.features.status.views import Census, Observed
from layercake.fleet import events
from layercake.kraken.errors import LayercakeError
from layercake.moduleapi.event_loop.slices import slowly

CAUSES_S = 15.0
"""How old the causes may be that are told. They are gathered anew beside everything else: 10,000
nodes take 0.2 s of the head."""
LATENCY = "power.latency"
BOOT = "boot.stats"
ASKED_S = 1.0
"""The calls by which modules are asked what they have counted, and for how long it is waited."""
_BOOT = {
    "dhcp": ("dhcp_packets_total", "DHCP packets, by what became of them."),
    "dhcpv6": ("dhcpv6_packets_total", "DHCPv6 packets, by what became of them."),
    "tftp": ("tftp_transfers_total", "TFTP transfers, by what became of them."),
    "http": ("boot_http_requests_total", "Requests for boot files by HTTP, by class of answer."),
    "dns": ("dns_queries_total", "DNS queries, by what became of them."),
    "ntp": ("ntp_requests_total", "Requests for the time, by what became of them."),
}
"""The protocols that the boot service counts: the metric of each."""
_ENDS = {
    "done": events.ROLL_DONE.name,
    "failed": events.ROLL_FAILED.name,
    "aborted": events.ROLL_ABORTED.name,
}
MOST_CAUSES = 50
"""Causes that are told, those of most nodes. Others are counted together."""


class Metrics:
    """Makes the pages."""

    def __init__(
        self, observed: Observed, census: Census, heads: Callable[[], KnownHeads | None]
    ) -> None:
        self._heads = heads
        self._observed = observed
        self._census = census
        self._causes: Counter[tuple[str, str]] = Counter()
        self._gathered = float("-inf")
        self._gathering: asyncio.Task[None] | None = None
        self._latencies: list[dict[str, Any]] = []
        self._boot: dict[str, int] = {}

    async def page(self) -> str:
        """What is so now, in the text format."""
        if self._gathering is None and time.monotonic() - self._gathered > CAUSES_S:
            self._gathering = asyncio.create_task(self._gather())
            if self._gathered == float("-inf"):
                await asyncio.shield(self._gathering)
        counts = await self._census.counts()
        page = Page()
        page.add("info", "gauge", "The version of the head.", [({"version": __version__}, 1)])
        page.add(
            "nodes", "gauge", "Nodes by status.", [({"status": s.value}, counts[s]) for s in Status]
        )
        page.add(
            "nodes_state",
            "gauge",
            "Nodes by the values of their variables.",
            [
                ({"variable": v, "value": x}, n)
                for (v, x), n in sorted(states(self._observed.store).items())
            ],
        )
        told = self._causes.most_common(MOST_CAUSES)
        others = self._causes.total() - sum(n for _, n in told)
        page.add(
            "nodes_cause",
            "gauge",
            "Nodes that are not as wanted, by cause (`layercake explain`).",
            [
                ({"status": s, "cause": c}, n)
                for (s, c), n in (*told, *([(("", "others"), others)] if others else []))
            ],
        )
        self._site(page)
        self._work(page)
        self._loop(page)
        self._requests(page)
        self._certificates(page)
        if (known := self._heads()) is not None:
            add_heads(page, known)
        await self._ask_modules()
        self._bmcs(page)
        self._boots(page)
        for name, kind, help_, value in process():
            page.add(name, kind, help_, [({}, value)])
        return page.text()

    def _site(self, page: Page) -> None:
        observed = self._observed
        guard = observed.guard.view()
        page.add(
            "frozen",
            "gauge",
            "Whether the whole site is frozen.",
            [({}, guard["frozen"] is not None)],
        )
        stops = Counter(
            why
            for r in observed.store
            for why, stop in (
                ("freeze", r.care.freeze),
                ("maintenance", r.care.maintenance),
                ("release", r.held),
            )
            if stop is not None
        )
        page.add(
            "nodes_stopped",
            "gauge",
            "Nodes that a person keeps the head from.",
            [({"by": why}, stops[why]) for why in ("freeze", "maintenance", "release")],
        )
        page.add("outages", "gauge", "Outages that are under way.", [({}, len(guard["outages"]))])
        page.add("nodes_silent", "gauge", "Nodes that fell silent.", [({}, guard["silent"])])
        page.add(
            "remedies_held", "gauge", "Steps that the guard holds back.", [({}, guard["waiting"])]
        )
        page.add(
            "boots",
            "gauge",
            "Nodes that boot, and that wait for their turn to.",
            [({"state": word}, guard["boots"][word]) for word in ("booting", "waiting")],
        )
        self._services(page)

    def _services(self, page: Page) -> None:
        observed = self._observed
        page.add(
            "service_up",
            "gauge",
            "Whether a module's process runs.",
            [
                ({"service": s.name}, s.state.value == "running")
                for s in observed.services.status.values()
            ],
        )
        page.add(
            "service_restarts_total",
            "counter",
            "How often a module's process was started anew.",
            [({"service": s.name}, s.restarts) for s in observed.services.status.values()],
        )
        well = observed.database.health.view(observed.store)
        page.add(
            "database_up",
            "gauge",
            "Whether the database is written as it should be.",
            [({}, well["well"])],
        )
        page.add(
            "database_waiting_events",
            "gauge",
            "Events that wait to be written.",
            [({}, well["waiting"])],
        )

    def _work(self, page: Page) -> None:
        observed = self._observed
        tally = self._observed.tally
        rolls = Counter(roll.state.value for roll in observed.rolls.all())
        page.add(
            "rolls",
            "gauge",
            "Rolls by state, of those that are kept.",
            [({"state": phase.value}, rolls[phase.value]) for phase in Phase],
        )
        page.add(
            "rolls_ended_total",
            "counter",
            "Rolls that have ended since the head has started, by how.",
            [({"how": how}, tally.events[kind]) for how, kind in _ENDS.items()],
        )
        page.add(
            "sync_datagrams_total",
            "counter",
            "Datagrams of nodes, by what became of them.",
            [({"what": what}, n) for what, n in sorted(observed.sync.counters.items())],
        )
        page.add(
            "events_total",
            "counter",
            "Events since the head has started, by kind.",
            [({"kind": kind}, n) for kind, n in sorted(tally.events.items())],
        )
        page.add(
            "mutation_failures_total",
            "counter",
            "Attempts at mutations that have failed.",
            [({"mutation": m}, n) for m, n in sorted(tally.failed.items())],
        )
        page.histograms(
            "mutation_seconds",
            "How long mutations took that were done.",
            [({"mutation": m}, took) for m, took in tally.took.items()],
        )
        page.histograms(
            "convergence_seconds",
            "How long nodes were not as wanted, of those that are again.",
            [({}, tally.converged)],
        )

    def _loop(self, page: Page) -> None:
        lag = self._observed.lag
        page.histograms(
            "loop_lag_seconds",
            "How late the head's loop was, looked at four times a second.",
            [({}, lag.late)],
        )
        page.add(
            "loop_lag_max_seconds",
            "gauge",
            "The longest that the head's loop was held up, of the last minute.",
            [({}, lag.most_s)],
        )
        page.add(
            "loop_stood_still_seconds_total",
            "counter",
            "For how long the head stood still, as one that was suspended.",
            [({}, lag.stood_s)],
        )

    def _requests(self, page: Page) -> None:
        served = self._observed.served
        page.add(
            "http_requests_total",
            "counter",
            "Requests to the head, by route and class of answer.",
            [
                ({"method": method, "route": route, "code": code}, n)
                for (method, route, code), n in sorted(served.answers.items())
            ],
        )
        page.histograms(
            "http_request_seconds",
            "How long the head took for its answers, of the routes that were asked for.",
            [
                ({"method": method, "route": route}, took)
                for (method, route), took in sorted(served.took.items())
            ],
        )

    def _certificates(self, page: Page) -> None:
        observed = self._observed
        ends = {age.what: age.until for age in observed.authority.ages()}
        made = [
            r.trust.at
            for r in observed.store
            if r.session is not None and r.trust.has == r.trust.certificate
        ]
        if made:
            left = min(made) + observed.authority.life_s - observed.clock()
            ends["nodes"] = observed.store.wall() + left
        page.add(
            "certificate_expiry_timestamp_seconds",
            "gauge",
            "When certificates end: the head's, its authority's, and the first of nodes.",
            [({"certificate": what}, round(until)) for what, until in sorted(ends.items())],
        )

    async def _ask_modules(self) -> None:
        """What modules have counted; as it was last, while they do not answer."""
        self._latencies, self._boot = await asyncio.gather(
            self._asked(LATENCY, self._latencies), self._asked(BOOT, self._boot)
        )

    async def _asked(self, call: str, last: Any) -> Any:
        with contextlib.suppress(LayercakeError, TimeoutError):
            async with asyncio.timeout(ASKED_S):
                return await self._observed.ask(call, {})
        return last

    def _boots(self, page: Page) -> None:
        for protocol, (name, help_) in _BOOT.items():
            counted = {
                key.removeprefix(f"{protocol}."): n
                for key, n in self._boot.items()
                if key.startswith(f"{protocol}.")
            }
            page.add(
                name, "counter", help_, [({"what": what}, n) for what, n in sorted(counted.items())]
            )

    def _bmcs(self, page: Page) -> None:
        found = []
        for one in self._latencies:
            histogram = Histogram(one["bounds"])
            histogram.counts = one["counts"]
            histogram.sum = one["sum"]
            found.append(({"driver": one["driver"]}, histogram))
        page.histograms("bmc_seconds", "How long operations of BMCs took that were done.", found)
        page.add(
            "bmc_failures_total",
            "counter",
            "Operations of BMCs that came to nothing.",
            [({"driver": one["driver"]}, one["failed"]) for one in self._latencies],
        )

    async def _gather(self) -> None:
        try:
            observed = self._observed
            found = Counter[tuple[str, str]]()
            now = observed.clock()
            outages = observed.guard.outages
            async for record in slowly(list(observed.store)):
                what = what_of(
                    record,
                    now,
                    observed.guard.why(record),
                    observed.guard.stopped(record),
                    observed.boot_timeouts.last_step(record),
                    outage=outages.of(record.node.id),
                    brief=True,
                )
                if what is not None:
                    found[what.status, alike(what.text, record)] += 1
            self._causes = found
            self._gathered = time.monotonic()
        finally:
            self._gathering = None
