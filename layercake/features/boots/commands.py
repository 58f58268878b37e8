"""`layercake boot`: boot sets (kernel, minOS, agent), and rolls to one. `layercake profile`: by
what they are built for which machines."""

from __future__ import annotations

from typing import Any

import click

from layercake.client.command import Answer, App, command, nodes_argument, yes_option
from layercake.client.confirm import at_stake, current_user
from layercake.client.http import path_segment
from layercake.client.output import YELLOW, Column, Output, format_size, format_time
from layercake.features.rolls.commands import (
    at_option,
    at_request,
    follow_begun,
    plan_options,
    plan_request,
)
from layercake.inventory.ranges import fold
from layercake.kraken.errors import NotFound

_LIST = (
    Column("NAME"),
    Column("DEFAULT"),
    Column("BUILT"),
    Column("KERNEL"),
    Column("SIZE", right=True),
    Column("BOOTED BY NEXT", flexible=True),
    Column("RUN BY", flexible=True),
    Column("AGENT OF", flexible=True),
)
_PROFILES = (
    Column("NAME"),
    Column("KERNEL"),
    Column("SET THAT ITS NODES BOOT"),
    Column("SIZE", right=True),
    Column("BOOTED BY NEXT", flexible=True),
    Column("OTHER SETS", right=True),
    Column("BOOTED BY NEXT", flexible=True),
)
_PARTS = (Column("PART"), Column("UNPACKED", right=True), Column("SHIPS AS", right=True))
_RECIPE = {
    "name": "profile",
    "architecture": "for",
    "kernel": "kernel",
    "kernel_modules": "its modules",
}


@click.group()
def boot() -> None:
    """Boot sets: the kernel, the minOS and the agent that nodes run. A set never changes, and nodes
    keep theirs until a roll."""


@command(boot, "list")
def list_(app: App) -> Answer:
    """List the boot sets, newest first, and which nodes use them."""
    answer = app.head.get("/v1/boot")
    rows = [
        [
            s["name"],
            "yes" if s["default"] else "",
            format_time(s["built"]),
            s["kernel"] or "-",
            format_size(s["size"]),
            *(fold(s[users]) or "-" for users in ("boot", "run", "agents")),
        ]
        for s in answer["sets"]
    ]

    def show(out: Output) -> None:
        out.table(_LIST, rows, empty="no boot sets; `layercake boot build` makes one")
        for boot_set in answer["sets"]:
            if boot_set.get("trouble"):
                out.line(f"{boot_set['name']} is given to no node: {boot_set['trouble']}", YELLOW)

    return Answer(answer, show)


@command(boot)
@click.argument("name", metavar="SET")
@yes_option
def default(app: App, name: str, yes: bool) -> Answer:
    """Choose SET as what nodes boot that no roll took to another. It touches no node that runs."""
    app.must_confirm(f"Have all other nodes boot {name} when they next start?", yes)
    answer = app.head.post("/v1/boot/default", {"name": name, "by": current_user()})
    return Answer(answer, f"{name}: booted by {fold(answer['nodes']) or 'no node yet'} from now on")


@command(boot)
@click.argument("name", metavar="SET")
@yes_option
def remove(app: App, name: str, yes: bool) -> Answer:
    """Delete SET. Refused while a node or a roll needs it."""
    app.must_confirm(f"Delete boot set {name}?", yes)
    return Answer(app.head.delete(f"/v1/boot/{path_segment(name)}"), f"{name}: deleted")


@command(boot)
@nodes_argument
@click.argument("name", metavar="SET")
@click.option(
    "--agent-only",
    is_flag=True,
    help="Replace the agents in place: nothing is started anew, no image notices.",
)
@plan_options
@at_option
@click.option("--no-wait", is_flag=True, help="Do not wait until it is over.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=3600.0,
    show_default=True,
    help="Seconds to wait.",
)
@yes_option
def roll(
    app: App,
    /,
    nodes: str,
    name: str,
    agent_only: bool,
    at: str | None,
    no_wait: bool,
    timeout: float,
    yes: bool,
    **options: Any,
) -> Answer:
    """Take the nodes of RANGE to the boot set SET, and follow. Each is drained (with Slurm), its
    images are stopped, it is started anew, and its images must be well again before the next batch.
    A BUSY node is waited for."""
    request = {
        "range": nodes,
        "image": name,
        "agent_only": agent_only,
        "by": current_user(),
        **plan_request(options),
        **at_request(at),
    }
    if not agent_only and not yes:
        views = app.head.get("/v1/nodes", range=nodes)["nodes"]
        stake = at_stake(app, [v["name"] for v in views])
        if stake:
            app.must_confirm(
                f"Start {nodes} anew with boot set {name}, in batches: {stake}. Go on?", False
            )
    answer = app.head.post("/v1/boot/roll", request)
    return follow_begun(app, answer, not no_wait, timeout)


