"""The consoles of nodes."""

from __future__ import annotations

from layercake.features.calls.operations import Calls
from layercake.features.consoles.operations import Consoles
from layercake.features.consoles.routes import ConsoleRoutes
from layercake.kernel.feature import Feature, Running
from layercake.kernel.kernel import Kernel


def _start(kernel: Kernel) -> Running:
    consoles = Consoles(kernel.store, kernel.modules.ask, kernel.part(Calls))
    return Running((consoles,), routes=(ConsoleRoutes(consoles),))


FEATURE = Feature("consoles", _start, needs=("calls",), routes=(ConsoleRoutes,))
