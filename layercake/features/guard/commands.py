"""`layercake freeze`, `thaw`, `outage`, `explain`, and of `layercake node`: maintenance, take,
remedy."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import click

from layercake import documentation
from layercake.base.text import count_of
from layercake.client.command import FAILED, OK, Answer, App, command, nodes_argument, yes_option
from layercake.client.confirm import current_user, describe_nodes
from layercake.client.folding import fold_rows
from layercake.client.output import (
    BOLD,
    RED,
    YELLOW,
    Column,
    Output,
    format_duration,
    parse_duration,
)
from layercake.inventory.ranges import fold

_OUTAGES = (
    Column("WHERE"),
    Column("SILENT", right=True),
    Column("OF", right=True),
    Column("SINCE", right=True),
    Column("NODES", flexible=True),
)
_MAINTENANCES = (
    Column("NODE"),
    Column("SINCE"),
    Column("UNTIL"),
    Column("BY"),
    Column("ENDED"),
    Column("REASON", flexible=True),
)

_reason = click.option("--reason", required=True, help="Why; the others will want to know.")


def _names(answer: dict[str, Any], what: str) -> Answer:
    names = answer["nodes"]
    return Answer(answer, f"{what}: {fold(names)}" if names else f"{what}: the whole site")


@command()
@click.argument("nodes", metavar="[RANGE]", default="")
@_reason
def freeze(app: App, nodes: str, reason: str) -> Answer:
    """Observe the nodes of RANGE and do nothing to them; without RANGE, the whole site. It lasts
    until `thaw`."""
    return _names(
        app.head.post("/v1/guard/freeze", {"range": nodes, "reason": reason, "by": current_user()}),
        "frozen",
    )


@command()
@click.argument("nodes", metavar="[RANGE]", default="")
@yes_option
def thaw(app: App, nodes: str, yes: bool) -> Answer:
    """End the freeze of RANGE; without RANGE, of the whole site. What was held back goes on."""
    app.must_confirm(f"What the head held back goes on ({nodes or 'the whole site'}). Thaw?", yes)
    return _names(app.head.post("/v1/guard/thaw", {"range": nodes, "by": current_user()}), "thawed")


@click.group()
def outage() -> None:
    """Outages: many nodes of a domain that fell silent together. Nothing is done to them until they
    are back."""


@command(outage, "list")
def outages(app: App) -> Answer:
    """List the outages."""
    answer = app.head.get("/v1/guard")
    rows = [
        [o["where"], o["silent"], o["members"], format_duration(o["seconds"]), fold(o["nodes"])]
        for o in answer["outages"]
    ]
    return Answer(answer, lambda out: out.table(_OUTAGES, rows, empty="no outage"))


@command(outage, "end")
@click.argument("domain", default="")
@yes_option
def end_outage(app: App, domain: str, yes: bool) -> Answer:
    """Treat what is still silent in DOMAIN (without it, at the site): the nodes are started anew,
    some at a time."""
    known = [o for o in app.head.get("/v1/guard")["outages"] if o["domain"] == domain]
    if known:
        app.must_confirm(
            f"Start {count_of(known[0]['silent'], 'silent node')} anew, whatever may run there "
            f"({fold(known[0]['nodes'])})?",
            yes,
        )
    answer = app.head.post("/v1/guard/outage", {"domain": domain, "by": current_user()})
    return Answer(answer, "the outage is ended")


def _must_agree(app: App, nodes: str, what: str, yes: bool) -> None:
    """Asks, with how many nodes it is about."""
    if not yes:
        views = app.head.get("/v1/nodes", range=nodes)["nodes"]
        app.must_confirm(f"{what} {nodes}: {describe_nodes(views)}?", False)


@command(name="take")
@nodes_argument
@yes_option
def take_over(app: App, nodes: str, yes: bool) -> Answer:
    """Take over the machines of RANGE that were found running: whatever runs there ends, and they
    boot anew."""
    _must_agree(app, nodes, "Whatever runs there is ended. Take", yes)
    return _names(app.head.post("/v1/nodes/take", {"range": nodes, "by": current_user()}), "taken")


@command()
@nodes_argument
@yes_option
def remedy(app: App, nodes: str, yes: bool) -> Answer:
    """Let the silent nodes of RANGE be started anew, though something speaks against it (see `node
    explain`)."""
    _must_agree(app, nodes, "They may still be at work, only silent. Start anew", yes)
    return _names(
        app.head.post("/v1/nodes/remedy", {"range": nodes, "by": current_user()}), "released"
    )


@click.group()
def maintenance() -> None:
    """Maintenance of nodes: out of rolls, of remedies and of Slurm, for a reason that is kept."""


@command(maintenance)
@nodes_argument
@_reason
@click.option(
    "--for", "for_", default="", help="How long: 90s, 30m, 4h, 2d. Without it, until it is ended."
)
def begin(app: App, nodes: str, reason: str, for_: str) -> Answer:
    """Begin the maintenance of the nodes of RANGE: drain them."""
    body = {
        "range": nodes,
        "reason": reason,
        "seconds": parse_duration(for_) if for_ else None,
        "by": current_user(),
    }
    return _names(app.head.post("/v1/maintenance/begin", body), "in maintenance")


@command(maintenance)
@nodes_argument
def end(app: App, nodes: str) -> Answer:
    """End the maintenance of the nodes of RANGE: give them back, or undrain them. Those that were
    switched off stay off."""
    answer = app.head.post("/v1/maintenance/end", {"range": nodes, "by": current_user()})
    lines = [f"back from maintenance: {fold(answer['nodes'])}"]
    if off := fold(answer.get("off") or ()):
        lines.append(f"still wanted off: {off}; `layercake power on {off}` boots it")
    return Answer(answer, tuple(lines))


@command(maintenance, "list")
@click.argument("nodes", metavar="[RANGE]", default="@all")
def maintenances(app: App, nodes: str) -> Answer:
    """List maintenances, under way and over, of RANGE or of all nodes."""
    answer = app.head.get("/v1/maintenance", range=nodes)
    rows = fold_rows(
        (m["node"], _at(m["since"]), _at(m["until"]), m["by"], _at(m["ended"]), m["reason"])
        for m in answer["maintenances"]
    )
    empty = "no maintenance of them, neither under way nor over"
    return Answer(answer, lambda out: out.table(_MAINTENANCES, rows, empty))


def _at(when: float | None) -> str:
    return "-" if when is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(when))


def outage_line(outage: Mapping[str, Any]) -> str:
    """An outage, with the domains that are in it."""
    within = fold(outage["domains"]) if outage.get("domains") else ""
    return (
        f"OUTAGE    of {outage['where']}, for {format_duration(outage['seconds'])}: "
        f"{outage['silent']} of {outage['members']} nodes are silent"
        f"{f' ({within})' if within else ''}; nothing is done to them"
    )


def alarms(status: Mapping[str, Any], *, outages: bool = True) -> Iterator[tuple[str, str]]:
    """Lines of what is wrong with the head itself, or stops the whole site, by GET /v1/status, each
    with its style: they go before all else. Without `outages` where those are causes among
    others."""
    guard = status["guard"]
    if guard["frozen"]:
        yield f"FROZEN by {guard['frozen']['by']}: {guard['frozen']['reason']}", YELLOW
    for outage in guard["outages"] if outages else ():
        yield outage_line(outage), f"{BOLD};{RED}"
    yield from _of_heads(status.get("heads") or {})  # an older head has none
    for service in status["services"]:
        if service["state"] != "running":
            yield f"service {service['name']} is {service['state']}", RED
    if not status["database"]["well"]:
        yield f"the database is unwell: {status['database']['trouble']}", RED
    history = status.get("history")  # an older head has none
    if history and not history["well"]:
        yield (
            f"the inventory's history lacks {count_of(history['waiting'], 'change')}: "
            f"{history['trouble']}; "
            "`layercake inventory rebuild` mends it",
            YELLOW,
        )
    if (loop := status.get("loop")) and not loop[
        "well"
    ]:  # a head from before an upgrade does not say
        yield (
            f"the head is late with all that it does: {loop['trouble']}; read `{_page('metrics')}`",
            RED,
        )


def _of_heads(heads: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if heads.get("refuses"):
        yield heads["refuses"], RED
    for line in heads.get("troubles", ()):
        yield line, YELLOW


def _page(name: str) -> str:
    """What one types to read a how-to page."""
    return documentation.command(documentation.howto(name))


@command()
@click.argument("nodes", metavar="[RANGE]", default="")
def explain(app: App, nodes: str) -> Answer:
    """Say what keeps the nodes of RANGE, or all, from being as they are wanted: by cause, that of
    most nodes first, each with the next step. `layercake node explain NAME` has all of one node."""
    status = app.head.get("/v1/status")
    answer = app.head.get("/v1/causes", range=nodes)

    def show(out: Output) -> None:
        for line, style in alarms(status, outages=False):
            out.line(line, style)
        for cause in answer["causes"]:
            _show_cause(out, cause)
        for one in answer.get("beside", ()):
            _show_beside(out, one)
        stopped = (
            f"; of them frozen or in maintenance: {fold(names)}"
            if (names := answer.get("stopped"))
            else ""
        )
        out.line(
            f"{answer['well']} node{' is' if answer['well'] == 1 else 's are'} as wanted{stopped}"
        )

    return Answer(answer, show, FAILED if answer["causes"] else OK)


_STYLES = {"person": f"{BOLD};{RED}", "working": BOLD, "waiting": ""}


def _show_beside(out: Output, one: Mapping[str, Any]) -> None:
    names = one["nodes"]
    since = f", {format_duration(one['age_s'])} ago" if one["age_s"] else ""
    out.line(f"{f'{len(names)} ' if names else ''}beside that{since}: {one['text']}", BOLD)
    if names:
        out.line(f"  nodes:  {one['range']}")
    _show_next(out, one)


def _show_cause(out: Output, cause: Mapping[str, Any]) -> None:
    where = f"; all in {', '.join(cause['common'])}" if cause["common"] else ""
    since = f" for {format_duration(cause['longest_s'])}" if cause["longest_s"] else ""
    out.line(
        f"{len(cause['nodes'])} {cause['status']}{since}: {cause['text']}{where}",
        _STYLES[cause["needs"]],
    )
    within = f"; domains {cause['domains']}" if cause["domains"] else ""
    out.line(f"  nodes:  {cause['range']}{within}")
    for roll in cause.get("rolls", ()):
        out.line(
            f"  roll:   {roll['id']} to {roll['image']} has {roll['range']}; "
            f"`layercake roll status {roll['id']}`"
        )
    _show_next(out, cause)


def _show_next(out: Output, one: Mapping[str, Any]) -> None:
    """What to do, the command for it as it is typed, and where to read on."""
    command = f": `{one['command']}`" if one["command"] else ""
    page = f"; read `{_page(one['page'])}`" if one["page"] else ""
    out.line(f"  next:   {one['next']}{command}{page}")
