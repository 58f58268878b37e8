"""`layercake tpm`: list, show, accept, forget."""

from __future__ import annotations

import time
from typing import Any

import click

from layercake.client.command import FAILED, OK, Answer, App, command, nodes_argument, yes_option
from layercake.client.confirm import current_user
from layercake.client.http import path_segment
from layercake.client.output import Column, Output
from layercake.inventory.ranges import fold

_LIST = (
    Column("NODE"),
    Column("ASKED"),
    Column("RECORDED"),
    Column("SHOWN"),
    Column("MAKER"),
    Column("QUOTED"),
    Column("TROUBLE", flexible=True),
)
_REGISTERS = (
    Column("REGISTER", right=True),
    Column("WHAT", flexible=True),
    Column("IS"),
    Column("RECORDED"),
    Column("COMPARED"),
)
_LOG = (
    Column("REGISTER", right=True),
    Column("KIND"),
    Column("DIGEST"),
    Column("WHAT", flexible=True),
)


@click.group()
def tpm() -> None:
    """TPMs of nodes: who a machine is, and what it has booted."""


@command(tpm, "list")
def list_(app: App) -> Answer:
    """List the nodes whose TPM is asked for, or was shown."""
    answer = app.head.get("/v1/tpms")
    rows = [
        [
            t["node"],
            t["asked"],
            t["ek"][:16] or "-",
            t["shown"][:16] or "-",
            t["maker"] or "-",
            "yes" if t["quoted"] else "no",
            t["troubles"][0] if t["troubles"] else "",
        ]
        for t in answer["tpms"]
    ]
    return Answer(
        answer,
        lambda out: out.table(_LIST, rows, empty="no node's TPM is asked for; see `tpm` of nodes"),
    )


@command(tpm)
@click.argument("node")
@click.option("--log", is_flag=True, help="With the event log that it has shown last.")
def show(app: App, node: str, log: bool) -> Answer:
    """Show the TPM of NODE: what was recorded, what it has shown last, and what differs."""
    answer = app.head.get(f"/v1/nodes/{path_segment(node)}/tpm")
    one = answer["tpm"]

    def show_tpm(out: Output) -> None:
        for label, value in _facts(one):
            out.line(f"{label:<10} {value}")
        if one["registers"]:
            out.table(
                _REGISTERS,
                [
                    [
                        r["register"],
                        r["what"],
                        r["value"][:16],
                        r["recorded"][:16] or "-",
                        "yes" if r["wanted"] else "no",
                    ]
                    for r in one["registers"]
                ],
            )
        if log:
            out.table(
                _LOG,
                [[s["register"], s["kind"], s["digest"][:16], s["text"]] for s in answer["log"]],
                empty="it has shown no event log",
            )

    return Answer(answer, show_tpm, FAILED if one["troubles"] else OK)


def _facts(one: dict[str, Any]) -> list[tuple[str, str]]:
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one["at"])) if one["at"] else "never"
    return [
        ("asked for", one["asked"]),
        ("recorded", one["ek"] or "none"),
        ("shown", one["shown"] or "none"),
        ("maker", " ".join(filter(None, (one["maker"], one["issuer"]))) or "-"),
        ("shown at", at),
        ("boot set", one["boot"] or "-"),
        ("resets", str(one["resets"])),
        ("quoted", "yes" if one["quoted"] else "no, as far as the boot that runs goes"),
        ("secrets", f"to {one['secrets']}"),
        *(("trouble", line) for line in one["troubles"]),
    ]


@command(tpm)
@nodes_argument
@yes_option
def accept(app: App, nodes: str, yes: bool) -> Answer:
    """Accept the TPMs of RANGE and what their registers are, as they were shown last: a board was
    replaced, or firmware renewed."""
    app.must_confirm(f"What the TPMs of {nodes} have shown last is right?", yes)
    answer = app.head.post("/v1/tpms/accept", {"range": nodes, "by": current_user()})
    return Answer(
        answer,
        f"accepted: {fold(answer['nodes'])}"
        if answer["nodes"]
        else "none of them has shown its TPM yet",
    )


@command(tpm)
@click.argument("node")
@yes_option
def forget(app: App, node: str, yes: bool) -> Answer:
    """Forget the TPM of NODE. With `tpm: required` it joins no more until another one is
    accepted."""
    app.must_confirm(f"Forget the TPM of {node}?", yes)
    return Answer(
        answer := app.head.delete(f"/v1/nodes/{path_segment(node)}/tpm"),
        f"forgotten: the TPM of {answer['forgotten']}",
    )
