"""`layercake dashboard`: a link that signs a browser in."""

from __future__ import annotations

import click

from layercake.client.command import Answer, App, command
from layercake.client.output import Output, format_duration


@command()
@click.option(
    "--exec",
    "may_exec",
    is_flag=True,
    help="With the right exec, if you have it: to type on consoles.",
)
def dashboard(app: App, may_exec: bool) -> Answer:
    """Print a link to the dashboard that signs a browser in as you: once, and within two minutes.

    The browser then has what you have here, for twelve hours at most: your role and your nodes; the
    right exec with --exec only.
    """
    answer = app.head.post("/v1/session/ticket", {"exec": True} if may_exec else {})

    def show(out: Output) -> None:
        out.line(answer["url"])
        out.note(
            f"good once, for {format_duration(answer['seconds'])}; the browser has to trust "
            "pki/ca.pem of "
            "the head's data directory"
        )

    return Answer(answer, show)
