"""What the boot service declares to the engine, each declaration above its handler."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from layercake.kraken.errors import Stalled
from layercake.kraken.mutation import Mutation, Where, mutation
from layercake.kraken.variables import Variable
from layercake.moduleapi.service import MutationRequest

if TYPE_CHECKING:
    from pxe.service import PxeService

BOOT = Variable(
    "boot", ("UNKNOWN", "WAIT", "INIT"), "WAIT: a boot window is open; INIT: the agent has joined"
)
VARIABLES = (BOOT,)
_ENGINE_FIRST_S = 1.0


@mutation(
    "boot-arm",
    changes={"boot": ("UNKNOWN", "WAIT")},
    requires={"power": "ON"},
    where=Where.HEAD,
    timeout=10.0,
    joins=True,
    guarded=True,
)
async def boot_arm(service: PxeService, request: MutationRequest) -> Mapping[str, str]:
    """Opens the node's boot window: from now on its firmware is given a boot program."""
    service.arm(request, confirmed=False)
    return {"boot": "WAIT"}


@mutation(
    "boot-wait",
    changes={"boot": ("WAIT", "INIT"), "run": ("UNKNOWN", "INIT")},
    requires={"power": "ON"},
    where=Where.HEAD,
    timeout=180.0,
    on_timeout=("power", "HANG"),
    joins=True,
)
async def boot_wait(service: PxeService, request: MutationRequest) -> Mapping[str, str]:
    """Waits for the node's agent to join; the window stays open meanwhile."""
    window = service.arm(request, confirmed=True)
    started = service.now()
    try:
        while (left := service.patience(request, started)) > 0:
            with contextlib.suppress(
                TimeoutError
            ):  # then its patience is looked at again: steps have prolonged it
                async with asyncio.timeout(left):
                    await window.over.wait()
                    if window.spoiled:
                        raise Stalled(
                            f"cannot boot {service.name(request.node)}: {window.spoiled}",
                            after=service.came_to(request),
                            hint=window.hint,
                        )
                    return {}
        raise Stalled(
            f"cannot boot {service.name(request.node)}: {service.stalled(request)}",
            after=service.came_to(request),
            hint="the node's console and its history show how far it came",
        )
    except asyncio.CancelledError:
        if (
            service.patience(request, started) <= _ENGINE_FIRST_S
        ):  # the engine's clock for the same time-out ran out earlier
            service.stalled(request)
        raise
    finally:
        service.disarm(request)


MUTATIONS: tuple[Mutation, ...] = (boot_arm, boot_wait)
