"""The power of nodes, their sensors and caps, by their BMCs."""

from __future__ import annotations

from layercake.features.calls.operations import Calls
from layercake.features.guard.guard import Guard
from layercake.features.nodes.operations import Nodes
from layercake.features.power.operations import Power
from layercake.features.power.passwords import DOCUMENTS, PASSWORD, BmcPasswords
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
    passwords = BmcPasswords(
        kernel.store,
        kernel.desire,
        guard,
        kernel.vault,
        kernel.modules.ask,
        lambda: kernel.table.caller.get(PASSWORD),
        kernel.modules.notifier.changed,
    )
    kernel.modules.notifier.secret_of = passwords.current
    return Running(
        (power, passwords, readings),
        load=lambda: passwords.load(kernel.database.documents(DOCUMENTS)),
        loops=(readings.run,),
        forget=passwords.forget,
        removed=lambda record: readings.forget(record.node.id),
        stop=passwords.stop,
        troubles={"bmc": passwords.uncertain},
        routes=(PowerRoutes(power, kernel.part(Nodes), passwords, readings),),
    )


FEATURE = Feature("power", _start, needs=("calls", "guard", "nodes"), routes=(PowerRoutes,))
