"""`layercake power`: what the BMCs say, on, off, cycle, and BMCs that are set up from inside."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from layercake.base.text import count_of, grouped, show, whole_number
from layercake.client.command import (
    FAILED,
    OK,
    REFUSED,
    Answer,
    App,
    command,
    nodes_argument,
    yes_option,
)
from layercake.client.confirm import confirm_stop, stays_off, stays_up
from layercake.client.folding import fold_rows
from layercake.client.http import lines_of
from layercake.client.output import Column, Output
from layercake.features.calls.commands import perform
from layercake.inventory.ranges import fold
from layercake.kraken.errors import InputError

_STATUS = (
    Column("NODE"),
    Column("POWER", styled=True),
    Column("DRIVER"),
    Column("ADDRESS"),
    Column("ERROR", flexible=True),
)
_RESULT = (Column("NODE"), Column("ACCEPTED"), Column("WHY", flexible=True))
_CAPS = (Column("NODE"), Column("CAP", right=True), Column("ERROR", flexible=True))
_SETUP = (Column("NODE"), Column("ADDRESS"), Column("NOW"), Column("WHAT CHANGES", flexible=True))
_PASSWORDS = (Column("NODE"), Column("FILE"), Column("WHY NOT", flexible=True))
_SENSORS = (
    Column("NODE"),
    Column("DRAWS", right=True),
    Column("HOTTEST", right=True),
    Column("WHERE"),
    Column("SLOWEST FAN", right=True),
    Column("HEALTH", styled=True),
    Column("ERROR", flexible=True),
)
_READINGS = (
    Column("NODE"),
    Column("SENSOR"),
    Column("VALUE", right=True),
    Column("UNIT"),
    Column("HEALTH", styled=True),
)
_STAYS = {"on": stays_up, "off": stays_off}
SENSORS_S = 1800.0  # some need half a minute for theirs, and a few are read at a time
PASSWORD_S = 600.0  # until the next BMC is done
POWER_S = 180.0  # a slow BMC takes tens of seconds, and many are asked


@click.group()
def power() -> None:
    """Power, by the nodes' BMCs. On and off change what is wanted of a node."""


@command(power)
@click.argument("nodes", metavar="[RANGE]", default="@all")
def status(app: App, nodes: str) -> Answer:
    """Ask the BMCs of RANGE (all if not given) now."""
    answer = app.head.get("/v1/power", range=nodes, timeout=POWER_S)
    rows = [
        [p["node"], p["power"], p["driver"] or "-", p["address"] or "-", p["error"] or ""]
        for p in answer["power"]
    ]
    code = FAILED if any(p["error"] for p in answer["power"]) else OK
    return Answer(answer, lambda out: out.table(_STATUS, rows, empty="no nodes"), code)


@command(power)
@nodes_argument
def log(app: App, nodes: str) -> Answer:
    """Read the event logs that the BMCs of RANGE keep."""
    return perform(app, "power.log", nodes, {})


@command(power)
@nodes_argument
def hardware(app: App, nodes: str) -> Answer:
    """Read what the BMCs of RANGE know of their machines: models, serial numbers, versions of
    firmware."""
    return perform(app, "power.hardware", nodes, {})


_ORDER: dict[str, Callable[[Any], Any]] = {
    "name": lambda row: row["node"],
    "power": lambda row: -(row["watts"] or 0.0),
    "temperature": lambda row: -(row["hottest"] or 0.0),
    "health": lambda row: ("critical", "failed", "warning", "ok", "unknown").index(row["health"]),
}


@command()
@nodes_argument
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Each reading, and not the most important ones of each node.",
)
@click.option(
    "--sort",
    "order",
    type=click.Choice(list(_ORDER)),
    default="name",
    show_default=True,
    help="What comes first.",
)
@click.option(
    "--above",
    type=float,
    metavar="C",
    help="Only machines that are hotter than C °C at their hottest place.",
)
def sensors(app: App, nodes: str, every: bool, order: str, above: float | None) -> Answer:
    """Read what the machines of RANGE draw, how warm they are, and how their fans turn, now."""
    return _sensors(app, nodes, every, order, above)


@command(power, "sensors", deprecated=True)
@nodes_argument
def old_sensors(app: App, nodes: str) -> Answer:
    """The earlier name of `layercake sensors RANGE --all`."""
    return _sensors(app, nodes, True, "name")


