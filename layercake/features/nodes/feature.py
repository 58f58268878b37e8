"""The nodes as people see them, and what is wanted of them."""

from __future__ import annotations

from typing import Any

from layercake.features.consoles.operations import Consoles
from layercake.features.guard.guard import Guard
from layercake.features.nodes.causes import CauseFinder
from layercake.features.nodes.explain import Explainer
from layercake.features.nodes.graph_routes import GraphRoutes
from layercake.features.nodes.list_routes import NodeListRoutes
from layercake.features.nodes.lists.facts import Unmet
from layercake.features.nodes.lists.listing import Listing
from layercake.features.nodes.lists.metrics import Tally
from layercake.features.nodes.operations import Nodes
from layercake.features.nodes.queries import NodeQueries
from layercake.features.nodes.routes import NodeRoutes
from layercake.features.nodes.view_routes import NodeViewRoutes
from layercake.fleet.events import EVENTS
from layercake.fleet.store import Record
from layercake.fleet.table import Table
from layercake.kernel.feature import Feature, Running
from layercake.kernel.kernel import Kernel


def kinds(table: Table) -> list[str]:
    """The names of all kinds of events that there are."""
    return [*(kind.name for kind in EVENTS), *table.events]


def _start(kernel: Kernel) -> Running:
    store = kernel.store
    table = kernel.table
    clock = kernel.clock
    guard = kernel.part(Guard)
    consoles = kernel.part(Consoles)
    tally = Tally(store, [m.name for m in table.mutations], kinds(table))
    unmet = Unmet(store, clock, tally.converged.add)
    fields = kernel.running.decisions.fields
    image = kernel.running.decisions.image
    queries = NodeQueries(store, table, clock, unmet, guard.why, fields, image)
    listing = Listing(store, table, clock, guard.why, kernel.modules.boot_timeouts, fields)
    operations = Nodes(
        store, kernel.desire, guard, clock, kernel.sync, kernel.node_link, kernel.requests
    )

    def roll_of(record: Record) -> Any:
        field = fields().get("roll")
        return field and field.view(record)

    explainer = Explainer(
        table,
        clock,
        guard,
        kernel.modules.boot_timeouts,
        kernel.running.decisions.troubles,
        consoles,
        roll_of,
    )
    causes = CauseFinder(
        store, table, clock, guard, kernel.modules.boot_timeouts, unmet, consoles, roll_of
    )
    history = kernel.database.history
    return Running(
        (tally, unmet, queries, listing, operations, explainer, causes),
        matching=queries.matching,
        routes=(
            NodeListRoutes(store, table, listing, queries),
            NodeViewRoutes(store, table, history, explainer, causes),
            NodeRoutes(operations),
            GraphRoutes(store, table),
        ),
    )


FEATURE = Feature(
    "nodes",
    _start,
    needs=("consoles", "guard"),
    routes=(NodeListRoutes, NodeViewRoutes, NodeRoutes, GraphRoutes),
)
