"""`layercake graph`: the state graph as DOT or SVG, with a node's path."""

from __future__ import annotations

from pathlib import Path

import click

from layercake.client.command import Answer, App, command
from layercake.kraken.errors import InputError


@command()
@click.option("--node", default="", help="Mark where this node is and the way it takes.")
@click.option(
    "--format", "form", type=click.Choice(["dot", "svg"]), default="dot", show_default=True
)
@click.option("--output", "-o", default="", help="Write to this file instead of standard output.")
def graph(app: App, node: str, form: str, output: str) -> Answer:
    """Draw the state graph."""
    text = app.head.text("/v1/graph", format=form, node=node)
    if output:
        try:
            Path(output).write_text(text)
        except OSError as error:
            raise InputError(f"cannot write {output}: {error.strerror}") from error
    document = {
        "format": form,
        "node": node or None,
        "file": output or None,
        "text": None if output else text,
    }
    return Answer(document, "" if output else lambda out: out.raw(text))
