"""The power of nodes, their sensors and caps, by their BMCs."""

from __future__ import annotations

from layercake.features.calls.operations import Calls
from layercake.features.guard.guard import Guard
from layercake.features.nodes.operations import Nodes
from layercake.features.power.operations import Power
from layercake.features.power.passwords import DOCUMENTS, PASSWORD, BmcPasswords
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
    passwords = BmcPasswords(
        kernel.store,
        kernel.desire,
        kernel.part(Guard),
        kernel.vault,
        kernel.modules.ask,
        lambda: kernel.table.caller.get(PASSWORD),
        kernel.modules.notifier.changed,
    )
    kernel.modules.notifier.secret_of = passwords.current
    return Running(
        (power, passwords),
        load=lambda: passwords.load(kernel.database.documents(DOCUMENTS)),
        forget=passwords.forget,
        stop=passwords.stop,
        troubles={"bmc": passwords.uncertain},
        routes=(PowerRoutes(power, kernel.part(Nodes), passwords),),
    )


FEATURE = Feature("power", _start, needs=("calls", "guard", "nodes"), routes=(PowerRoutes,))
