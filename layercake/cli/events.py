"""`layercake events`: what happened, and what happens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from layercake.cli.common.command import Answer, App, command
from layercake.cli.common.output import STYLES, Column, moment

HISTORY = (Column("TIME"), Column("NODE"), Column("KIND"), Column("SEVERITY", styled=True), Column("TEXT", flexible=True))


def event_row(event: Mapping[str, Any]) -> list[object]:
    """An event as a row of HISTORY."""
    return [moment(event["at"]), event.get("node") or "-", event["kind"], event["severity"], event["text"]]


@command()
@click.option("--follow", "-f", is_flag=True, help="Go on showing events as they happen, until interrupted.")
@click.option("--node", default="", help="Of this node only.")
@click.option("--kind", default="", help="Of kinds that start so: boot, power.state, mutation.failed.")
@click.option("--security", is_flag=True, help="Only those of security, which no others can push out of the history.")
@click.option("--since", type=click.IntRange(min=0), help="After the event with this id.")
@click.option("--limit", type=click.IntRange(1, 5000), default=100, show_default=True, help="At most so many past events.")
def events(app: App, follow: bool, node: str, kind: str, security: bool, since: int | None, limit: int) -> Answer:
    """Show events, oldest first. With --follow and --json, one JSON object in each line."""
    if follow:
        import asyncio

        from layercake.cli.common.follow import Follower  # slow to import

        asyncio.run(Follower(app, lambda event: _show(app, event), limit, node=node, kind=kind).run(since))
    answer = app.head.get("/v1/events", since=since, node=node, kind=kind, limit=limit, security=1 if security else None)
    return Answer(answer, lambda out: out.table(HISTORY, [event_row(e) for e in answer["events"]], empty="no events"))


def _show(app: App, event: Mapping[str, Any]) -> None:
    if app.out.json:
        app.out.json_line(event)
        return
    text = f"{moment(event['at'])}  {event.get('node') or '-':<12} {event['kind']:<20} {event['text']}"
    app.out.line(text, STYLES.get(event["severity"], ""))
