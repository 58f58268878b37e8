"""A look at all BMCs, for a person who wants to know before the first boot: are they there, do they
take our login, what time do they think it is, what would the machine boot. Nothing is changed.

Bounded: so many at once, so long for each and for all. A thousand BMCs of which all are dead are
told apart in seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from layercake.kraken.errors import LayercakeError, Unreachable
from powerman.bmc import ManagedBmc
from powerman.driver import Inspection, LoginRefused, unreachable

AT_ONCE = 400
"""Waiting for a silent BMC costs a socket and next to no work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedBmc:
    """What was found at one node's BMC. `result` is ok, unreachable, login-refused, failed, busy
    (another operation is at it), unasked (the time was over), no-bmc (what the inventory says of it
    cannot be used) or by-hand (it has none: a person switches the node); `why` says more. `clock_s`
    is by how many seconds the BMC's clock is ahead of ours, None if it has none. `device`, `mode`
    and `modes` as in `Inspection`."""

    node: str
    name: str
    where: str
    result: str
    why: str = ""
    clock_s: float | None = None
    device: str = ""
    mode: str = ""
    modes: tuple[str, ...] = ()
    network: bool = True


async def inspect_bmc(
    bmc: ManagedBmc, limit_s: float, wall: Callable[[], float] = time.time
) -> InspectedBmc:
    """Looks at one BMC. The breaker learns from it whether the BMC answers, unless the time was too
    short for one that is slow; it does not keep us from asking."""
    spec = bmc.spec
    reached = False

    def inspected(
        result: str, why: str = "", inspection: Inspection | None = None, **more: Any
    ) -> InspectedBmc:
        if inspection is not None:
            more = {
                "device": inspection.device,
                "mode": inspection.mode,
                "modes": inspection.modes,
                "network": inspection.network,
                **more,
            }
        return InspectedBmc(
            node=spec.node, name=spec.name, where=spec.where, result=result, why=why, **more
        )

    try:
        async with bmc.turn(limit_s, force=True):
            reached = True
            async with asyncio.timeout(limit_s):
                inspection = await bmc.driver.inspect()
    except TimeoutError:
        return inspected(
            "unreachable", unreachable(spec.where, f"not done in {limit_s:.0f} s").message
        )
    except LoginRefused as error:
        return inspected("login-refused", error.message)
    except Unreachable as error:
        return inspected("unreachable" if reached else "busy", error.message)
    except LayercakeError as error:
        return inspected("failed", error.message)
    return inspected(
        "ok",
        inspection=inspection,
        clock_s=None if inspection.clock is None else round(inspection.clock - wall(), 1),
    )


async def inspect_bmcs(bmcs: Iterable[ManagedBmc], limit_s: float) -> list[InspectedBmc]:
    """Looks at all, within so many seconds; those whose turn did not come by then are unasked."""
    loop = asyncio.get_running_loop()
    places = asyncio.Semaphore(AT_ONCE)
    until = loop.time() + limit_s

    async def one(bmc: ManagedBmc) -> InspectedBmc:
        spec = bmc.spec
        async with places:
            left = until - loop.time()
            if left < min(1.0, limit_s / 2):
                why = f"not asked in {limit_s:.0f} s"
                return InspectedBmc(
                    node=spec.node, name=spec.name, where=spec.where, result="unasked", why=why
                )
            return await inspect_bmc(bmc, min(left, spec.timeout_s))

    return list(await asyncio.gather(*(one(bmc) for bmc in bmcs)))
