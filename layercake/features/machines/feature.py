"""What is known of machines: their hardware, where they are cabled, which no inventory knows."""

from __future__ import annotations

from layercake.features.disks.node_disks import NodeDisks
from layercake.features.guard.guard import Guard
from layercake.features.machines.manager import Machines
from layercake.features.machines.module import HARDWARE
from layercake.features.machines.node_routes import MachineReports
from layercake.features.machines.operations import MachineRequests
from layercake.features.machines.routes import MachineRoutes
from layercake.features.machines.table import Rows
from layercake.features.machines.views import hardware_field, hardware_of, why_held
from layercake.fleet.store import Record
from layercake.kernel.feature import Feature, Running
from layercake.kernel.kernel import Kernel
from layercake.kraken.converge import Discovered
from layercake.moduleapi.strangers import Tickets


def _start(kernel: Kernel) -> Running:
    store = kernel.store
    guard = kernel.part(Guard)

    def drifted(record: Record, lines: tuple[str, ...]) -> None:
        """A node's hardware was looked at: whether it is as it was accepted."""
        values = {HARDWARE.name: "DRIFTED" if lines else "OK"}
        kernel.engine.post(record, Discovered(values, lines[0] if lines else "its survey"))

    def keeps(record: Record) -> str:
        """Why a node keeps its place when another machine claims it."""
        return "its agent answers" if kernel.sync.speaks(record) else guard.stopped(record)

    machines = Machines(
        store,
        Rows(kernel.database, store),
        Tickets(kernel.data_dir, store.wall),
        kernel.modules.ask,
        store.wall,
        drifted=drifted,
        keeps=keeps,
        take=kernel.running.decisions.change_cards,
    )

    def hardware(record: Record) -> list[str]:
        return hardware_of(record, machines)

    def held(record: Record) -> str:
        return why_held(record, machines)

    operations = MachineRequests(
        store, kernel.desire, kernel.modules.ask, machines, kernel.part(NodeDisks)
    )
    return Running(
        (machines, operations),
        load=machines.load,
        removed=machines.removed,
        routes=(MachineRoutes(operations),),
        node_routes=MachineReports(machines).routes(),
        troubles={"hardware": hardware},
        stopped=held,
        claimed=machines.replacing.asked,
        fields={"hardware": hardware_field(machines)},
    )


FEATURE = Feature("machines", _start, needs=("disks", "guard"), routes=(MachineRoutes,))
