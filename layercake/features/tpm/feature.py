"""TPMs of nodes: who a machine is and what it has booted, shown at the join."""

from __future__ import annotations

from layercake.features.machines.manager import Machines
from layercake.features.tpm.manager import Tpms
from layercake.features.tpm.node_routes import TpmCheck
from layercake.features.tpm.operations import NodeTpms
from layercake.features.tpm.routes import TpmRoutes
from layercake.kernel.feature import Feature, Running
from layercake.kernel.kernel import Kernel


def _start(kernel: Kernel) -> Running:
    tpms = Tpms(
        kernel.store,
        kernel.database,
        kernel.section("tpm"),
        kernel.clock,
        kernel.running.decisions.boot_set,
        kernel.part(Machines).endorsement,
    )
    kernel.store.listen(tpms.note_event)
    check = TpmCheck(kernel.store, kernel.joining, tpms)
    operations = NodeTpms(kernel.store, kernel.desire, tpms)
    return Running(
        (tpms, operations),
        load=tpms.load,
        removed=tpms.removed,
        routes=(TpmRoutes(operations),),
        node_routes=check.routes(),
        troubles={"tpm": tpms.troubles},
        join_check=check,
        guard_secrets=tpms.guard_secrets,
        boot_proof=tpms,
    )


FEATURE = Feature("tpm", _start, needs=("machines",), routes=(TpmRoutes,))
