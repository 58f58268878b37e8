"""How the head itself is."""

from __future__ import annotations

import time

from layercake.features.guard.guard import Guard
from layercake.features.heads.known import KnownHeads
from layercake.features.history.history import History
from layercake.features.inventory.secret_warnings import Warnings
from layercake.features.nodes.lists.metrics import Tally
from layercake.features.rolls.manager import Rolls
from layercake.features.status.answers import HeadsBrief
from layercake.features.status.metrics import Metrics
from layercake.features.status.routes import StatusRoutes
from layercake.features.status.views import Census, Observed
from layercake.kernel.feature import Feature, Running
from layercake.kernel.kernel import Kernel


def _of_heads(kernel: Kernel) -> HeadsBrief:
    """How the heads of the site are; nothing where there is one."""
    heads = kernel.find(KnownHeads)
    if heads is None:
        return HeadsBrief()
    return HeadsBrief(heads.roles, heads.refuses, [one.line for one in heads.troubles])


def _start(kernel: Kernel) -> Running:
    guard = kernel.part(Guard)
    observed = Observed(
        kernel.store,
        kernel.table,
        kernel.clock,
        kernel.database,
        kernel.sync,
        kernel.modules.services,
        kernel.authority,
        kernel.lag,
        kernel.modules.ask,
        kernel.modules.boot_timeouts,
        guard,
        kernel.part(Rolls),
        kernel.part(Tally),
        kernel.part(History),
        kernel.served,
        kernel.modules.log_levels,
        kernel.settings.addresses[0],
        time.monotonic(),
    )
    census = Census(kernel.store, kernel.clock, guard.why)  # counted once for all who ask
    metrics = Metrics(observed, census, lambda: kernel.find(KnownHeads))
    routes = StatusRoutes(
        observed, census, metrics, kernel.part(Warnings), lambda: _of_heads(kernel)
    )
    return Running((observed, census, metrics), routes=(routes,))


FEATURE = Feature(
    "status",
    _start,
    needs=("guard", "history", "inventory", "nodes", "rolls"),
    routes=(StatusRoutes,),
)
