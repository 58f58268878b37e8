"""How much a machine may draw: read, and set until the BMC says so itself."""

from __future__ import annotations

from layercake.kraken.errors import OperationFailed
from powerman.bmc import ManagedBmc
from powerman.driver import PowerCap, Unsupported

_PAUSE_S = 0.5


async def read_cap(bmc: ManagedBmc) -> int | None:
    """How many watts a node may draw, None for as many as it likes. Inside a turn. Raises
    LayercakeError, Unsupported above all."""
    return await bmc.run(_of(bmc).read)


async def set_cap(bmc: ManagedBmc, watts: int | None) -> int | None:
    """Caps what a node draws, and returns what the BMC says then. Inside a turn. Raises as
    `read_cap`, and OperationFailed for one that takes the command and goes on saying something
    else."""
    cap = _of(bmc)
    until = bmc.clock.now() + bmc.spec.timeout_s
    await bmc.run(lambda: cap.set(watts))
    while (watts_before := await bmc.run(cap.read)) != watts:
        if bmc.clock.now() >= until:
            says = "none" if watts_before is None else f"{watts_before} W"
            raise OperationFailed(
                f"cannot cap the power of {bmc.spec.name}: the BMC at {bmc.spec.where} took the "
                "command, and "
                f"still says {says}"
            )
        await bmc.clock.sleep(_PAUSE_S)
    return watts_before


def _of(bmc: ManagedBmc) -> PowerCap:
    if bmc.driver.cap is None:
        raise Unsupported(
            f"cannot cap the power of {bmc.spec.name}: driver {bmc.spec.driver} has no such thing"
        )
    return bmc.driver.cap
