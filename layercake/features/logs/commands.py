"""`layercake log-level`."""

from __future__ import annotations

import click

from layercake.client.command import Answer, App, command
from layercake.client.confirm import current_user
from layercake.client.output import Column

_COLUMNS = (Column("NAME"), Column("LEVEL"), Column("", flexible=True))
_LEVELS = ("debug", "info", "warning", "error", "default")
_LEVEL = click.Choice(("", *_LEVELS), case_sensitive=False)


@command()
@click.argument("name", default="")
@click.argument("level", default="", metavar="[LEVEL]", type=_LEVEL)
def log_level(app: App, name: str, level: str) -> Answer:
    """Show from which level on the parts of the head and its modules log, or have NAME log from
    LEVEL on: debug, info, warning, error, or default.

    It holds until the head starts anew; a module that starts anew is told again.
    """
    if level:
        body = {"name": name, "level": level, "by": current_user()}
        answer = app.head.post("/v1/log-levels", body)
    else:
        answer = app.head.get("/v1/log-levels")
    answer["levels"] = [one for one in answer["levels"] if name in ("", one["name"])]
    rows = [
        [one["name"], one["level"], "set, until the head starts anew" if one["changed"] else ""]
        for one in answer["levels"]
    ]
    return Answer(answer, lambda out: out.table(_COLUMNS, rows, empty=f"no {name}"))
