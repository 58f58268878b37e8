"""`layercake heads`: which heads a site has, and which of them leads."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import click

from layercake.client.command import FAILED, Answer, App, command, yes_option
from layercake.client.confirm import current_user
from layercake.client.output import Column, Output

_HEADS = (
    Column("HEAD"),
    Column("ROLE"),
    Column("ENTRY", right=True),
    Column("BEHIND", right=True),
    Column("FILES"),
    Column("CLOCK", right=True),
    Column("VERSION"),
    Column("URL"),
    Column("TROUBLE"),
)
_MEMBERS = (Column("STORE"), Column("ROLE"), Column("USED", right=True), Column("TROUBLE"))
_APART_S = 2.0
"""A clock that is farther off than that is shown."""


@click.group(invoke_without_command=True)
@click.pass_context
def heads(context: click.Context) -> None:
    """The heads of this site. Without a further word: which there are, and how they are."""
    if context.invoked_subcommand is None:
        context.exit(context.invoke(show))


def _off(at: float) -> str:
    """How far a head's clock is off from this machine's, "" for little."""
    apart = at - time.time()
    return f"{apart:+.0f} s" if abs(apart) > _APART_S else ""


def _role(head: Mapping[str, Any], retired: Sequence[str]) -> str:
    role = "leader" if head["leads"] else "follower"
    return f"{role}, retired" if head["head"] in retired else role


def _shown(answer: Mapping[str, Any], out: Output) -> None:
    out.table(
        _HEADS,
        [
            [
                one["head"] + (" (this one)" if one["head"] == answer["this"] else ""),
                _role(one, answer["retired"]),
                str(one["entry"]),
                str(answer["entry"] - one["entry"]),
                "behind" if one["files"] != answer["files"] else "",
                _off(one["at"]),
                one["version"],
                one["url"],
                one["trouble"],
            ]
            for one in answer["heads"]
        ],
        empty="this site has one head",
    )
    if answer["members"]:
        out.line("")
        out.table(
            _MEMBERS,
            [
                [
                    one["endpoint"],
                    "down" if one["trouble"] else "leader" if one["leader"] else "member",
                    f"{one['bytes_used'] / 1e6:.0f} MB",
                    "; ".join([*one["alarms"], *([one["trouble"]] if one["trouble"] else [])]),
                ]
                for one in answer["members"]
            ],
        )
    if answer["trouble"]:
        out.line("")
        out.line(answer["trouble"])


@command(heads)
def show(app: App) -> Answer:
    """Show the heads and their store. The exit status is 1 where one of them is in trouble, or none
    leads."""
    answer = app.head.get("/v1/heads")
    well = (
        not answer["trouble"]
        and (not answer["heads"] or answer["leader"])
        and not any(one["trouble"] for one in (*answer["heads"], *answer["members"]))
    )
    return Answer(answer, lambda out: _shown(answer, out), code=0 if well else FAILED)


@command(heads)
@click.argument("head", metavar="HEAD")
@yes_option
def promote(app: App, head: str, yes: bool) -> Answer:
    """Have another head lead. Nodes, rolls and people go on with it within seconds."""
    if not app.confirm(f"Have {head} lead from now on?", yes):
        return Answer(code=FAILED)
    answer = app.head.post("/v1/heads/promote", {"head": head, "by": current_user()})
    before = answer["leader"]
    said = f"{before} hands over to {head}" if before else f"{head} leads with what it has"
    return Answer(answer, lambda out: out.line(said))
