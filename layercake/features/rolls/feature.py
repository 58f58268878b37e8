"""Rolls: nodes are moved to other images, agents and boot sets, in batches with gates."""

from __future__ import annotations

from layercake.api.delegation import Delegations
from layercake.features.guard.guard import Guard
from layercake.features.rolls import subjects
from layercake.features.rolls.facts import Kind
from layercake.features.rolls.later.schedule import RollSchedule
from layercake.features.rolls.manager import Rolls
from layercake.features.rolls.operations import RollRequests
from layercake.features.rolls.routes import RollRoutes
from layercake.features.rolls.views import roll_field
from layercake.fleet.store import Record
from layercake.kernel.feature import Feature, Running
from layercake.kernel.kernel import Kernel


def _start(kernel: Kernel) -> Running:
    def stopped(record: Record) -> str:
        return kernel.running.decisions.stopped(record) or kernel.table.held(record)

    guard = kernel.part(Guard)

    def frozen() -> str:
        return "" if guard.freeze is None else f"{guard.freeze.by}: {guard.freeze.reason}"

    desire = kernel.desire
    boot_sets = subjects.BootSets(
        desire, kernel.clock, kernel.modules.notifier.changed, kernel.modules.boot_timeouts.takes_s
    )
    rolls = Rolls(
        kernel.store,
        desire,
        kernel.sync,
        kernel.database,
        kernel.clock,
        {Kind.IMAGES: subjects.Images(desire), Kind.AGENT: subjects.Agents(), Kind.BOOT: boot_sets},
        stopped,
        frozen,
    )
    operations = RollRequests(
        kernel.store,
        desire,
        guard,
        kernel.table,
        kernel.sync,
        rolls,
        Delegations(kernel.section("delegated")),
    )

    def revoked(token: str) -> bool:
        access = kernel.running.access
        return access is not None and access.is_revoked(token)

    schedule = RollSchedule(rolls, kernel.store.wall, revoked)
    schedule.begins(Kind.IMAGES, operations.begin)

    def tick() -> None:
        rolls.tick()
        schedule.tick()

    return Running(
        (rolls, operations, schedule),
        load=rolls.load,
        tick=tick,
        loops=(rolls.run, schedule.run),
        routes=(RollRoutes(operations, rolls, kernel.store),),
        stops_changed=rolls.touch,
        fields={"roll": roll_field(rolls)},
    )


FEATURE = Feature("rolls", _start, needs=("guard",), routes=(RollRoutes,))
