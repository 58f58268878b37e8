"""`layercake files`: the files that nodes have beside what their images bring; `ssh-known-hosts`:
the nodes' SSH host keys."""

from __future__ import annotations

from typing import Any

import click

from layercake.client.command import FAILED, OK, Answer, App, command
from layercake.client.http import path_segment
from layercake.client.output import Column, Output
from layercake.inventory.ranges import fold

_FILES = (
    Column("FOR"),
    Column("PATH", flexible=True),
    Column("MODE"),
    Column("OWNER"),
    Column("BYTES", right=True),
    Column("ON CHANGE"),
    Column("STATE", flexible=True),
)


@click.group()
def files() -> None:
    """Show the files that nodes have beside what their images bring, and how they would change."""


@command(files)
@click.argument("node")
@click.argument("path", default="")
def show(app: App, node: str, path: str) -> Answer:
    """List the files of NODE, or show what is in PATH. Secrets are never shown."""
    if path:
        answer = app.head.get(f"/v1/nodes/{path_segment(node)}/files/content", file=path)
        return Answer(
            answer,
            lambda out: _texts(out, answer["files"]),
            FAILED if any(f["error"] for f in answer["files"]) else OK,
        )
    answer = app.head.get(f"/v1/nodes/{path_segment(node)}/files")
    waiting = {word.rpartition(":")[2] for word in answer["waiting"]}
    rows = [
        [
            ",".join(f["for"]),
            f["path"],
            f["mode"],
            f"{f['owner']}:{f['group']}",
            str(f["size"]),
            f["on_change"] or "-",
            _state(f, f["path"] in waiting),
        ]
        for f in answer["files"]
    ]

    def show(out: Output) -> None:
        out.table(_FILES, rows, empty="no files")
        for error in answer["errors"]:
            out.note(f"{node} says: {error}")
        if not answer["current"]:
            out.note(f"{node} has not said yet that it has these")

    return Answer(
        answer, show, FAILED if answer["errors"] or any(f["error"] for f in answer["files"]) else OK
    )


def _state(file: dict[str, Any], waits: bool) -> str:
    if file["error"]:
        return file["error"]  # type: ignore[no-any-return]
    if file["left"]:
        return "left as the image has it"
    return "at the image's next start" if waits else "secret" if file["secret"] else ""


def _texts(out: Output, found: list[dict[str, Any]]) -> None:
    for file in found:
        if len(found) > 1:
            out.line(f"# for {', '.join(file['for'])}")
        _lines(out, file["error"] or file["text"])


def _lines(out: Output, text: str) -> None:
    """A text of several lines; what no screen should be given is escaped in each."""
    for line in text.splitlines():
        out.line(line)


@command(files)
@click.argument("range_", metavar="RANGE")
@click.argument("file", default="")
def diff(app: App, range_: str, file: str) -> Answer:
    """Show how the files of the nodes of RANGE would change by applying now: the inventory FILE, or
    the one in force, with the directory of files as it is. Changes nothing."""
    from layercake.client.inventory_file import (
        inventory_request,  # the other commands need no inventory
    )

    request = {"range": range_, **(inventory_request(file) if file else {})}
    answer = app.head.post("/v1/files/diff", request)

    def show(out: Output) -> None:
        if not answer["changes"]:
            out.line("no file changes")
        for change in answer["changes"]:
            then = change["on_change"] or "images that run have it when they are started next"
            out.line(f"{fold(change['nodes'])}: {change['path']} for {change['for']} ({then})")
            _lines(out, change["diff"])

    return Answer(answer, show)


@command()
@click.argument("range_", metavar="[RANGE]", default="")
def ssh_known_hosts(app: App, range_: str) -> Answer:
    """Print the SSH host keys of the nodes, as lines for ~/.ssh/known_hosts."""
    text = app.head.text("/v1/ssh/known-hosts", **({"range": range_} if range_ else {}))
    return Answer(
        {"known_hosts": text.splitlines()},
        lambda out: _lines(out, text or "# no node has a host key yet"),
    )
