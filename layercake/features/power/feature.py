"""The power of nodes, their sensors and caps, by their BMCs."""

from __future__ import annotations

from layercake.features.calls.operations import Calls
from layercake.features.guard.guard import Guard
from layercake.features.nodes.operations import Nodes
from layercake.features.power.operations import Power
from layercake.features.power.routes import PowerRoutes
from layercake.kernel.feature import Feature, Running
from layercake.kernel.kernel import Kernel


def _start(kernel: Kernel) -> Running:
    power = Power(
        kernel.store,
        kernel.desire,
        kernel.part(Guard),
        kernel.table,
        kernel.clock,
        kernel.modules.ask,
        kernel.node_link,
        kernel.networks,
        kernel.orders,
        kernel.part(Calls),
    )
    return Running((power,), routes=(PowerRoutes(power, kernel.part(Nodes)),))


FEATURE = Feature("power", _start, needs=("calls", "guard", "nodes"), routes=(PowerRoutes,))
