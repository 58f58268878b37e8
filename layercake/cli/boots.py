"""`layercake boot`: boot sets (kernel, minOS, agent), and rolls to one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from layercake.cli.common.asking import at_stake, who
from layercake.cli.common.client import quoted
from layercake.cli.common.command import FAILED, Answer, App, command, nodes_argument, yes_option
from layercake.cli.common.output import YELLOW, Column, Output, moment, size
from layercake.cli.head import data_option
from layercake.cli.rolls import one_line, plan_options, plan_request, watched
from layercake.inventory.ranges import fold

_LIST = (Column("NAME"), Column("DEFAULT"), Column("BUILT"), Column("KERNEL"), Column("SIZE", right=True),
         Column("BOOTED BY NEXT", flexible=True), Column("RUN BY", flexible=True), Column("AGENT OF", flexible=True))


@click.group()
def boot() -> None:
    """Boot sets: the kernel, the minOS and the agent that nodes run. A set never changes, and nodes keep theirs until a roll."""


@command(boot, "list")
def list_(app: App) -> Answer:
    """List the boot sets, newest first, and which nodes use them."""
    answer = app.head.get("/v1/boot")
    rows = [[s["name"], "yes" if s["default"] else "", moment(s["built"]), s["kernel"] or "-", size(s["size"]),
             *(fold(s[users]) or "-" for users in ("boot", "run", "agents"))] for s in answer["sets"]]

    def show(out: Output) -> None:
        out.table(_LIST, rows, empty="no boot sets; `layercake boot build` makes one")
        for found in answer["sets"]:
            if found.get("trouble"):
                out.line(f"{found['name']} is given to no node: {found['trouble']}", YELLOW)

    return Answer(answer, show)


@command(boot)
@data_option
@click.option("--modules", default="", metavar="NAME,..", help="More kernel modules; `server` means common network cards.")
@click.option("--kernel-package", default="linux-image-cloud-amd64", show_default=True, help="The Debian package of the kernel.")
def build(app: App, data_dir: Path, modules: str, kernel_package: str) -> Answer:
    """Build a boot set on this machine, out of this Layercake. No node boots it before a roll, or `boot default`."""
    from layercake.setup import build_boot  # here: the client works where the head's dependencies are not installed

    made = build_boot(data_dir, echo=app.out.note, modules=modules, kernel_package=kernel_package)
    text = f"boot set {made.name}: `layercake boot roll RANGE {made.name}` takes nodes to it"
    return Answer({"name": made.name, "kernel": made.kernel, "size": made.size}, text)


@command(boot)
@click.argument("name", metavar="SET")
@yes_option
def default(app: App, name: str, yes: bool) -> Answer:
    """Choose SET as what nodes boot that no roll took to another. It touches no node that runs."""
    if not app.confirm(f"Have all other nodes boot {name} when they next start?", yes):
        return Answer(code=FAILED)
    answer = app.head.post("/v1/boot/default", {"name": name, "by": who()})
    return Answer(answer, f"{name}: booted by {fold(answer['nodes']) or 'no node yet'} from now on")


@command(boot)
@click.argument("name", metavar="SET")
@yes_option
def remove(app: App, name: str, yes: bool) -> Answer:
    """Delete SET. Refused while a node or a roll needs it."""
    if not app.confirm(f"Delete boot set {name}?", yes):
        return Answer(code=FAILED)
    return Answer(app.head.delete(f"/v1/boot/{quoted(name)}"), f"{name}: deleted")


@command(boot)
@nodes_argument
@click.argument("name", metavar="SET")
@click.option("--agent-only", is_flag=True, help="Replace the agents in place: nothing is started anew, no image notices.")
@plan_options
@click.option("--no-wait", is_flag=True, help="Do not wait until it is over.")
@click.option("--timeout", type=click.FloatRange(min=0), default=3600.0, show_default=True, help="Seconds to wait.")
@yes_option
def roll(app: App, /, nodes: str, name: str, agent_only: bool, no_wait: bool, timeout: float, yes: bool, **options: Any) -> Answer:
    """Take the nodes of RANGE to the boot set SET, and follow. Each is drained (with Slurm), its images are stopped, it is started
    anew, and its images must be well again before the next batch. A BUSY node is waited for."""
    request = {"range": nodes, "image": name, "agent_only": agent_only, "by": who(), **plan_request(options)}
    if not agent_only and not yes:
        views = app.head.get("/v1/nodes", range=nodes)["nodes"]
        stake = at_stake(app, [v["name"] for v in views])
        if stake and not app.confirm(f"Start {nodes} anew with boot set {name}, in batches: {stake}. Go on?", False):
            return Answer(code=FAILED)
    answer = app.head.post("/v1/boot/roll", request)
    if no_wait:
        return Answer(answer, one_line(answer["roll"]))
    return watched(app, int(answer["roll"]["id"]), timeout)
