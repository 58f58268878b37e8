"""`layercake check`: what of this site is not as it has to be, before the first boot and
whenever."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import click

from layercake.cli.head import data_option
from layercake.client.command import FAILED, OK, Answer, App, command
from layercake.client.http import Client
from layercake.client.output import GREEN, RED, YELLOW, Output
from layercake.client.target import Target
from layercake.kraken.errors import InputError, Unreachable

_STYLES = {"ok": GREEN, "warning": YELLOW, "error": RED}


@command()
@data_option
@click.option("--only", multiple=True, metavar="NAME", help="This check alone.")
@click.option(
    "--listen",
    type=click.FloatRange(1, 300),
    default=6.0,
    show_default=True,
    help="Seconds to wait for answers and announcements on the nodes' network; switches announce "
    "themselves every 30.",
)
@click.option(
    "--inventory",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Look at the nodes and BMCs of this file, which need not be applied, instead of those "
    "that the head has.",
)
def check(
    app: App, data_dir: Path, only: tuple[str, ...], listen: float, inventory: Path | None
) -> Answer:
    """Look whether this site is as it has to be: network, BMCs, packet filter, certificates, disk,
    limits. Changes nothing.

    For root, on the head; the head need not run. Exit status: 0 without errors (warnings are none),
    1 if there is something to do.
    """
    # Imported here: the client must start fast, and work where the head's dependencies are not
    # installed.
    from layercake.check.site import socket_of, survey
    from layercake.check.table import run_checks, select_checks

    checks = select_checks(only)
    if os.geteuid() != 0:
        raise InputError(
            "cannot check: packets are sent and heard on the nodes' network",
            hint="run it as root, on the head",
        )
    api: Client | None = None
    with contextlib.suppress(Unreachable):  # no head runs
        client = Client(Target(socket_of(data_dir)))
        client.get("/v1/status")
        api = client
    site = survey(data_dir, api, inventory=inventory, listen_s=listen)
    results = [result.to_record() for result in run_checks(site, checks)]
    counts = {name: sum(r["severity"] == name for r in results) for name in _STYLES}

    def show(out: Output) -> None:
        for result in results:
            about = f"{result['nodes']}: " if result["nodes"] else ""
            hint = f"; {result['hint']}" if result["hint"] else ""
            line = f"{result['severity']:<8} {result['name']:<13} {about}{result['text']}{hint}"
            out.line(line, "" if result["severity"] == "ok" else _STYLES[result["severity"]])

    return Answer(
        {
            "checks": results,
            "errors": counts["error"],
            "warnings": counts["warning"],
            "head": api is not None,
        },
        show,
        FAILED if counts["error"] else OK,
    )
