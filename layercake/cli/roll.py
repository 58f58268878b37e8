"""`layercake roll`: how rolls are, and orders to them; and `layercake image roll` when it goes in batches."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import click
from rich.console import Group
from rich.live import Live
from rich.text import Text

from layercake.cli.app import FAILED, OK, App, json_option, pass_app
from layercake.cli.client import Client
from layercake.cli.output import Column, Output, build, moment, seconds
from layercake.kraken.errors import InputError, Unreachable

POLL_S = 0.3
OVER = ("done", "failed", "aborted")
_ORDER = ("done", "watching", "switching", "staged", "busy", "waiting", "staging", "to go back", "going back", "rolled back",
          "failed", "skipped")
_LIST = (Column("ID", right=True), Column("STATE", styled=True), Column("IMAGE"), Column("NODES", right=True),
         Column("DONE", right=True), Column("BATCH", right=True), Column("STAGE"),
         Column("BY"), Column("BEGAN"), Column("REASON", flexible=True))
_NODES = (Column("NODE"), Column("STATE", styled=True), Column("STAGE"), Column("BATCH", right=True),
          Column("REASON", flexible=True))
_COUNTS = (Column("NODES ARE", styled=True), Column("COUNT", right=True))

Roll = Mapping[str, Any]


def who() -> str:
    """The name that stands in the history for the person at this terminal."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


@click.group()
def roll() -> None:
    """Rolls in batches: how they are, and orders to them. `layercake image roll` begins one."""


@roll.command()
@click.argument("number", metavar="[ID]", type=click.IntRange(min=1), required=False)
@click.option("--all", "everything", is_flag=True, help="With ID: all its nodes, not only those that are not done.")
@click.option("--follow", "-f", is_flag=True, help="With ID: show progress until it is over or paused.")
@json_option
@pass_app
def status(app: App, number: int | None, everything: bool, follow: bool) -> int:
    """Show the newest rolls, or the roll ID and its nodes."""

    async def action(head: Client) -> int:
        if number is None:
            _list(app.out, await head.get("/v1/rolls"))
            return OK
        if follow:
            await follow_roll(head, number, app.out, None)
        answer = await head.get(f"/v1/rolls/{number}", nodes="all" if everything or app.out.json else "open")
        return _show(app.out, answer["roll"])

    return app.run(action)


def _order(what: str, help_text: str) -> click.Command:
    @click.argument("number", metavar="[ID]", type=click.IntRange(min=1), required=False)
    @json_option
    @pass_app
    def command(app: App, number: int | None) -> int:
        async def action(head: Client) -> int:
            chosen = number or await _only(head)
            answer = await head.post(f"/v1/rolls/{chosen}/{what}", {"by": who()})
            if app.out.json:
                app.out.document(answer)
            else:
                app.out.line(one_line(answer["roll"]))
            return OK

        return app.run(action)

    return click.command(what, help=help_text)(command)


roll.add_command(_order("pause", "Have the roll ID (the only one if not given) begin no further switch."))
roll.add_command(_order("resume", "Have a paused roll go on. Nodes that have failed stay as they are."))
roll.add_command(_order("abort", "End a roll: nodes that have switched stay, the others are not touched."))


async def _only(head: Client) -> int:
    """The number of the one roll that is not over. Raises InputError."""
    found = [r for r in (await head.get("/v1/rolls"))["rolls"] if r["state"] not in OVER]
    if len(found) != 1:
        numbers = ", ".join(str(r["id"]) for r in found)
        raise InputError("cannot tell which roll is meant: " + (f"there are {numbers}" if found else "none is under way"),
                         hint="see `layercake roll status`")
    return int(found[0]["id"])


async def begin(app: App, head: Client, request: dict[str, Any], wait: bool, timeout: float) -> int:
    """Begins a roll in batches and follows it. The exit code says whether all is well."""
    out = app.out
    answer = await head.post("/v1/rolls", {**request, "by": who()})
    number = int(answer["roll"]["id"])
    if not wait:
        if out.json:
            out.document(answer)
        else:
            out.line(one_line(answer["roll"]))
        return OK
    if not await follow_roll(head, number, out, timeout):
        out.note(f"roll {number} is still under way after {timeout:.0f} s")
        out.note(f"hint: layercake roll status {number} --follow")
    return _show(out, (await head.get(f"/v1/rolls/{number}", nodes="all" if out.json else "open"))["roll"])


