"""What happened, and what happens."""

from __future__ import annotations

from layercake.features.events.routes import EventRoutes
from layercake.kernel.feature import Feature, Running
from layercake.kernel.kernel import Kernel


def _start(kernel: Kernel) -> Running:
    history = kernel.database.history
    routes = EventRoutes(kernel.store, kernel.table, history, kernel.running.decisions.matching)
    return Running(routes=(routes,))


FEATURE = Feature("events", _start, routes=(EventRoutes,))
