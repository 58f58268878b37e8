"""`layercake authority`: how long the head's certificates are good, and how its authority is
replaced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from layercake.client.command import Answer, App, command, yes_option
from layercake.client.confirm import current_user
from layercake.client.output import Column, Output, format_time
from layercake.inventory.ranges import fold

_CERTIFICATES = (Column("CERTIFICATE"), Column("GOOD UNTIL"), Column("DAYS", right=True))


@click.group()
def authority() -> None:
    """The authority that nodes know the head by. Certificates renew themselves; the authority is
    replaced in two steps."""


def _shown(answer: Mapping[str, Any], out: Output) -> None:
    out.table(
        _CERTIFICATES,
        [[c["what"], format_time(c["until"]), f"{c['days']:.0f}"] for c in answer["certificates"]],
        empty="no certificates",
    )
    if answer["changing"]:
        out.line("")
        out.line(
            f"nodes that do not know the next authority yet:      {fold(answer['nodes']) or 'none'}"
        )
        out.line(
            "boot sets in use that do not know it:               "
            f"{', '.join(answer['boot_sets']) or 'none'}"
        )


@command(authority)
def show(app: App) -> Answer:
    """Show how long the certificates are good, and how far a replacement is."""
    answer = app.head.get("/v1/authority")
    return Answer(answer, lambda out: _shown(answer, out))


@command(authority)
@yes_option
def rotate(app: App, yes: bool) -> Answer:
    """Begin to replace the authority: nodes learn to trust the next one too. Then build a boot set,
    make it the default, and `authority finish`."""
    app.must_confirm("Begin to replace the head's authority? Nothing that runs is touched.", yes)
    answer = app.head.post("/v1/authority/rotate", {"by": current_user()})
    return Answer(answer, lambda out: _shown(answer, out))


@command(authority)
@click.option(
    "--force",
    is_flag=True,
    help="Also cut off nodes and boot sets that know only the old authority.",
)
@yes_option
def finish(app: App, force: bool, yes: bool) -> Answer:
    """End the replacement: the old authority is trusted no more. Clients need the new pki/ca.pem
    then."""
    app.must_confirm("Trust the next authority alone from now on?", yes)
    answer = app.head.post("/v1/authority/finish", {"by": current_user(), "force": force})
    return Answer(answer, lambda out: _shown(answer, out))
