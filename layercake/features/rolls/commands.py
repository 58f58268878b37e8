"""`layercake roll`: how rolls are, and orders to them; and `layercake image roll` when it goes in
batches."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from layercake.base.clock import local_moment
from layercake.base.text import count_of
from layercake.client.command import FAILED, OK, Answer, App, command
from layercake.client.confirm import current_user
from layercake.client.folding import fold_rows
from layercake.client.output import (
    BOLD,
    DIM,
    GREEN,
    Column,
    Output,
    clean,
    format_duration,
    format_time,
)
from layercake.client.watch import poll
from layercake.inventory.ranges import fold
from layercake.kraken.errors import InputError

OVER = ("done", "failed", "aborted")
_ORDER = (
    "done",
    "watching",
    "switching",
    "staged",
    "busy",
    "waiting",
    "staging",
    "to go back",
    "going back",
    "rolled back",
    "failed",
    "skipped",
)
_LIST = (
    Column("ID", right=True),
    Column("STATE", styled=True),
    Column("TO"),
    Column("NODES", right=True),
    Column("DONE", right=True),
    Column("BATCH", right=True),
    Column("STAGE"),
    Column("BY"),
    Column("BEGINS"),
    Column("TOOK", right=True),
    Column("REASON", flexible=True),
)
_NODES = (
    Column("NODE"),
    Column("STATE", styled=True),
    Column("STAGE"),
    Column("BATCH", right=True),
    Column("REASON", flexible=True),
)
_COUNTS = (Column("NODES ARE", styled=True), Column("COUNT", right=True))

_BAR = 40  # columns

Roll = Mapping[str, Any]
F = TypeVar("F", bound=Callable[..., Any])


_PLAN = (
    click.option(
        "--batch",
        metavar="N|P%",
        help="So many nodes, or this share of a stage, go together and pass a gate together.",
    ),
    click.option("--max-unavailable", metavar="N|P%", help="No more of them switch at a time."),
    click.option(
        "--canary",
        type=click.IntRange(min=1),
        metavar="N",
        help="So many nodes go first, as a batch of their own.",
    ),
    click.option(
        "--health-timeout",
        "health_timeout_s",
        type=click.FloatRange(0, 86400),
        metavar="S",
        help="A node must be well for so long after its switch, and its health checks pass; 5 if "
        "not given.",
    ),
    click.option(
        "--on-failure",
        type=click.Choice(["rollback", "pause"]),
        help="When a node fails: take its batch back, or pause.",
    ),
    click.option(
        "--stages",
        metavar="GROUP,..",
        help="Inventory groups that go one after the other; `all` at the end is the rest.",
    ),
)


def plan_options(function: F) -> F:
    """The options that say how a roll goes."""
    for option in reversed(_PLAN):
        function = option(function)
    return function


at_option = click.option(
    "--at",
    metavar="TIME",
    help="When it begins: 02:00, 2026-11-28 02:00 (by this machine's zone), or "
    "2026-11-28T02:00+01:00. Until then `roll status` shows it and `roll abort` takes it back.",
)


def at_request(at: str | None) -> dict[str, str]:
    """When a roll begins, for a request: nothing for one that begins now. Raises InputError."""
    return {} if at is None else {"at": local_moment(at, time.time())}


def scheduled_line(roll: Roll) -> str:
    """A roll that begins later, in a line."""
    return (
        f"roll {roll['id']} begins {format_time(roll['starts'])}; `layercake roll abort "
        f"{roll['id']}` takes it back"
    )


def plan_request(options: Mapping[str, Any]) -> dict[str, Any]:
    """What of them was given, for a request. Raises InputError."""
    fields = {k: v for k, v in options.items() if v is not None}
    stages = fields.pop("stages", None)
    if stages is not None:
        fields["stages"] = [name.strip() for name in stages.split(",")]
        if not all(fields["stages"]):
            raise InputError(
                f"cannot use --stages {stages!r}: group names with commas between them are expected"
            )
    return fields


@click.group()
def roll() -> None:
    """Rolls in batches: how they are, and orders to them. `layercake image roll` begins one."""


@command(roll)
@click.argument("number", metavar="[ID]", type=click.IntRange(min=1), required=False)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="With ID: all its nodes, not only those that are not done.",
)
@click.option(
    "--follow", "-f", is_flag=True, help="With ID: show progress until it is over or paused."
)
def status(app: App, number: int | None, everything: bool, follow: bool) -> Answer:
    """Show the newest rolls, or the roll ID and its nodes."""
    if number is None:
        answer = app.head.get("/v1/rolls")
        rows = [
            [
                r["id"],
                r["state"],
                r["image"],
                r["nodes_total"],
                r["counts"].get("done", 0),
                r["batch"] or "-",
                r["stage"],
                r["by"],
                format_time(_begins(r)),
                _took(r),
                r["reason"] or _left(r).removeprefix(", "),
            ]
            for r in answer["rolls"]
        ]
        empty = "no rolls; `layercake image roll RANGE IMAGE --batch 10%` begins one"
        return Answer(answer, lambda out: out.table(_LIST, rows, empty))
    if follow:
        _follow(app, number, None)
        return _result(app, number, everything)
    found = _result(app, number, everything)
    asked = found.document["roll"]["state"] == "aborted"  # a person wanted it so, and it is so
    return dataclasses.replace(found, code=OK) if asked else found


def _order(what: str, help_text: str) -> None:
    @command(roll, what, help=help_text)
    @click.argument("number", metavar="[ID]", type=click.IntRange(min=1), required=False)
    def order(app: App, number: int | None) -> Answer:
        answer = app.head.post(f"/v1/rolls/{number or _only(app)}/{what}", {"by": current_user()})
        return Answer(answer, roll_line(answer["roll"]))


_order("pause", "Have the roll ID (the only one if not given) begin no further switch.")
_order("resume", "Have a paused roll go on. Nodes that have failed stay as they are.")
_order("abort", "End a roll: nodes that have switched stay, the others are not touched.")


def _only(app: App) -> int:
    """The number of the one roll that is not over. Raises InputError."""
    open_rolls = [r for r in app.head.get("/v1/rolls")["rolls"] if r["state"] not in OVER]
    if len(open_rolls) != 1:
        numbers = ", ".join(str(r["id"]) for r in open_rolls)
        raise InputError(
            "cannot tell which roll is meant: "
            + (f"there are {numbers}" if open_rolls else "none is under way"),
            hint="see `layercake roll status`",
        )
    return int(open_rolls[0]["id"])


def start_roll(app: App, request: dict[str, Any], wait: bool, timeout: float) -> Answer:
    """Begins a roll in batches and follows it. The exit code says whether all is well."""
    answer = app.head.post("/v1/rolls", {**request, "by": current_user()})
    return follow_begun(app, answer, wait, timeout)


def follow_begun(app: App, answer: Roll, wait: bool, timeout: float) -> Answer:
    """Follows the roll of an answer, unless it begins later or nobody waits for it."""
    view = answer["roll"]
    if view["state"] == "scheduled":
        return Answer(answer, scheduled_line(view))
    if wait:
        return follow_roll(app, int(view["id"]), timeout)
    return Answer(answer, roll_line(view))


def follow_roll(app: App, number: int, timeout: float) -> Answer:
    """Follows a roll until it is over or paused, at most `timeout` seconds, and says how it is."""
    if not _follow(app, number, timeout):
        app.out.note(f"roll {number} is still under way after {timeout:.0f} s")
        app.out.note(f"hint: layercake roll status {number} --follow")
    return _result(app, number)


def follow_rolls(app: App, begun: Sequence[Roll], timeout: float) -> Answer:
    """The same of rolls that go side by side."""
    started = time.monotonic()
    answers = [
        follow_roll(app, int(roll["id"]), max(0.0, started + timeout - time.monotonic()))
        for roll in begun
    ]

    def show(out: Output) -> None:
        for answer in answers:
            answer.print(out)

    code = max((answer.code for answer in answers), default=OK)
    return Answer({"rolls": [answer.document["roll"] for answer in answers]}, show, code)


def begun_line(roll: Roll) -> str:
    """A roll that the head has begun by itself, in a line."""
    if roll.get("starts") is not None:
        return f"{fold(roll['nodes'])}: {scheduled_line(roll)}"
    return (
        f"roll {roll['id']}: {fold(roll['nodes'])}; see `layercake roll status {roll['id']} "
        "--follow`"
    )


def roll_line(view: Roll) -> str:
    """A roll in a line."""
    counts = ", ".join(f"{view['counts'][k]} {k}" for k in _ORDER if view["counts"].get(k))
    if view["state"] == "scheduled":
        counts = f"{count_of(view['nodes_total'], 'node')}, from {format_time(view['starts'])} on"
    return f"{_where(view)}; {counts}" + (f": {view['reason']}" if view["reason"] else "")


def _begins(view: Roll) -> float:
    return float(view["at"] if view.get("starts") is None else view["starts"])


def _took(view: Roll) -> str:
    """How long a roll took that is over; "-" for one that is not, or that never began."""
    ended = view.get("ended")
    began = _begins(view)
    return "-" if ended is None or ended < began else format_duration(ended - began)


def _where(view: Roll) -> str:
    stage = f", stage {view['stage']}" if len(view["stages"]) > 1 else ""
    batch = f", batch {view['batch']}" if view["batch"] else ""
    return f"roll {view['id']} to {view['image']}: {view['state']}{stage}{batch}"


def _result(app: App, number: int, everything: bool = False) -> Answer:
    """A roll with its nodes; the exit code says whether it went, or goes, well."""
    view = app.head.get(
        f"/v1/rolls/{number}", nodes="all" if everything or app.out.json else "open"
    )["roll"]

    def show(out: Output) -> None:
        out.line(roll_line(view))
        rows = []
        for node in view["nodes"]:
            trouble = str(node["trouble"]).splitlines()
            why = node["reason"] + (f" ({' '.join(trouble)})" if trouble and node["reason"] else "")
            batch = str(node["batch"] or "-")
            rows.append((node["name"], node["state"], node["stage"], batch, why))
        if rows:
            out.table(_NODES, fold_rows(rows))

    bad = view["state"] in ("failed", "aborted") or (
        view["state"] == "paused" and view["counts"].get("failed")
    )
    return Answer({"roll": view}, show, FAILED if bad else OK)


def _follow(app: App, number: int, timeout: float | None) -> bool:
    """Shows a roll until it is over or paused; False if `timeout` seconds pass before."""
    out = app.out
    last = ""
    with out.progress() as show:
        for answer, elapsed in poll(
            out, lambda: app.head.get(f"/v1/rolls/{number}", nodes="none"), timeout
        ):
            view = answer["roll"]
            text = roll_line(view)
            show(
                [f"{elapsed:7.1f}s  {text}"] if text != last else [],
                functools.partial(_picture, view, elapsed, out),
            )
            last = text
            if view["state"] in (*OVER, "paused"):
                return True
    return False


def _picture(view: Roll, elapsed: float, out: Output) -> list[str]:
    done = view["counts"].get("done", 0)
    total = max(1, view["nodes_total"])
    filled = _BAR * done // total
    bar = out.styled("━" * filled, GREEN) + out.styled("━" * (_BAR - filled), DIM)
    rows = [(k, view["counts"][k]) for k in _ORDER if view["counts"].get(k)]
    title = out.styled(clean(_where(view)), BOLD)
    return [
        title,
        f"{bar} {done} of {total} nodes, {format_duration(elapsed)}{_left(view)}",
        *out.table_lines(_COUNTS, rows),
    ]


def _left(view: Roll) -> str:
    """How long a roll still takes, as far as that can be said."""
    left = view.get("left_s")
    return "" if left is None else f", about {format_duration(left)} left"


def roll_request(
    nodes: str, image: str, replace: str | None, at_once: bool, options: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The request for a roll as the options have it, None if no option asks for one. Raises
    InputError."""
    plan = plan_request(options)
    if not plan:
        return None
    if at_once:
        raise InputError(
            "cannot roll at once and in batches",
            hint=f"leave out --at-once, or --{min(plan).replace('_', '-')}",
        )
    return {"range": nodes, "image": image, "replace": replace, **plan}
