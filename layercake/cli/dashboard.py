"""`layercake dashboard`: a link that signs a browser in."""

from __future__ import annotations

from layercake.cli.common.command import Answer, App, command
from layercake.cli.common.output import Output, seconds


@command()
def dashboard(app: App) -> Answer:
    """Print a link to the dashboard that signs a browser in as you: once, and within two minutes.

    The browser then has what you have here: your role, your nodes, and not the right exec, for twelve hours at most.
    """
    answer = app.head.post("/v1/session/ticket", {})

    def show(out: Output) -> None:
        out.line(answer["url"])
        out.note(f"good once, for {seconds(answer['seconds'])}; the browser has to trust pki/ca.pem of the head's data directory")

    return Answer(answer, show)
