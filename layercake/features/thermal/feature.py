"""How warm nodes are, and what is done about it."""

from __future__ import annotations

import minos.events
from layercake.features.guard.guard import Guard
from layercake.features.thermal.manager import FILE, ThermalManager
from layercake.features.thermal.module import MODULE
from layercake.kernel.feature import Feature, Running
from layercake.kernel.kernel import Kernel


def _start(kernel: Kernel) -> Running:
    thermal = ThermalManager(
        kernel.data_dir / FILE,
        kernel.store,
        kernel.engine,
        kernel.desire,
        kernel.modules.ask,
        kernel.sync.push,
        kernel.part(Guard).stopped,
        active=kernel.table.modules.get(MODULE.name) is MODULE,
    )
    return Running(
        (thermal,),
        loops=(thermal.run,),
        forget=thermal.forget,
        hears={minos.events.THERMAL: thermal.apply_report},
    )


FEATURE = Feature("thermal", _start, needs=("guard",))
