"""`layercake console`: a machine's console, live, as it was kept, or searched for something."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click

from layercake.client.command import Answer, App, command
from layercake.client.http import path_segment
from layercake.client.output import Column, Output, format_duration, format_size, format_time
from layercake.kraken.errors import InputError, Refused

_LIST = (
    Column("NODE"),
    Column("CONSOLE", styled=True),
    Column("SINCE", right=True),
    Column("LOG", right=True),
    Column("KEYBOARD"),
    Column("READERS"),
    Column("WHY", flexible=True),
)
_ASKED_S = 60.0


@command()
@click.argument("nodes", metavar="[NODE|RANGE]", default="")
@click.option(
    "--read", "reading", is_flag=True, help="Only look: nothing that is typed reaches the machine."
)
@click.option(
    "--take",
    is_flag=True,
    help="Take the keyboard, and the console from another session of its BMC.",
)
@click.option("--log", "kept", is_flag=True, help="What the console of NODE has said, with times.")
@click.option(
    "--lines",
    type=click.IntRange(1, 5000),
    default=200,
    show_default=True,
    help="How many lines of the log.",
)
@click.option(
    "--grep",
    "pattern",
    default="",
    metavar="PATTERN",
    help="Lines with PATTERN in the logs of RANGE, or of all.",
)
@click.option("--regex", is_flag=True, help="PATTERN is a regular expression (Python's re).")
@click.option("--ignore-case", "-i", is_flag=True, help="Upper and lower case are the same.")
@click.option(
    "--limit",
    type=click.IntRange(1, 10000),
    default=1000,
    show_default=True,
    help="Lines that are found at most.",
)
def console(
    app: App,
    nodes: str,
    reading: bool,
    take: bool,
    kept: bool,
    lines: int,
    pattern: str,
    regex: bool,
    ignore_case: bool,
    limit: int,
) -> Answer:
    """Open the serial console of NODE; ctrl-] and q leaves it. Without NODE: how all consoles are.

    Several people may read one console, and one has the keyboard. The head holds the one session of
    the BMC.
    """
    if pattern:
        return _grep(
            app,
            nodes,
            {
                "pattern": pattern,
                "regex": "1" if regex else "",
                "ignore_case": "1" if ignore_case else "",
                "limit": limit,
            },
        )
    if not nodes:
        return _list(app)
    if kept:
        return _log(app, nodes, lines)
    if app.out.json:
        raise InputError("cannot show a console as JSON", hint="--log and --grep can")
    return _live(app, nodes, reading, take)


def _list(app: App) -> Answer:
    answer = app.head.get("/v1/consoles", range="@all", timeout=_ASKED_S)
    rows = [
        [
            c["node"],
            c["state"],
            format_duration(c.get("since_s")),
            format_size(c.get("log_bytes") or 0),
            c.get("writer") or "-",
            ", ".join(c.get("readers") or ()) or "-",
            c["error"] or c.get("why") or "",
        ]
        for c in answer["consoles"]
    ]
    return Answer(answer, lambda out: out.table(_LIST, rows, empty="no nodes"))


def _line(line: Mapping[str, Any], name: str = "") -> str:
    return f"{name}{format_time(line['at'])} {line['text']}"


def _log(app: App, name: str, lines: int) -> Answer:
    answer = app.head.get(f"/v1/nodes/{path_segment(name)}/console/log", lines=lines)

    def show(out: Output) -> None:
        for line in answer["lines"]:
            out.line(_line(line))
        if not answer["lines"]:
            out.note(f"the console of {name} has said nothing yet that was kept")

    return Answer(answer, show)


def _grep(app: App, nodes: str, query: Mapping[str, Any]) -> Answer:
    answer = app.head.get("/v1/consoles/search", range=nodes or "@all", timeout=_ASKED_S, **query)

    def show(out: Output) -> None:
        for match in answer["matches"]:
            out.line(_line(match, f"{match['node']}: "))
        if answer["more"]:
            out.note(
                f"there are more than these {len(answer['matches'])}; a narrower pattern or range "
                "finds them"
            )

    return Answer(answer, show)


def _live(app: App, name: str, reading: bool, take: bool) -> Answer:
    path = f"/v1/nodes/{path_segment(name)}/console"
    keys = sys.stdin.isatty() and sys.stdout.isatty()
    if take and (reading or not keys):
        raise InputError(
            "cannot take the console: nothing could be typed here",
            hint="leave --read out, and use a terminal",
        )
    if keys and not reading:
        try:
            return _attended(app, name, f"{path}/write", writing=True, take=take)
        except Refused as error:
            app.out.note(f"{error.message}: for reading only")
    if keys:
        return _attended(app, name, path, writing=False)
    return _piped(app, path)


def _attended(app: App, name: str, path: str, *, writing: bool, take: bool = False) -> Answer:
    import asyncio

    from layercake.client.websocket import open_websocket
    from layercake.features.consoles.terminal import HELP, Session, raw  # slow to import

    async def attend() -> None:
        async with open_websocket(app.target, path, take="1" if take else "") as socket:
            app.out.note(f"the console of {name}: {HELP}")
            with raw():
                await Session(socket, name, writing).run()

    asyncio.run(attend())
    app.out.note(f"left the console of {name}")
    return Answer()


def _piped(app: App, path: str) -> Answer:
    """What the console says, to what is no terminal; until it is interrupted."""
    import asyncio

    from layercake.client.websocket import open_websocket

    async def read() -> None:
        async with open_websocket(app.target, path) as socket:
            async for message in socket.messages():
                if isinstance(message, bytes):
                    app.out.piece(message)

    asyncio.run(read())
    return Answer()
