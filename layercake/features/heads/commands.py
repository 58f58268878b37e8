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
    Column("LAG", right=True),
    Column("LEASE", right=True),
    Column("FILES"),
    Column("CLOCK", right=True),
    Column("VERSION"),
    Column("URL"),
    Column("TROUBLE"),
)
_MEMBERS = (
    Column("STORE"),
    Column("ROLE"),
    Column("USED", right=True),
    Column("FSYNC", right=True),
    Column("VERSION"),
    Column("TROUBLE"),
)
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


def _member_role(member: Mapping[str, Any]) -> str:
    if member["trouble"]:
        return "down"
    if member["learner"]:
        return "learner"
    return "leader" if member["leader"] else "member"


def _role(head: Mapping[str, Any], retired: Sequence[str]) -> str:
    role = "leader" if head["leads"] else "follower"
    if head["head"] in retired:
        return f"{role}, retired"
    return role if head.get("ready", True) else f"{role}, getting ready"


def _show_members(members: Sequence[Mapping[str, Any]], out: Output) -> None:
    if members:
        out.line("")
        out.table(
            _MEMBERS,
            [
                [
                    one["endpoint"],
                    _member_role(one),
                    f"{one['bytes_used'] / 1e6:.0f} MB",
                    f"{one['fsync_s'] * 1e3:.0f} ms" if one.get("fsync_s") else "",
                    one["version"],
                    "; ".join([*one["alarms"], *([one["trouble"]] if one["trouble"] else [])]),
                ]
                for one in members
            ],
        )


def _shown(answer: Mapping[str, Any], out: Output) -> None:
    out.table(
        _HEADS,
        [
            [
                one["head"] + (" (this one)" if one["head"] == answer["this"] else ""),
                _role(one, answer["retired"]),
                str(one["entry"]),
                str(answer["entry"] - one["entry"]),
                "" if one["leads"] else f"{one.get('behind_s', 0.0):.1f} s",
                f"{answer['lease_s']:.1f} s" if one["leads"] and answer.get("lease_s") else "",
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
    _show_members(answer["members"], out)
    troubles = list(answer.get("troubles") or ())
    if answer["trouble"] and not any(answer["trouble"] in line for line in troubles):
        troubles.insert(0, answer["trouble"])
    if troubles:
        out.line("")
        out.lines("\n".join(troubles))


@command(heads)
def show(app: App) -> Answer:
    """Show the heads and their store. The exit status is 1 where one of them is in trouble, or none
    leads."""
    answer = app.head.get("/v1/heads")
    well = (
        not (answer["trouble"] or answer.get("troubles"))
        and (not answer["heads"] or answer["leader"])
        and not any(one["trouble"] for one in (*answer["heads"], *answer["members"]))
    )
    return Answer(answer, lambda out: _shown(answer, out), code=0 if well else FAILED)


@command(heads)
@click.argument("head", metavar="HEAD")
@click.option(
    "--force",
    is_flag=True,
    help="With what this very head has, after the store was put back from an older backup, or has "
    "lost its data; while no head leads.",
)
@yes_option
def promote(app: App, head: str, force: bool, yes: bool) -> Answer:
    """Have another head lead. Nodes, rolls and people go on with it within seconds."""
    more = "; what the store has besides is lost" if force else ""
    app.must_confirm(f"Have {head} lead from now on{more}?", yes)
    body = {"head": head, "force": force, "by": current_user()}
    answer = app.head.post("/v1/heads/promote", body)
    text = f"{head} leads with what it has" if force else f"{answer['leader']} hands over to {head}"
    return Answer(answer, text)


@command(heads)
@click.argument("head", metavar="NAME")
@click.option("--witness", is_flag=True, help="It is to be a witness: a member of the store only.")
@click.option(
    "--third-head",
    is_flag=True,
    help="A third head follows, and no witness is needed. Until it is there, the loss of either "
    "machine stops changes.",
)
def invite(app: App, head: str, witness: bool, third_head: bool) -> Answer:
    """Invite a machine to become a head of the site: prints the command to be run there. Its token
    is good once, for an hour."""
    body = {"head": head, "witness": witness, "third_head": third_head, "by": current_user()}
    answer = app.head.post("/v1/heads/invite", body)
    what = "witness" if witness else "init"
    words = ("layercake", what, "--join", answer["url"], "--token", answer["token"])
    line = " ".join(words)
    return Answer({**answer, "command": line}, ("on the new machine:", f"  {line}"))


@command(heads)
@click.argument("head", metavar="HEAD")
@yes_option
def retire(app: App, head: str, yes: bool) -> Answer:
    """Have a head lead no more, until it is promoted. It follows on."""
    app.must_confirm(f"Have {head} lead no more?", yes)
    answer = app.head.post("/v1/heads/retire", {"head": head, "by": current_user()})
    return Answer(answer, f"{head} does not lead any more")


@command(heads)
@click.argument("head", metavar="HEAD")
@yes_option
def remove(app: App, head: str, yes: bool) -> Answer:
    """Take a head or a witness out of the site: its member of the store, and its certificate."""
    app.must_confirm(f"Take {head} out of the site?", yes)
    answer = app.head.post("/v1/heads/remove", {"head": head, "by": current_user()})
    return Answer(answer, f"{head} is no head of the site any more")
