"""What keeps the head from harming the site."""

from __future__ import annotations

from functools import partial

from layercake.features.guard.guard import Guard
from layercake.features.guard.lost_nodes import LostNodes, power_of
from layercake.features.guard.operations import GuardChanges
from layercake.features.guard.routes import GuardRoutes
from layercake.features.guard.witness import Witnesses
from layercake.kernel.feature import Feature, Running
from layercake.kernel.kernel import Kernel


def _start(kernel: Kernel) -> Running:
    guard = Guard(
        kernel.store,
        kernel.engine,
        kernel.section("guard"),
        Witnesses(kernel.node_link, partial(power_of, kernel.modules.ask)),
        kernel.orders,
        kernel.clock,
        partial(kernel.database.written, kernel.store),
        lambda: "" if kernel.site is None else kernel.site.why_not,
    )
    lost_nodes = LostNodes(kernel.engine, guard, kernel.manual_power, kernel.modules.ask)
    operations = GuardChanges(
        kernel.store,
        kernel.desire,
        guard,
        kernel.clock,
        kernel.running.decisions.stops_changed,
        kernel.orders,
    )

    def load() -> None:
        timers = kernel.sync.timers
        grace = kernel.clock() + timers.dead_s + timers.hello_s
        guard.load(kernel.database.documents("guard/"), grace)

    async def stop() -> None:
        await lost_nodes.stop()
        await guard.stop()

    return Running(
        (guard, operations),
        load=load,
        scan=guard.tick,
        stop=stop,
        forget=guard.forget,
        routes=(GuardRoutes(operations, guard),),
        gate=guard,
        stopped=guard.stopped,
        spoke=guard.node_spoke,
        lost=lost_nodes.report,
    )


FEATURE = Feature("guard", _start, routes=(GuardRoutes,))