def one_line(view: Roll) -> str:
    """A roll in a line."""
    where = f", stage {view['stage']}" if len(view["stages"]) > 1 else ""
    batch = f", batch {view['batch']}" if view["batch"] else ""
    counts = view["counts"]
    told = ", ".join(f"{counts[k]} {k}" for k in _ORDER if counts.get(k))
    reason = f": {view['reason']}" if view["reason"] else ""
    return f"roll {view['id']} to {view['image']}: {view['state']}{where}{batch}; {told}{reason}"


def _list(out: Output, answer: Mapping[str, Any]) -> None:
    if out.json:
        out.document(answer)
        return
    rows = [[r["id"], r["state"], r["image"], r["nodes_total"], r["counts"].get("done", 0), r["batch"] or "-", r["stage"], r["by"],
             moment(r["at"]), r["reason"]] for r in answer["rolls"]]
    out.table(_LIST, rows, empty="no rolls; `layercake image roll RANGE IMAGE --batch 10%` begins one")


def _show(out: Output, view: Roll) -> int:
    """A roll with its nodes; the exit code says whether it went, or goes, well."""
    if out.json:
        out.document({"roll": view})
    else:
        out.line(one_line(view))
        if view["nodes"]:
            rows = []
            for node in view["nodes"]:
                trouble = str(node["trouble"]).splitlines()
                why = node["reason"] + (f" ({' '.join(trouble)})" if trouble and node["reason"] else "")
                rows.append([node["name"], node["state"], node["stage"], node["batch"] or "-", why])
            out.table(_NODES, rows)
    return FAILED if view["state"] in ("failed", "aborted") or (view["state"] == "paused" and view["counts"].get("failed")) else OK


async def follow_roll(head: Client, number: int, out: Output, timeout: float | None) -> bool:
    """Shows a roll until it is over or paused; False if `timeout` seconds pass before. A head that goes away is waited for."""
    started, away = time.monotonic(), False
    with _screen(out) as show:
        while timeout is None or time.monotonic() - started < timeout:
            try:
                view = (await head.get(f"/v1/rolls/{number}", nodes="none"))["roll"]
                away = False
                show(view, time.monotonic() - started)
                if view["state"] in (*OVER, "paused"):
                    return True
            except Unreachable as error:
                if not away:
                    out.note(f"{error.message}; waiting for it")
                away = True
            await asyncio.sleep(POLL_S)
    return False


Show = Callable[[Roll, float], None]


@contextlib.contextmanager
def _screen(out: Output) -> Iterator[Show]:
    """How progress is shown: a live table on a terminal, a line for each change elsewhere, nothing with --json."""
    if out.json:
        yield lambda view, elapsed: None
    elif out.terminal:
        with Live(console=out.console, refresh_per_second=8, transient=True) as live:
            yield lambda view, elapsed: live.update(_picture(view, elapsed, out))
    else:
        last = ""

        def lines(view: Roll, elapsed: float) -> None:
            nonlocal last
            text = one_line(view)
            if text != last:
                out.line(f"{elapsed:7.1f}s  {text}")
                last = text

        yield lines


def _picture(view: Roll, elapsed: float, out: Output) -> Group:
    counts, total = view["counts"], max(1, view["nodes_total"])
    rows = [(k, counts[k]) for k in _ORDER if counts.get(k)]
    width = max(10, min(40, out.console.width - 30))
    filled = width * counts.get("done", 0) // total
    bar = Text("━" * filled, style="green") + Text("━" * (width - filled), style="dim")
    head = Text(one_line(view).split(";")[0], style="bold")
    return Group(head, bar + Text(f" {counts.get('done', 0)} of {total} nodes, {seconds(elapsed)}"),
                 build(_COUNTS, rows, out.console.width))


def request_of(nodes: str, image: str, replace: str | None, options: Mapping[str, Any]) -> dict[str, Any] | None:
    """The request for a roll in batches, None if no option asks for one. Raises InputError."""
    given = {k: v for k, v in options.items() if v is not None}
    if not given:
        return None
    stages = given.pop("stages", None)
    if stages is not None:
        given["stages"] = [name.strip() for name in stages.split(",")]
        if not all(given["stages"]):
            raise InputError(f"cannot use --stages {stages!r}: group names with commas between them are expected")
    return {"range": nodes, "image": image, "replace": replace, **given}
