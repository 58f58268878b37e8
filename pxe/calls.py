"""What the boot service can be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from layercake.moduleapi.module import Call, NodeRequest, NoRequest, Role, call

if TYPE_CHECKING:
    from pxe.service import PxeService


@call("boot.steps", role=Role.VIEWER, answer=dict[str, Any])
async def steps(service: PxeService, request: NodeRequest) -> dict[str, Any]:
    """How far a node's present boot has come."""
    return service.steps(request.node)


@call("boot.stats", role=Role.VIEWER, request=NoRequest, answer=dict[str, int])
async def stats(service: PxeService, request: NoRequest) -> dict[str, int]:
    """Counters of packets and transfers, and the number of nodes."""
    return service.stats()


CALLS: tuple[Call, ...] = (steps, stats)