@click.group()
def profile() -> None:
    """Boot profiles: by which recipe the boot sets are built for machines of one kind. A node names
    one by `profile:` in the inventory; those that name none boot the site's default set."""


@command(profile, "list")
def list_profiles(app: App) -> Answer:
    """List the profiles that boot sets were built by: the set that their nodes boot, and how many
    others there are of them; each with the nodes that boot it, as in `boot list`."""
    sets = [s for s in app.head.get("/v1/boot")["sets"] if s["profile"]]
    profiles = []
    for name in sorted({s["profile"] for s in sets}):
        of = [s for s in sets if s["profile"] == name]
        default: dict[str, Any] = next((s for s in of if s["profile_default"]), of[-1])
        profiles.append(
            {
                "name": name,
                "kernel": default["kernel"],
                "set": default["name"],
                "sets": len(of),
                "size": default["size"],
                "nodes": sorted(default["boot"]),
                "nodes_of_others": sorted(
                    node for s in of if s is not default for node in s["boot"]
                ),
            }
        )
    rows = [
        [
            p["name"],
            p["kernel"],
            p["set"],
            format_size(p["size"]),
            fold(p["nodes"]) or "-",
            str(p["sets"] - 1),
            fold(p["nodes_of_others"]) or "-",
        ]
        for p in profiles
    ]
    return Answer(
        {"profiles": profiles},
        lambda out: out.table(
            _PROFILES,
            rows,
            empty="no profiles; `layercake profile build server` makes a set by one",
        ),
    )


@command(profile)
@click.argument("name", metavar="PROFILE|SET")
def show(app: App, name: str) -> Answer:
    """Show by what PROFILE builds, and what takes the space in the set that its nodes boot; or of
    one SET."""
    sets = app.head.get("/v1/boot")["sets"]
    of = [s for s in sets if s["profile"] == name]
    if not of and all(s["name"] != name for s in sets):
        raise NotFound(
            f"cannot find boot profile {name[:64]!r}: no boot set was built by it",
            hint="see `layercake profile list`",
        )
    chosen = next((s["name"] for s in of if s["profile_default"]), of[-1]["name"]) if of else name
    boot_set = app.head.get(f"/v1/boot/{path_segment(chosen)}")["set"]

    return Answer(boot_set, lambda out: _show_set(out, boot_set))


def _show_set(out: Output, found: dict[str, Any]) -> None:
    """A boot set: its recipe, and what its parts take."""
    recipe = found["profile"] or {}
    out.line(f"boot set    {found['name']}, kernel {found['kernel']}, {format_size(found['size'])}")
    for key, label in _RECIPE.items():
        if recipe.get(key):
            out.line(f"{label:<12}{recipe[key]}")
    for key in ("modules", "firmware"):
        out.line(f"{key:<12}{', '.join(recipe.get(key, ())) or '-'}")
    out.line("")
    parts = sorted(found["parts"].items(), key=lambda part: -part[1]["bytes"])
    rows = [
        [part, format_size(sizes["unpacked"]), format_size(sizes["bytes"])] for part, sizes in parts
    ]
    out.table(_PARTS, rows, empty="")
    lacking = sorted({user for users in found["firmware_missing"].values() for user in users})
    if lacking:
        out.line(
            f"firmware that was not there when it was built, for: {', '.join(lacking)}", YELLOW
        )


@command(profile, "default")
@click.argument("name", metavar="SET")
@yes_option
def default_of_profile(app: App, name: str, yes: bool) -> Answer:
    """Make SET what the nodes of its profile boot that no roll took to another. It touches none
    that runs."""
    app.must_confirm(f"Have the nodes of its profile boot {name} when they next start?", yes)
    answer = app.head.post(
        "/v1/boot/default", {"name": name, "of_profile": True, "by": current_user()}
    )
    return Answer(answer, f"{name}: booted by {fold(answer['nodes']) or 'no node yet'} from now on")


@command(profile, "remove")
@click.argument("name", metavar="PROFILE")
@yes_option
def remove_profile(app: App, name: str, yes: bool) -> Answer:
    """Delete all boot sets of PROFILE. Refused while a node or a roll needs one of them."""
    app.must_confirm(f"Delete all boot sets of profile {name}?", yes)
    answer = app.head.delete(f"/v1/profiles/{path_segment(name)}")
    return Answer(answer, f"{name}: {', '.join(answer['removed'])} deleted")
