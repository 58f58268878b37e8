"""`layercake token`: who may do what over the network. `layercake audit`: who changed what."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from layercake.base.files import write_atomic
from layercake.base.text import count_of
from layercake.client.command import Answer, App, command, yes_option
from layercake.client.http import path_segment
from layercake.client.output import Column, Output, format_time, parse_duration
from layercake.kraken.errors import InputError, OperationFailed

_TOKENS = (
    Column("NAME"),
    Column("ROLE"),
    Column("EXEC"),
    Column("EXPIRES"),
    Column("MADE"),
    Column("BY"),
    Column("GROUPS", flexible=True),
)
_AUDIT = (
    Column("TIME"),
    Column("BY"),
    Column("FROM"),
    Column("WITH"),
    Column("REQUEST"),
    Column("RESULT"),
    Column("ASKED", flexible=True),
)
NEVER = "never"
AUDIT_PAGE = 1000


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
            format_time(t["made"]),
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
        "seconds": None if expires == NEVER else parse_duration(expires),
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
@click.option(
    "--person",
    default="",
    metavar="WHO",
    help="For a person: oidc:SUBJECT of the provider, or local:NAME of a user of the head.",
)
def certificate(app: App, file: Path, person: str) -> Answer:
    """Have a new client certificate for the token or the person that is in use, and write it with
    its key to FILE."""
    made = (
        app.head.post("/v1/people/certificate", {"person": person})
        if person
        else app.head.post("/v1/certificate", {})
    )
    _write(file, _pem(made), "the old one is good still")
    return Answer({"file": str(file)}, f"{file}: for --cert")


@command(token)
@click.argument("name")
@yes_option
def revoke(app: App, name: str, yes: bool) -> Answer:
    """Revoke the token NAME: nobody gets in with it any more, and what it has open ends."""
    app.must_confirm(f"Revoke {name}?", yes)
    answer = app.head.delete(f"/v1/tokens/{path_segment(name)}")
    return Answer(answer, f"{name} is revoked")


@command()
@click.option(
    "--since",
    default="",
    metavar="TIME",
    help="From so long ago on: 12h, 30d. Without it, the last day; with --export, all.",
)
@click.option(
    "--export",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write all of it to this file, one JSON object in each line, and not to the screen.",
)
def audit(app: App, since: str, file: Path | None) -> Answer:
    """Show who changed what, from where and with what; oldest first."""
    start = int(time.time() - parse_duration(since or "1d")) if since or file is None else 0
    if file is not None:
        return _export(app, start, file)
    records = list(_records(app, start))
    rows = [
        [
            format_time(r["at"]),
            r["by"],
            r["address"],
            r["program"],
            r["request"],
            _result(r),
            _asked(r["asked"]),
        ]
        for r in records
    ]
    return Answer({"audit": records}, lambda out: out.table(_AUDIT, rows, empty="no changes"))


def _export(app: App, start: int, file: Path) -> Answer:
    count = 0
    try:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as lines:
            for record in _records(app, start):
                lines.write(json.dumps(record) + "\n")
                count += 1
    except FileExistsError:
        raise InputError(
            f"cannot write {file}: it is there already",
            hint="an export never takes the place of another",
        ) from None
    except OSError as error:
        raise OperationFailed(f"cannot write {file}: {error.strerror}") from None
    return Answer({"file": str(file), "records": count}, f"{file}: {count_of(count, 'record')}")


def _records(app: App, start: int) -> Iterator[dict[str, Any]]:
    after = 0
    while page := app.head.get("/v1/audit", after=after, since=start, limit=AUDIT_PAGE)["audit"]:
        yield from page
        after = page[-1]["id"]


def _result(record: dict[str, Any]) -> str:
    if record["status"] is None:
        return "unknown"
    return "cut off" if record["status"] == 0 else str(record["status"])


def _asked(asked: dict[str, Any]) -> str:
    return " ".join(f"{k}={v if isinstance(v, str) else json.dumps(v)}" for k, v in asked.items())
