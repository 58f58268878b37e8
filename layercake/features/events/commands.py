"""`layercake events`: what happened, and what happens."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any

import click

from layercake.client.command import Answer, App, command
from layercake.client.output import STYLES, Column, format_time, parse_duration
from layercake.kraken.errors import InputError

HISTORY = (
    Column("TIME"),
    Column("NODE"),
    Column("KIND"),
    Column("SEVERITY", styled=True),
    Column("TEXT", flexible=True),
)


def event_row(event: Mapping[str, Any]) -> list[object]:
    """An event as a row of HISTORY."""
    return [
        format_time(event["at"]),
        event.get("node") or "-",
        event["kind"],
        event["severity"],
        event["text"],
    ]


@command()
@click.option(
    "--follow", "-f", is_flag=True, help="Go on showing events as they happen, until interrupted."
)
@click.option("--node", default="", help="Of this node only.")
@click.option(
    "--range", "nodes", default="", metavar="RANGE", help="Of these nodes only: n[0-3], @group."
)
@click.option(
    "--where",
    default="",
    metavar="QUERY",
    help="Of the nodes only that a query means now: 'status=quarantined'.",
)
@click.option(
    "--kind", default="", help="Of kinds that start so: boot, power.state, mutation.failed."
)
@click.option(
    "--severity",
    type=click.Choice(("debug", "info", "warning", "error")),
    help="Only those that are at least so grave.",
)
@click.option(
    "--security",
    is_flag=True,
    help="Only those of security, which no others can push out of the history.",
)
@click.option(
    "--from",
    "begin",
    default="",
    metavar="WHEN",
    help="Not older than that: 90m, 2d, or '2026-11-25 03:00'.",
)
@click.option("--to", "end", default="", metavar="WHEN", help="Not newer than that.")
@click.option("--since", type=click.IntRange(min=0), help="After the event with this id.")
@click.option("--before", type=click.IntRange(min=1), help="Before the event with this id.")
@click.option(
    "--limit",
    type=click.IntRange(1, 5000),
    default=100,
    show_default=True,
    help="At most so many past events.",
)
def events(
    app: App,
    follow: bool,
    since: int | None,
    limit: int,
    node: str,
    kind: str,
    security: bool,
    begin: str,
    end: str,
    **more: str | int | None,
) -> Answer:
    """Show events, oldest first. With --follow and --json, one JSON object in each line."""
    if follow:
        if begin or end or any(more.values()):
            raise click.UsageError("--follow goes with --node, --kind, --since and --limit")
        import asyncio

        from layercake.client.event_stream import Follower  # slow to import

        asyncio.run(
            Follower(app, lambda event: _show(app, event), limit, node=node, kind=kind).run(since)
        )
    asked: dict[str, Any] = {
        "since": since,
        "node": node,
        "kind": kind,
        "limit": limit,
        "security": 1 if security else None,
        "range": more["nodes"],
        "where": more["where"],
        "severity": more["severity"],
        "before": more["before"],
        "from": _when(begin),
        "to": _when(end),
    }
    answer = app.head.get("/v1/events", **asked)
    return Answer(
        answer,
        lambda out: out.table(HISTORY, [event_row(e) for e in answer["events"]], empty="no events"),
    )


def _when(text: str) -> str | None:
    """A time as the head takes it: a date with a time of this machine's zone, or so long ago.
    Raises InputError."""
    if not text:
        return None
    for form in ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d"):
        with contextlib.suppress(ValueError, OverflowError):
            return str(time.mktime(time.strptime(text, form)))
    try:
        return str(-parse_duration(text))
    except InputError:
        raise InputError(
            f"cannot use {text[:40]!r} as a time",
            hint="write 90m, 4h or 2d for so long ago, or a date: 2026-11-25 03:00",
        ) from None


def _show(app: App, event: Mapping[str, Any]) -> None:
    if app.out.json:
        app.out.json_line(event)
        return
    text = (
        f"{format_time(event['at'])}  {event.get('node') or '-':<12} {event['kind']:<20} "
        f"{event['text']}"
    )
    app.out.line(text, STYLES.get(event["severity"], ""))
