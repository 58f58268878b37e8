"""Events, told to others by HTTP."""

from __future__ import annotations

from layercake.features.webhooks.sender import Webhooks
from layercake.fleet.store import Record
from layercake.kernel.feature import Feature, Running
from layercake.kernel.kernel import Kernel


def _start(kernel: Kernel) -> Running:
    def expected(record: Record) -> bool:
        gate = kernel.running.decisions.gate
        return record.care.maintenance is not None or (gate is not None and gate.spares(record))

    webhooks = Webhooks(
        kernel.section("webhooks"),
        kernel.store,
        kernel.vault,
        kernel.settings.addresses[0],
        expected,
    )

    async def run() -> None:
        await webhooks.run(kernel.database)

    return Running((webhooks,), loops=(run,))


FEATURE = Feature("webhooks", _start)