def _sensors(app: App, nodes: str, every: bool, order: str, above: float | None = None) -> Answer:
    answer = app.head.get("/v1/power/sensors", range=nodes, timeout=SENSORS_S)
    rows = answer["sensors"] = sorted(
        (row for row in answer["sensors"] if above is None or _is_above(row, above)),
        key=_ORDER[order],
    )
    code = FAILED if any(row["error"] for row in rows) else OK

    empty = "no nodes" if above is None else f"no machine is above {above:g} °C"
    if every:
        return Answer(answer, lambda out: _show_readings(out, rows), code)
    return Answer(answer, lambda out: _show_sensors(out, rows, empty), code)


def _show_readings(out: Output, rows: Sequence[Mapping[str, Any]]) -> None:
    """Each reading of each machine."""
    readings = [
        [row["node"], one["name"], _number(one["value"]), one["unit"], one["health"]]
        for row in rows
        for one in row["readings"]
    ]
    out.table(_READINGS, readings, empty="no sensors")
    for row in rows:
        if row["error"]:
            out.note(f"{row['node']}: {row['error']}")


def _show_sensors(out: Output, rows: Sequence[Mapping[str, Any]], empty: str) -> None:
    """A line for each machine, and what they draw together."""
    lines = [
        [
            row["node"],
            _number(row["watts"], " W"),
            _number(row["hottest"], " °C"),
            row["hottest_name"] or "-",
            _number(row["slowest_fan"], " RPM"),
            row["health"],
            row["error"],
        ]
        for row in rows
    ]
    out.table(_SENSORS, lines, empty=empty)
    drawn = [row["watts"] for row in rows if row["watts"] is not None]
    if len(drawn) > 1:
        out.line(f"{len(drawn)} of {len(rows)} nodes draw {sum(drawn):,.0f} W")


def _is_above(row: Mapping[str, Any], limit: float) -> bool:
    """Whether a machine is hotter than so many °C, or does not say how warm it is."""
    return bool(row["error"]) or (row["hottest"] is not None and row["hottest"] > limit)


def _number(value: float | None, unit: str = "") -> str:
    return (
        "-"
        if value is None
        else f"{value:,.10g}{unit}"
        if abs(value) < 1000
        else f"{value:,.0f}{unit}"
    )


def _change(
    app: App, nodes: str, what: str, force: bool, yes: bool, *, soft: bool = False
) -> Answer:
    if what != "on":
        confirm_stop(app, nodes, f"Power {what}", yes)
    body = {"range": nodes, "action": what, "force": force, **({"soft": True} if soft else {})}
    answer = app.head.post("/v1/power", body, timeout=POWER_S)
    rows = fold_rows(
        (r["node"], "yes" if r["accepted"] else "no", r["why"] or "") for r in answer["nodes"]
    )
    code = OK if all(r["accepted"] for r in answer["nodes"]) else REFUSED
    accepted = [r["node"] for r in answer["nodes"] if r["accepted"]]

    def show(out: Output) -> None:
        out.table(_RESULT, rows)
        if accepted and what in _STAYS:
            out.line(f"{fold(accepted)}: {_STAYS[what](accepted)}")

    return Answer(answer, show, code)


@command(power)
@nodes_argument
def on(app: App, nodes: str) -> Answer:
    """Want the nodes of RANGE up; they are powered on and booted."""
    return _change(app, nodes, "on", False, True)


@command(power)
@nodes_argument
@click.option(
    "--force", is_flag=True, help="BUSY nodes too, and without waiting for their images to stop."
)
@click.option(
    "--soft", is_flag=True, help="Only if the system inside shuts down when its BMC asks it to."
)
@yes_option
def off(app: App, nodes: str, force: bool, soft: bool, yes: bool) -> Answer:
    """Want the nodes of RANGE off."""
    return _change(app, nodes, "off", force, yes, soft=soft)


@command(power)
@nodes_argument
@click.option("--force", is_flag=True, help="BUSY nodes too.")
@yes_option
def cycle(app: App, nodes: str, force: bool, yes: bool) -> Answer:
    """Reboot the nodes of RANGE: power them off and on, and boot them anew."""
    return _change(app, nodes, "cycle", force, yes)


@command(power)
@nodes_argument
@click.argument("watts", metavar="[WATTS|none]", default="")
@yes_option
def cap(app: App, nodes: str, watts: str, yes: bool) -> Answer:
    """Show how much the machines of RANGE may draw, or have their BMCs cap it at WATTS, or at
    none."""
    if not watts:
        answer = app.head.get("/v1/power/cap", range=nodes, timeout=POWER_S)
    else:
        wanted = _watts(watts)
        what = "Cap no more" if wanted is None else f"Cap at {wanted} W"
        app.must_confirm(f"{what} what {nodes} draw?", yes)
        answer = app.head.post("/v1/power/cap", {"range": nodes, "watts": wanted}, timeout=POWER_S)
    rows = fold_rows((r["node"], _cap(r), r["error"]) for r in answer["nodes"])
    code = FAILED if any(r["error"] for r in answer["nodes"]) else OK
    return Answer(answer, lambda out: out.table(_CAPS, rows, empty="no nodes"), code)


