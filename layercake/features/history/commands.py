"""`layercake inventory`: the inventory as it was, who changed what and why, and undoing it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from layercake.base.text import count_of
from layercake.client.command import FAILED, OK, Answer, App, command, yes_option
from layercake.client.http import path_segment
from layercake.client.output import YELLOW, Column, Output, format_time
from layercake.features.inventory.plan_commands import (
    Agreement,
    PlanUse,
    carry_out,
    consent_options,
    show_plan,
)
from layercake.inventory.changes import Action, Change, describe
from layercake.inventory.ranges import fold
from layercake.kraken.errors import NotFound, Refused

SHORT = 10
_LOG = (
    Column("REVISION"),
    Column("WHEN"),
    Column("BY"),
    Column("WHAT", flexible=True),
    Column("WHY", flexible=True),
)
_BLAME = (
    Column("KEY"),
    Column("VALUE", flexible=True),
    Column("REVISION"),
    Column("WHEN"),
    Column("BY"),
    Column("WHY", flexible=True),
)
SOME = 3
"""From so many nodes on that came together not all of each is shown."""
_range = click.option("--nodes", metavar="RANGE", default="", help="Of these nodes alone.")


@click.group()
def inventory() -> None:
    """The inventory in force, and every one before: who changed what, when and why, and undoing it.

    REV is HEAD, HEAD~3, the first digits of a revision, yesterday, or a time as 2026-11-27T08:00.
    """


@command(inventory)
@click.argument("revision", metavar="[REV]", default="HEAD")
@_range
def show(app: App, revision: str, nodes: str) -> Answer:
    """Print the inventory in force, or that of REV, as a file that `plan` and `apply` take."""
    answer = app.head.get("/v1/inventory/show", revision=revision, range=nodes)
    text = str(answer["yaml"]) or "# no nodes, and no networks"
    return Answer(answer, lambda out: out.lines(text))


@command(inventory)
@click.argument("nodes", metavar="[RANGE]", default="")
@click.option("--limit", type=click.IntRange(1, 1000), default=30, show_default=True)
@click.option("--from", "revision", metavar="REV", default="", help="From REV on back.")
@click.option(
    "--full", is_flag=True, help="How each was asked for, too, by which token, and where."
)
def log(app: App, nodes: str, limit: int, revision: str, full: bool) -> Answer:
    """List the changes of the inventory, or of the nodes of RANGE, the newest first."""
    answer = app.head.get("/v1/inventory/log", range=nodes, limit=str(limit), revision=revision)
    changes = answer["changes"]
    none = f"no change of {nodes} is known" if nodes else "no change is known yet"
    rows = [
        [c["revision"][:SHORT], format_time(c["at"]), c["by"], c["what"], c["why"]] for c in changes
    ]

    def show_log(out: Output) -> None:
        if not full:
            out.table(_LOG, rows, empty=none)
        for change in changes if full else ():
            _in_full(out, change)

    return Answer(answer, show_log)


def _in_full(out: Output, change: Mapping[str, Any]) -> None:
    out.line(f"{change['revision']}  {format_time(change['at'])}  {change['by']}")
    lines = (
        ("", change["what"]),
        ("why: ", change["why"]),
        ("how: ", change["how"]),
        ("token: ", change["token"]),
        ("from: ", change["address"]),
    )
    for key, value in lines:
        if value:
            out.line(f"    {key}{value}")


@command(inventory)
@click.argument("before", metavar="[A]", default="HEAD~1")
@click.argument("after", metavar="[B]", default="HEAD")
@_range
def diff(app: App, before: str, after: str, nodes: str) -> Answer:
    """Show what differs between the revisions A and B; without B, between A and what is in
    force."""
    answer = app.head.get("/v1/inventory/diff", before=before, after=after, range=nodes)

    def show_diff(out: Output) -> None:
        for line in [*_differences(answer)] or ["no differences"]:
            out.line(line)

    return Answer(answer, show_diff)


def _differences(answer: Mapping[str, Any]) -> Sequence[str]:
    """What differs; nodes with the same difference together, and of those that came what all have
    alike."""
    came: dict[tuple[str, ...], list[Change]] = {}
    alike: dict[str, list[str]] = {}
    for record in answer["changes"]:
        change = Change.from_record({**record, "node": ""})
        if change.action is Action.ADD:
            came.setdefault(tuple(change.fields), []).append(Change.from_record(record))
        else:
            alike.setdefault(describe([change]), []).append(record["node"])
    lines: list[str] = []
    for changes in came.values():
        lines += _came(changes)
    for text, names in alike.items():
        first, *rest = text.split("\n")
        lines += [f"{first}{fold(names)}", *rest]
    for record in answer["networks"]:
        lines += describe([Change.from_record(record)]).replace(" ", " network ", 1).split("\n")
    return lines


def _came(changes: Sequence[Change]) -> Iterator[str]:
    """Nodes that came with values for the same fields. Of some, what no two have alike, as
    addresses, is only named."""
    fields = changes[0].fields
    own = [
        name
        for name in sorted(fields)
        if len({repr(change.fields[name]) for change in changes}) == len(changes) >= SOME
    ]
    alike: dict[str, list[str]] = {}
    for change in changes:
        shown = {name: pair for name, pair in change.fields.items() if name not in own}
        alike.setdefault(describe([Change("", Action.ADD, shown)]), []).append(change.node)
    for text, names in alike.items():
        first, *rest = text.split("\n")
        yield from (f"{first}{fold(names)}", *rest)
        if own:
            yield f"    of each its own: {', '.join(own)}"


@command(inventory)
@click.argument("name", metavar="NODE[.KEY]")
@click.option("--at", "revision", metavar="REV", default="HEAD", help="As it was at REV.")
def blame(app: App, name: str, revision: str) -> Answer:
    """Say of each value of a node who made it so, when and why; or only of KEY, as n7.kernel_args
    or n7.bmc."""
    node, key = _node_and_key(app, name)
    answer = app.head.get(f"/v1/nodes/{path_segment(node)}/blame", revision=revision)
    of_key = f"{key}." if key else ""
    lines = [line for line in answer["lines"] if f"{line['field']}.".startswith(of_key)]
    rows = [
        [
            line["field"],
            line["value"],
            line["change"]["revision"][:SHORT],
            format_time(line["change"]["at"]),
            line["change"]["by"],
            line["change"]["why"],
        ]
        for line in lines
    ]
    empty = f"{node} is not in the inventory at {revision}"
    if answer["lines"]:
        empty = f"the inventory at {revision} says nothing of {key} of {node}"
    return Answer(
        answer | {"lines": lines},
        lambda out: out.table(_BLAME, rows, empty=empty),
        OK if rows else FAILED,
    )


def _node_and_key(app: App, name: str) -> tuple[str, str]:
    """What NODE[.KEY] names. A node's name may have dots: the longest that is there is the node."""
    words = name.split(".")
    lengths = range(len(words), 0, -1) if len(words) > 1 else ()
    for length in lengths:
        node = ".".join(words[:length])
        try:
            app.head.get(f"/v1/nodes/{path_segment(node)}")
        except NotFound:
            continue
        return node, ".".join(words[length:])
    return name, ""


