"""`layercake token`: who may do what over the network."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from layercake.base.files import write_atomic
from layercake.cli.common.client import quoted
from layercake.cli.common.command import FAILED, Answer, App, command, yes_option
from layercake.cli.common.output import Column, Output, moment, span
from layercake.kraken.errors import OperationFailed

_TOKENS = (
    Column("NAME"),
    Column("ROLE"),
    Column("EXEC"),
    Column("EXPIRES"),
    Column("MADE"),
    Column("BY"),
    Column("GROUPS", flexible=True),
)
NEVER = "never"


@click.group()
def token() -> None:
    """Tokens: who may do what over the network."""


@command(token, "list")
def tokens(app: App) -> Answer:
    """List the tokens."""
    answer = app.head.get("/v1/tokens")
    rows = [
        [
            t["name"],
            t["role"],
            "yes" if t["exec"] else "no",
            _until(t),
            moment(t["made"]),
            t["by"],
            _groups(t),
        ]
        for t in answer["tokens"]
    ]
    return Answer(answer, lambda out: out.table(_TOKENS, rows, empty="no tokens"))


def _until(found: dict[str, Any]) -> str:
    if found["expires"] is None:
        return NEVER
    return (
        "expired"
        if found["expired"]
        else time.strftime("%Y-%m-%d", time.localtime(found["expires"]))
    )


def _groups(found: dict[str, Any]) -> str:
    return "(the whole site)" if found["groups"] is None else ", ".join(found["groups"])


@command(token)
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(["viewer", "operator", "admin"]),
    required=True,
    help="What it may do.",
)
@click.option(
    "--group",
    "groups",
    multiple=True,
    help="A group of the inventory that it is bound to; without one, the whole site.",
)
@click.option("--exec", "may_exec", is_flag=True, help="It may run commands on nodes, too.")
@click.option(
    "--expires",
    default="90d",
    show_default=True,
    metavar="TIME",
    help="When it ends: 12h, 30d, or never.",
)
@click.option(
    "--cert",
    type=click.Path(dir_okay=False, path_type=Path),
    help="It shall need a certificate too, which is written to this file, with its key, for --cert "
    "of the command.",
)
@click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write it to this file, for you alone to read.",
)
def create(
    app: App,
    name: str,
    role: str,
    groups: tuple[str, ...],
    may_exec: bool,
    expires: str,
    cert: Path | None,
    file: Path | None,
) -> Answer:
    """Create the token NAME. It is shown this once: the head keeps its digest only."""
    asked = {
        "name": name,
        "role": role,
        "groups": list(groups) or None,
        "exec": may_exec,
        "seconds": None if expires == NEVER else span(expires),
        "certificate": cert is not None,
    }
    answer = app.head.post("/v1/tokens", asked)
    if file is not None:
        _write(file, answer.pop("token") + "\n", f"`layercake token revoke {name}`")
    if cert is not None:
        _write(cert, _pem(answer.pop("tls")), f"`layercake token revoke {name}`")

    def show(out: Output) -> None:
        if file is None:
            out.line(answer["token"])
        out.note(f"{name}: {role}, {_groups(answer)}, until {_until(answer)}")

    return Answer(answer, show)


def _pem(tls: dict[str, str]) -> str:
    return tls["cert"] + tls["key"]


def _write(file: Path, text: str, hint: str) -> None:
    try:
        write_atomic(file, text)
    except OSError as error:
        raise OperationFailed(f"cannot write {file}: {error.strerror}", hint=hint) from None


@command(token)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def certificate(app: App, file: Path) -> Answer:
    """Have a new certificate for the token that is in use, for sixty days, and write it with its
    key to FILE."""
    _write(file, _pem(app.head.post("/v1/certificate", {})), "the old one is good still")
    return Answer({"file": str(file)}, f"{file}: for --cert")


@command(token)
@click.argument("name")
@yes_option
def revoke(app: App, name: str, yes: bool) -> Answer:
    """Revoke the token NAME: nobody gets in with it any more, and what it has open ends."""
    if not app.confirm(f"Revoke {name}?", yes):
        return Answer(code=FAILED)
    answer = app.head.delete(f"/v1/tokens/{quoted(name)}")
    return Answer(answer, f"{name} is revoked")
