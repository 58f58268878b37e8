"""`layercake power`: what the BMCs say, and on, off, cycle."""

from __future__ import annotations

import click

from layercake.cli.app import FAILED, OK, REFUSED, App, confirm_stop, json_option, pass_app, yes_option
from layercake.cli.client import Client
from layercake.cli.output import Column

_STATUS = (Column("NODE"), Column("POWER", styled=True), Column("DRIVER"), Column("ADDRESS"), Column("ERROR", flexible=True))
_RESULT = (Column("NODE"), Column("ACCEPTED"), Column("WHY", flexible=True))
POWER_S = 180.0  # a slow BMC takes tens of seconds, and many are asked


@click.group()
def power() -> None:
    """Power, by the nodes' BMCs. On and off change what is wanted of a node."""


@power.command()
@click.argument("nodes", metavar="[RANGE]", default="@all")
@json_option
@pass_app
def status(app: App, nodes: str) -> int:
    """Ask the BMCs of RANGE (all if not given) now."""

    async def action(head: Client) -> int:
        answer = await head.get("/v1/power", range=nodes)
        if app.out.json:
            app.out.document(answer)
        else:
            rows = [[p["node"], p["power"], p["driver"] or "-", p["address"] or "-", p["error"] or ""] for p in answer["power"]]
            app.out.table(_STATUS, rows, empty="no nodes")
        return FAILED if any(p["error"] for p in answer["power"]) else OK

    return app.run(action)


def _change(app: App, nodes: str, what: str, force: bool, yes: bool) -> int:
    async def action(head: Client) -> int:
        if what != "on" and not await confirm_stop(app, head, nodes, f"Power {what}", yes):
            return FAILED
        answer = await head.post("/v1/power", {"range": nodes, "action": what, "force": force}, timeout=POWER_S)
        results = answer["nodes"]
        if app.out.json:
            app.out.document(answer)
        else:
            app.out.table(_RESULT, [[r["node"], "yes" if r["accepted"] else "no", r["why"] or ""] for r in results])
        return OK if all(r["accepted"] for r in results) else REFUSED

    return app.run(action)


@power.command()
@click.argument("nodes", metavar="RANGE")
@json_option
@pass_app
def on(app: App, nodes: str) -> int:
    """Want the nodes of RANGE up; they are powered on and booted."""
    return _change(app, nodes, "on", False, True)


@power.command()
@click.argument("nodes", metavar="RANGE")
@click.option("--force", is_flag=True, help="BUSY nodes too, and without waiting for their images to stop.")
@yes_option
@json_option
@pass_app
def off(app: App, nodes: str, force: bool, yes: bool) -> int:
    """Want the nodes of RANGE off."""
    return _change(app, nodes, "off", force, yes)


@power.command()
@click.argument("nodes", metavar="RANGE")
@click.option("--force", is_flag=True, help="BUSY nodes too.")
@yes_option
@json_option
@pass_app
def cycle(app: App, nodes: str, force: bool, yes: bool) -> int:
    """Power the nodes of RANGE off and on, and boot them anew."""
    return _change(app, nodes, "cycle", force, yes)