@command(inventory)
@click.argument("revision", metavar="REV")
@click.option("--keep", is_flag=True, help="What has moved on since stays as it is.")
@click.option(
    "--take-back",
    is_flag=True,
    help="What has moved on since is taken back too, and images that `image roll` has brought.",
)
@click.option("--allow-remove", is_flag=True, help="Nodes that the change has added are removed.")
@click.option("--plan", "plan_only", is_flag=True, help="Only show what it would do.")
@consent_options
@yes_option
def revert(
    app: App,
    revision: str,
    keep: bool,
    take_back: bool,
    allow_remove: bool,
    plan_only: bool,
    at_once: bool,
    confirm_secrets: bool,
    reason: str,
    no_wait: bool,
    timeout: float,
    yes: bool,
) -> Answer:
    """Undo the change REV, or all after A up to B with A..B, as an inventory is applied: planned,
    with the same questions, and with rolls for the images of many nodes."""
    if keep and take_back:
        raise click.UsageError("say either --keep or --take-back")
    request = {"revision": revision, "moved": _moved(keep, take_back)}
    planned = app.head.post("/v1/inventory/revert/plan", request)
    if not app.out.json or plan_only:
        if plan_only:
            return Answer(planned, lambda out: _show_revert(out, planned, at_once))
        _show_revert(app.out, planned, at_once)
    if planned["moved"] and not (keep or take_back):
        raise Refused(
            f"cannot revert {revision}: it meets {count_of(len(planned['moved']), 'newer value')}",
            hint="say --keep to leave these as they are, or --take-back to take them back too",
        )
    agreement = Agreement(allow_remove, take_back, at_once, confirm_secrets, yes, reason)
    use = PlanUse("/v1/inventory/revert", f"revert {revision}", request)
    return carry_out(app, use, planned, agreement, None if no_wait else timeout)


def _moved(keep: bool, take_back: bool) -> str:
    return "keep" if keep else "take-back" if take_back else ""


def _show_revert(out: Output, planned: Mapping[str, Any], at_once: bool) -> None:
    show_plan(out, planned, at_once)
    for moved in planned["moved"]:
        what = f"{moved['node']}: {moved['field']}" if moved["field"] else moved["node"]
        before, after, now = (moved[key] or "not said" for key in ("before", "after", "now"))
        out.note(
            f"{what} has moved on since: it was {before}, was made {after}, and is {now} now",
            YELLOW,
        )
    for unknown in planned["unknown"]:
        out.note(f"{unknown} is a key that this Layercake does not know; it is left out", YELLOW)


@command(inventory)
@yes_option
def rebuild(app: App, yes: bool) -> Answer:
    """Mend the repository of the history; one that is damaged is put aside, and another begins with
    the inventory in force."""
    app.must_confirm("Mend the history, or begin it anew if it is damaged?", yes)
    answer = app.head.post("/v1/inventory/rebuild", {})
    if answer["aside"]:
        return Answer(answer, f"the damaged history is {answer['aside']}; another has begun")
    locks = f"; removed {', '.join(answer['unlocked'])}" if answer["unlocked"] else ""
    return Answer(answer, f"the history is sound, and has caught up{locks}")
