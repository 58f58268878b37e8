"""All REST routes under /v1, each with the role it needs and a summary: the OpenAPI document is
made from this table."""

from __future__ import annotations

from layercake.api import (
    audit,
    boots,
    calls,
    consoles,
    dashboard,
    events,
    files,
    graph,
    guard,
    head,
    inventory,
    machines,
    metrics,
    power,
    releases,
    report,
    tokens,
    tpm,
)
from layercake.api.images import ImageRoutes
from layercake.api.nodes import NodeRoutes
from layercake.api.rolls import RollRoutes
from layercake.api.route import Route
from layercake.head.operations import Operations
from layercake.head.views.head import Census


def routes(ops: Operations) -> tuple[Route, ...]:
    """Every route, over one head."""
    census = Census(ops.head)  # nodes are counted once for all who ask
    return (
        *head.routes(ops, census),
        *inventory.routes(ops),
        *NodeRoutes(ops).table(),
        *power.routes(ops),
        *ImageRoutes(ops).table(),
        *RollRoutes(ops).table(),
        *events.routes(ops),
        *graph.routes(ops),
        *guard.routes(ops),
        *calls.routes(ops),
        *boots.routes(ops),
        *tokens.routes(ops),
        *audit.routes(ops),
        *machines.routes(ops),
        *files.routes(ops),
        *tpm.routes(ops),
        *consoles.routes(ops),
        *releases.routes(ops),
        *metrics.routes(ops, census),
        *dashboard.routes(ops),
        *report.routes(ops, census),
    )
