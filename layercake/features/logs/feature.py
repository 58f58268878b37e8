"""The head's own log, and those of containers and consoles, to collectors; and how much is
logged."""

from __future__ import annotations

from layercake.features.logs.routes import LogLevelRoutes
from layercake.features.logs.sources import Logs
from layercake.kernel.feature import Feature, Running
from layercake.kernel.kernel import Kernel


def _start(kernel: Kernel) -> Running:
    logs = Logs(
        kernel.section("logs"), kernel.store, kernel.vault, kernel.node_link, kernel.modules.ask
    )
    routes = LogLevelRoutes(kernel.modules.log_levels, kernel.store)
    return Running((logs,), loops=(logs.run,), stop=logs.stop, routes=(routes,))


FEATURE = Feature("logs", _start, routes=(LogLevelRoutes,))
