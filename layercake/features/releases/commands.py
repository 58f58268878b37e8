"""`layercake node release`."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import click

from layercake.client.command import FAILED, OK, Answer, App, command, nodes_argument, yes_option
from layercake.client.confirm import current_user, describe_nodes
from layercake.client.output import Column, Output, format_time
from layercake.inventory.ranges import fold

_STEPS = (
    Column("STEP"),
    Column("RESULT", styled=True),
    Column("BEGAN"),
    Column("SECONDS", right=True),
    Column("TRIES", right=True),
    Column("WITNESS"),
    Column("DETAIL", flexible=True),
)
_DISKS = (
    Column("MODEL"),
    Column("SERIAL"),
    Column("BYTES", right=True),
    Column("SECONDS", right=True),
    Column("READ BACK"),
    Column("WAY", flexible=True),
)
_DONE = {
    "retry": "tried again",
    "abandon": "given up; the nodes stay held",
    "free": "free",
    "confirm": "confirmed",
}
_STAKES = {
    "free": "The disks of {nodes} may hold what their last users left. Free them?",
    "confirm": "Nobody but {nodes} themselves say that they were erased: a last user can fake "
    "that. Have you switched them off and on, and seen minOS start?",
}


@command()
@nodes_argument
@click.option("--force", is_flag=True, help="Also BUSY nodes; what runs on them is not waited for.")
@click.option("--retry", "what", flag_value="retry", help="Try it again from the step that failed.")
@click.option(
    "--abandon", "what", flag_value="abandon", help="Give it up. The node stays held until --free."
)
@click.option(
    "--free", "what", flag_value="free", help="Take the hold of a release away that was given up."
)
@click.option(
    "--confirm",
    "what",
    flag_value="confirm",
    help="Vouch for a release that nobody but the node speaks for: without BMC and TPM.",
)
@click.option("--show", "what", flag_value="show", help="Show the last release, with its evidence.")
@click.option("--all", "all_", is_flag=True, help="With --show: all releases that are kept.")
@yes_option
def release(app: App, nodes: str, force: bool, what: str | None, all_: bool, yes: bool) -> Answer:
    """Release the nodes of RANGE for their next users.

    Their images are stopped, all of their own disks are erased and read back, the TPM is cleared,
    keys are forgotten, the BMC gets another password where it can, and the memory goes without
    power. Nothing is started on them before all of that was seen.
    """
    if what == "show":
        return _shown(app, nodes, all_=all_)
    if what is not None:
        if what in _STAKES:
            app.must_confirm(_STAKES[what].format(nodes=nodes), yes)
        answer = app.head.post(
            "/v1/nodes/release/change", {"range": nodes, "what": what, "by": current_user()}
        )
        return Answer(answer, f"{_DONE[what]}: {fold(answer['nodes'])}")
    if not yes:
        stake = describe_nodes(app.head.get("/v1/nodes", range=nodes)["nodes"])
        app.must_confirm(
            f"ALL disks of {nodes} are erased, also what was to be kept: {stake}. Release?", False
        )
    answer = app.head.post(
        "/v1/nodes/release", {"range": nodes, "force": force, "by": current_user()}
    )
    return Answer(
        answer,
        f"being released: {fold(answer['nodes'])}; see `layercake node release --show "
        f"{fold(answer['nodes'])}`",
    )


def _shown(app: App, nodes: str, *, all_: bool) -> Answer:
    answers = app.head.get("/v1/releases", range=nodes, last="" if all_ else "yes")["nodes"]
    stuck = any(one["held"] and _needs_someone(one["releases"]) for one in answers)
    show = functools.partial(_show_releases, answers=answers, all_=all_)
    return Answer({"nodes": answers}, show, FAILED if stuck else OK)


def _show_releases(out: Output, answers: Sequence[Mapping[str, Any]], *, all_: bool) -> None:
    """The releases of some nodes; those without one that are alike are one line."""
    without: dict[str, list[str]] = {}
    for one in answers:
        releases = one["releases"]
        if not releases:
            without.setdefault(one["held"], []).append(one["node"])
        for number, it in enumerate(releases if all_ else releases[:1]):
            _show_release(out, one["node"], it, "" if number else one["held"])
    for held, its in without.items():
        out.line(f"{fold(its)}: no release" + (f"; held: {held}" if held else ""))


def _needs_someone(releases: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the last release of a node does not go on by itself. One that is under way holds the
    node, and all is well."""
    return not releases or releases[0]["state"] in ("failed", "unconfirmed", "abandoned")


def _show_release(out: Output, node: str, it: dict[str, Any], held: str) -> None:
    """A release of a node with its evidence; `held` is why the node is still held, "" if not."""
    out.line(
        f"{node}: release {it['id']}, {it['state']}, asked for by {it['by']} at "
        f"{format_time(it['asked'])}"
    )
    for key in ("abandoned_by", "freed_by", "confirmed_by"):
        if it[key]:
            out.line(f"{key.replace('_', ' ')} {it[key]}")
    if held:
        out.line(f"held: {held}")
    out.table(_STEPS, [_step_row(step) for step in it["steps"]])
    if it["disks"]:
        out.table(_DISKS, [_disk_row(disk) for disk in it["disks"]])
    for line in it["left"]:
        out.line(f"left: {line}")


def _step_row(step: dict[str, Any]) -> list[object]:
    return [
        step["name"],
        step["result"] or ("under way" if step["began"] else "-"),
        format_time(step["began"]) if step["began"] else "-",
        f"{step['ended'] - step['began']:.0f}" if step["ended"] else "-",
        step["tries"] or "-",
        step["witness"] or "-",
        step["detail"],
    ]


def _disk_row(disk: dict[str, Any]) -> list[object]:
    return [
        disk["model"] or "-",
        disk["serial"] or "-",
        disk["size"],
        f"{disk['seconds']:.1f}",
        "blank" if disk["verified"] else "NOT blank",
        disk["way"],
    ]
