"""TPMs of nodes: who a machine is and what it has booted, shown at the join."""

from __future__ import annotations

from layercake.features.boots.boot_sets import BootSets
from layercake.features.machines.manager import Machines
from layercake.features.tpm.manager import Tpms
from layercake.features.tpm.node_routes import TpmCheck
from layercake.fleet.store import Record
from layercake.kernel.feature import Feature, Running
from layercake.kernel.kernel import Kernel


def _start(kernel: Kernel) -> Running:
    boots = kernel.part(BootSets)

    def ordered(record: Record) -> str:
        return boots.served(record.boots, record.node.profile, record.node.arch)

    tpms = Tpms(
        kernel.store,
        kernel.database,
        kernel.section("tpm"),
        kernel.clock,
        ordered,
        kernel.part(Machines).endorsement,
    )
    check = TpmCheck(kernel.store, kernel.joining, tpms)
    return Running(
        tpms,
        load=tpms.load,
        removed=tpms.removed,
        node_routes=check.routes(),
        join_check=check,
        guard_secrets=tpms.guard_secrets,
    )


FEATURE = Feature("tpm", _start, needs=("machines",))
