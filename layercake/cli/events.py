"""`layercake events`: what happened, and what happens."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import click

from layercake.cli.app import OK, App, json_option, pass_app
from layercake.cli.client import Client
from layercake.cli.node import HISTORY, event_row
from layercake.cli.output import STYLES, Output, clean, moment
from layercake.kraken.errors import Unreachable

RETRY_S = 2.0


@click.command()
@click.option("--follow", "-f", is_flag=True, help="Go on showing events as they happen, until interrupted.")
@click.option("--node", default="", help="Of this node only.")
@click.option("--kind", default="", help="Of kinds that start so: boot, power.state, mutation.failed.")
@click.option("--since", type=click.IntRange(min=0), help="After the event with this id.")
@click.option("--limit", type=click.IntRange(1, 5000), default=100, show_default=True, help="At most so many past events.")
@json_option
@pass_app
def events(app: App, follow: bool, node: str, kind: str, since: int | None, limit: int) -> int:
    """Show events, oldest first. With --follow and --json, one JSON object in each line."""

    async def action(head: Client) -> int:
        if follow:
            return await Follower(app.out, node, kind, limit).run(head, since)
        answer = await head.get("/v1/events", since=since, node=node, kind=kind, limit=limit)
        if app.out.json:
            app.out.document(answer)
        else:
            app.out.table(HISTORY, [event_row(e) for e in answer["events"]], empty="no events")
        return OK

    return app.run(action)


class Follower:
    """Shows each event once, in order, across interruptions of the stream."""

    def __init__(self, out: Output, node: str, kind: str, limit: int) -> None:
        self._out = out
        self._filter = {"node": node, "kind": kind}
        self._limit = limit
        self._last: int | None = None

    async def run(self, head: Client, since: int | None) -> int:
        """Until interrupted. Raises Unreachable only if the head was not there at the start."""
        self._last = since
        reached = False
        while True:
            try:
                async for batch in head.events(**self._filter):
                    # The stream is open now, so what the list does not hold comes by the stream; ids tell them apart.
                    past = [] if batch else await self._past(head)
                    reached = True
                    for event in [*past, *batch]:
                        self._show(event)
            except Unreachable as error:
                if not reached:
                    raise
                self._out.note(f"{error.message}; trying again")
            await asyncio.sleep(RETRY_S)

    async def _past(self, head: Client) -> list[dict[str, Any]]:
        answer = await head.get("/v1/events", since=self._last, limit=self._limit, **self._filter)
        found: list[dict[str, Any]] = answer["events"]
        return found

    def _show(self, event: Mapping[str, Any]) -> None:
        if self._last is not None and event["id"] <= self._last:
            return
        self._last = event["id"]
        if self._out.json:
            self._out.json_line(event)
            return
        text = f"{moment(event['at'])}  {event.get('node') or '-':<12} {event['kind']:<20} {event['text']}"
        self._out.line(clean(text), STYLES.get(event["severity"], ""))
        self._out.flush()