def _watts(text: str) -> int | None:
    """A number of watts, None for "none". Raises InputError."""
    if text == "none":
        return None
    watts = whole_number(text, 65535)
    if not watts:
        raise InputError(
            f"cannot cap the power at {show(text)}: expected watts, or none", hint="as 350"
        )
    return watts


def _cap(row: Mapping[str, Any]) -> str:
    if row["error"]:
        return "-"
    return "none" if row["watts"] is None else f"{row['watts']} W"


@command(power)
@nodes_argument
@click.option(
    "--prefix",
    type=click.IntRange(8, 30),
    help="The length of the prefix of the BMCs' network, if the inventory does not have it.",
)
@click.option(
    "--gateway",
    default="",
    help="The router of the BMCs' network, if the inventory does not have it.",
)
@yes_option
def setup(app: App, nodes: str, prefix: int | None, gateway: str, yes: bool) -> Answer:
    """Set up the BMCs of the nodes of RANGE from inside, by their running agents: address, user and
    password of the inventory."""
    body = {"range": nodes, "prefix": prefix or 0, "gateway": gateway}
    rows = app.head.post("/v1/power/setup", body, timeout=POWER_S)["nodes"]
    changed = [one["node"] for one in rows if one["lines"] and not one["error"]]
    if changed and not yes:
        app.out.table(_SETUP, _set_up(rows))
    if changed:
        app.must_confirm(f"Change the BMCs of {fold(changed)}?", yes)
        done = app.head.post(
            "/v1/power/setup", {**body, "range": ",".join(changed), "apply": True}, timeout=POWER_S
        )["nodes"]
        rows = [one for one in rows if one["node"] not in changed] + done
    code = FAILED if any(one["error"] for one in rows) else OK
    return Answer({"nodes": rows}, lambda out: out.table(_SETUP, _set_up(rows)), code)


@command(power)
@nodes_argument
@click.option(
    "--new",
    metavar="FILE",
    default="",
    help="A file in the head's directory of secrets that has the new password; a random one if not "
    "given.",
)
@yes_option
def password(app: App, nodes: str, new: str, yes: bool) -> Answer:
    """Give the BMCs of RANGE a new password, in the files that the inventory has it from.

    Each BMC must be seen to take it; until then the old one is used, and one that does not take it
    keeps the old one. Once all nodes of a file take the new password, it is in that file. What was
    cut off, or failed on some nodes, goes on when the command is given again.
    """
    app.must_confirm(f"Change the passwords of the BMCs of {nodes}?", yes)
    rows: list[dict[str, Any]] = []
    body = {"range": nodes, "new": new}
    with app.out.progress() as progress:
        for line in lines_of(
            app.head.stream("POST", "/v1/power/password", timeout=PASSWORD_S, body=body)
        ):
            rows.append(json.loads(line))
            progress((), lambda: [f"{count_of(len(rows), 'node')} done"])
    failed = [row for row in rows if row["error"]]

    def show(out: Output) -> None:
        if failed:
            out.table(_PASSWORDS, _not_changed(failed))
        for text in _password_lines(rows):
            out.line(text)

    return Answer({"nodes": rows}, show, FAILED if failed else OK)


def _not_changed(failed: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The nodes whose passwords were not changed, those with one file and one reason together."""
    alike = grouped(((row["file"] or "-", row["error"]), row["node"]) for row in failed)
    return [[fold(names), *why] for why, names in alike.items()]


def _password_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What was done, a line for each file, or for all that are of one node each."""
    done = [row for row in rows if not row["error"]]
    lines = [f"{fold([row['node'] for row in done])}: the new password works"] if done else []
    half = {row["file"] for row in rows if row["error"]} & {row["file"] for row in done} - {""}
    lines.extend(
        f"{file} has the old password until the others of its nodes take the new one too: give "
        "the command again"
        for file in sorted(half)
    )
    return lines


def _set_up(rows: list[dict[str, Any]]) -> list[list[str]]:
    return [
        [
            one["node"],
            one["address"] or "-",
            one["now"] or "-",
            one["error"]
            or ("done: " if one["done"] else "") + ("; ".join(one["lines"]) or "nothing"),
        ]
        for one in rows
    ]
