"""`layercake init`, `layercake serve`, `layercake status`: the head itself."""

from __future__ import annotations

from pathlib import Path

import click

from layercake.cli.app import OK, App, json_option, pass_app
from layercake.cli.client import Client
from layercake.cli.output import Column, seconds

DEFAULT_DATA = "/var/lib/layercake"
_SERVICES = (Column("SERVICE"), Column("STATE", styled=True), Column("PID", right=True), Column("RESTARTS", right=True),
             Column("SINCE", right=True), Column("HEALTH", flexible=True))

_data_option = click.option("--data-dir", type=click.Path(file_okay=False, path_type=Path), default=DEFAULT_DATA, show_default=True,
                            envvar="LAYERCAKE_DATA", help="Where the head keeps its state. [env: LAYERCAKE_DATA]")


@click.command()
@_data_option
@click.option("--interface", required=True, help="The network interface that the nodes are on.")
@click.option("--address", help="The head's address there; the interface's own if not given.")
@click.option("--boot/--no-boot", default=True, show_default=True, help="Whether to build what nodes boot (kernel, minOS).")
@json_option
@pass_app
def init(app: App, data_dir: Path, interface: str, address: str | None, boot: bool) -> int:
    """Set up a head on this machine: settings, keys, what the nodes boot."""
    # Imported here: the client must start fast, and work where the head's dependencies are not installed.
    from layercake.setup import initialise

    said: list[str] = []
    initialise(data_dir, interface=interface, address=address, boot=boot, echo=said.append if app.out.json else app.out.line)
    if app.out.json:
        app.out.document({"data_dir": str(data_dir), "messages": said})
    return OK


@click.command()
@_data_option
def serve(data_dir: Path) -> int:
    """Run the head until it is stopped (SIGTERM or SIGINT)."""
    from layercake.main import serve as run  # imported here for the reason given in `init`

    return run(data_dir)


@click.command()
@json_option
@pass_app
def status(app: App) -> int:
    """Show how the head, its services and the nodes are."""

    async def action(head: Client) -> int:
        answer = await head.get("/v1/status")
        if app.out.json:
            app.out.document(answer)
            return OK
        nodes = answer["nodes"]
        app.out.line(f"head      version {answer['version']}, up {seconds(answer['uptime_s'])}, epoch {answer['epoch']}")
        app.out.line(f"nodes     {nodes['total']}: {nodes['converged']} converged, {nodes['working']} working, "
                     f"{nodes['quarantined']} quarantined")
        app.out.line("")
        rows = [[s["name"], s["state"], s["pid"] or "-", s["restarts"], seconds(s["since_s"]), s["health"] or ""]
                for s in answer["services"]]
        app.out.table(_SERVICES, rows, empty="no services")
        return OK

    return app.run(action)
