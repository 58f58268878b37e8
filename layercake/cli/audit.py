"""`layercake audit`: who changed what."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from layercake.cli.common.command import Answer, App, command
from layercake.cli.common.output import Column, moment, span
from layercake.kraken.errors import InputError, OperationFailed

_AUDIT = (
    Column("TIME"),
    Column("BY"),
    Column("FROM"),
    Column("WITH"),
    Column("REQUEST"),
    Column("RESULT"),
    Column("ASKED", flexible=True),
)
PAGE = 1000


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
    start = int(time.time() - span(since or "1d")) if since or file is None else 0
    if file is not None:
        return _export(app, start, file)
    found = list(_records(app, start))
    rows = [
        [
            moment(r["at"]),
            r["by"],
            r["address"],
            r["program"],
            r["request"],
            _result(r),
            _asked(r["asked"]),
        ]
        for r in found
    ]
    return Answer({"audit": found}, lambda out: out.table(_AUDIT, rows, empty="no changes"))


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
    return Answer({"file": str(file), "records": count}, f"{file}: {count} records")


def _records(app: App, start: int) -> Iterator[dict[str, Any]]:
    after = 0
    while page := app.head.get("/v1/audit", after=after, since=start, limit=PAGE)["audit"]:
        yield from page
        after = page[-1]["id"]


def _result(record: dict[str, Any]) -> str:
    if record["status"] is None:
        return "unknown"
    return "cut off" if record["status"] == 0 else str(record["status"])


def _asked(asked: dict[str, Any]) -> str:
    return " ".join(f"{k}={v if isinstance(v, str) else json.dumps(v)}" for k, v in asked.items())
