"""The power of nodes, their sensors and caps, by their BMCs."""

from __future__ import annotations

from layercake.features.calls.operations import Calls
from layercake.features.guard.guard import Guard
from layercake.features.nodes.operations import Nodes
from layercake.features.power.operations import Power
from layercake.features.power.readings import NodeReadings
from layercake.features.power.routes import PowerRoutes
from layercake.kernel.feature import Feature, Running
from layercake.kernel.kernel import Kernel


def _start(kernel: Kernel) -> Running:
    guard = kernel.part(Guard)
    power = Power(
        kernel.store,
        kernel.desire,
        guard,
        kernel.table,
        kernel.clock,
        kernel.modules.ask,
        kernel.node_link,
        kernel.networks,
        kernel.orders,
        kernel.part(Calls),
    )
    readings = NodeReadings(
        kernel.store,
        kernel.modules.ask,
        lambda record: guard.outages.of(record.node.id) is not None,
    )
    return Running(
        (power, readings),
        loops=(readings.run,),
        removed=lambda record: readings.forget(record.node.id),
        routes=(PowerRoutes(power, kernel.part(Nodes), readings),),
    )


FEATURE = Feature("power", _start, needs=("calls", "guard", "nodes"), routes=(PowerRoutes,))
