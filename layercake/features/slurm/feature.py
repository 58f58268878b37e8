"""A Slurm whose nodes are ours: rolls wait until it has let go of a node."""

from __future__ import annotations

from layercake.features.rolls.facts import Kind, Roll
from layercake.features.rolls.manager import Rolls
from layercake.features.slurm.slurm import Scontrol, Slurm
from layercake.features.thermal.manager import ThermalManager
from layercake.kernel.feature import Feature, Running
from layercake.kernel.kernel import Kernel
from layercake.kraken.events import EventKind


def draining(rolls: Rolls) -> list[Roll]:
    """The rolls that nodes are drained for: an agent is replaced while jobs run."""
    begun = [roll for roll in rolls.all() if not roll.scheduled]
    return [roll for roll in begun if roll.kind is not Kind.AGENT]


def _start(kernel: Kernel) -> Running:
    settings = kernel.section("slurm")
    store = kernel.store
    rolls = kernel.part(Rolls)
    if not (settings.conf and settings.drain):
        return Running()

    def note(key: str, kind: EventKind, text: str) -> None:
        store.event(store.find(key) if key else None, kind, text)

    def maintained() -> dict[str, str]:
        return {r.name: r.node.id for r in store if r.care.maintenance is not None}

    gate = Slurm(
        Scontrol(settings.conf),
        lambda: draining(rolls),
        rolls.touch,
        note,
        maintained,
        kernel.part(ThermalManager).heat,
        lambda: [r.name for r in store if r.node.state == "off"],
    )
    rolls.wait_for(gate)

    async def run() -> None:
        await gate.run(settings.poll_s)

    return Running((gate,), loops=(run,))


FEATURE = Feature("slurm", _start, needs=("rolls", "thermal"))
