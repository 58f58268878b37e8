"""`layercake node hardware`: the hardware of many nodes, alike ones together, and its sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from layercake.base.text import amount_text, grouped
from layercake.client.columns import (
    HARDWARE,
    HARDWARE_NUMBERS,
    HARDWARE_TEXTS,
    Kind,
    column_of,
    fields_of,
    kind_of,
    sort_nodes,
)
from layercake.client.command import Answer, App, command
from layercake.client.output import Column, Output
from layercake.inventory.ranges import fold

_USUAL = "name,model,cpus,memory,disk,nic,gpu,bios,bmc-firmware,system-serial"
_OWN = ("name", "system-serial", "serial", "ip", "macs")
"""What each node has for itself: not part of a kind of hardware."""
_SUMS = (Column("OF"), Column("SUM", right=True))


@command()
@click.argument("nodes", metavar="[RANGE]", default="")
@click.option(
    "--where",
    default="",
    metavar="QUERY",
    help="Only those that it means: 'memory>=256G and nic=mlx5_core'.",
)
@click.option(
    "--columns",
    default=_USUAL,
    metavar="NAME,..",
    help=f"Of {', '.join((*HARDWARE_TEXTS, *HARDWARE_NUMBERS))}, and those of `node list`.",
)
@click.option(
    "--sort", "order", default="", metavar="NAME", help="In the order of this column; -NAME: down."
)
@click.option("--sum", "summed", is_flag=True, help="Their sums alone.")
@click.option("--fold", "folded", is_flag=True, help="Nodes whose columns are equal in one line.")
def hardware(
    app: App, nodes: str, where: str, columns: str, order: str, summed: bool, folded: bool
) -> Answer:
    """List the hardware of all nodes, or of those of RANGE, as of their last surveys: processors,
    memory, disks, cards, GPUs, and the versions of their firmware. A node without a survey has -.
    """
    chosen = [name for name in columns.split(",") if name]
    asked = fields_of([*chosen, "cpus", *filter(None, [order.removeprefix("-")])])
    answer = app.head.get("/v1/nodes", range=nodes, where=where, fields=asked)
    variables = answer["variables"]
    views = sort_nodes(answer["nodes"], order or "name", variables)
    kinds = {name: kind_of(name, variables) for name in chosen}
    empty = f"of these nodes, none is so: {where}" if where else "no nodes"
    if summed:
        sums = _sums(views)
        lines = [[name, amount_text(value)] for name, value in sums.items()]
        return Answer({"sums": sums}, lambda out: out.table(_SUMS, lines))
    if folded:
        groups = _folded(views, {n: kind for n, kind in kinds.items() if n not in _OWN})
        return Answer({"groups": groups}, lambda out: _show_groups(out, groups, empty))
    rows = [[kind.text(view) for kind in kinds.values()] for view in views]
    return Answer(
        {"nodes": views}, lambda out: out.table([*map(column_of, kinds)], rows, empty=empty)
    )


def _sums(views: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How many nodes there are, how many have no survey, and what the others have together."""
    known = [view for view in views if view.get(HARDWARE)]
    sums = {name: sum(map(of, known)) for name, of in HARDWARE_NUMBERS.items()}
    return {"nodes": len(views), "without a survey": len(views) - len(known), **sums}


def _folded(views: Sequence[Mapping[str, Any]], kinds: Mapping[str, Kind]) -> list[dict[str, Any]]:
    """Nodes with equal texts in all columns, the most first."""
    groups = grouped(
        (tuple(kind.text(view) for kind in kinds.values()), view["name"]) for view in views
    )
    return [
        {"nodes": names, **dict(zip(kinds, key, strict=True))}
        for key, names in sorted(groups.items(), key=lambda group: -len(group[1]))
    ]


def _show_groups(out: Output, groups: Sequence[Mapping[str, Any]], empty: str) -> None:
    names = [name for name in (groups[0] if groups else ()) if name != "nodes"]
    rows = [
        [fold(group["nodes"]), len(group["nodes"]), *(group[name] for name in names)]
        for group in groups
    ]
    columns = [Column("NODES", flexible=True), Column("N", right=True), *map(column_of, names)]
    out.table(columns, rows, empty=empty)
