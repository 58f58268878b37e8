"""What all commands share: the target, the output, options, running the async part, asking before something is destroyed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from layercake.cli.client import Client, Target
from layercake.cli.output import Output
from layercake.inventory.ranges import fold
from layercake.kraken.errors import InputError

OK, FAILED, BAD_INPUT, UNREACHABLE, REFUSED = range(5)
F = TypeVar("F", bound=Callable[..., Any])


class App:
    """The state of one run of the program."""

    def __init__(self) -> None:
        self.target = Target()
        self.out = Output()

    def run(self, action: Callable[[Client], Awaitable[int]]) -> int:
        """Runs a command's conversation with the head; returns its exit code."""

        async def talk() -> int:
            async with Client(self.target) as head:
                return await action(head)

        return asyncio.run(talk())

    def confirm(self, question: str, yes: bool) -> bool:
        """Asks on standard error unless `yes`. Raises InputError when nobody can answer."""
        if yes:
            return True
        try:
            agreed = click.confirm(question, default=False, err=True)
        except click.Abort:
            click.echo(err=True)
            raise InputError("cannot ask for confirmation: nobody answers", hint="say --yes") from None
        if not agreed:
            self.out.note("nothing was changed")
        return agreed


def _json(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(App).out.json = True


def json_option(command: F) -> F:
    """--json: one JSON document instead of text."""
    return click.option("--json", is_flag=True, expose_value=False, is_eager=True, callback=_json,
                        help="One JSON document, for machines.")(command)


def yes_option(command: F) -> F:
    """--yes: do not ask."""
    return click.option("--yes", "-y", is_flag=True, help="Do not ask.")(command)


pass_app = click.make_pass_decorator(App)


async def confirm_stop(app: App, head: Client, nodes: str, what: str, yes: bool) -> bool:
    """Asks before running nodes are stopped; nodes that run nothing are not worth a question."""
    if yes:
        return True
    found = (await head.get("/v1/nodes", range=nodes))["nodes"]
    running = [n["name"] for n in found if n["state"].get("run") == "SYNC" or n["state"].get("image") in ("ACTIVE", "UPDATE")]
    if not running:
        return True
    return app.confirm(f"{len(running)} of {len(found)} nodes are running ({fold(running)}). {what} them?", False)
