"""`layercake graph`: the state graph as DOT or SVG, with a node's path."""

from __future__ import annotations

from pathlib import Path

import click

from layercake.cli.app import OK, App, json_option, pass_app
from layercake.cli.client import Client
from layercake.kraken.errors import InputError


@click.command()
@click.option("--node", default="", help="Mark where this node is and the way it takes.")
@click.option("--format", "form", type=click.Choice(["dot", "svg"]), default="dot", show_default=True)
@click.option("--output", "-o", default="", help="Write to this file instead of standard output.")
@json_option
@pass_app
def graph(app: App, node: str, form: str, output: str) -> int:
    """Draw the state graph."""

    async def action(head: Client) -> int:
        text = await head.text("/v1/graph", format=form, node=node)
        if output:
            try:
                Path(output).write_text(text)
            except OSError as error:
                raise InputError(f"cannot write {output}: {error.strerror}") from error
        if app.out.json:
            app.out.document({"format": form, "node": node or None, "file": output or None, "text": None if output else text})
        elif not output:
            app.out.raw(text)
        return OK

    return app.run(action)
