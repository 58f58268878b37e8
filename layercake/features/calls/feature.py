"""What modules can be asked."""

from __future__ import annotations

from layercake.features.calls.operations import Calls
from layercake.features.calls.routes import CallRoutes
from layercake.kernel.feature import Feature, Running
from layercake.kernel.kernel import Kernel


def _start(kernel: Kernel) -> Running:
    calls = Calls(kernel.store, kernel.table, kernel.modules.ask)
    return Running((calls,), routes=(CallRoutes(calls),))


FEATURE = Feature("calls", _start, routes=(CallRoutes,))
