"""`layercake init`, `serve`, `status`, `backup`, `restore`: the head itself."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from layercake.client.command import Answer, App, command, yes_option
from layercake.client.output import Column, Output, format_duration
from layercake.kraken.errors import InputError

DEFAULT_DATA = "/var/lib/layercake"
_SERVICES = (
    Column("SERVICE"),
    Column("STATE", styled=True),
    Column("PID", right=True),
    Column("RESTARTS", right=True),
    Column("SINCE", right=True),
    Column("HEALTH", flexible=True),
)

data_option = click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_DATA,
    show_default=True,
    envvar="LAYERCAKE_DATA",
    show_envvar=True,
    help="Where the head keeps its state.",
)

disktools_option = click.option(
    "--disktools/--no-disktools",
    default=None,
    help="Whether nodes can get the programs for disks (`disks` in the inventory): yes, unless the "
    "profile says otherwise.",
)


@command()
@data_option
@click.option(
    "--interface",
    help="The network interface that the nodes are on; the only one with an address if not given.",
)
@click.option("--address", help="The head's address there; the interface's own if not given.")
@click.option(
    "--gateway",
    help="The nodes' default gateway, or `none`; this machine's own on that interface if not "
    "given.",
)
@click.option(
    "--dns",
    metavar="ADDRESS,..",
    help="The nodes' DNS servers, or `none`; this machine's own if not given.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Any other setting of config.yaml, such as `boot.tftp_port=69`; the value is YAML.",
)
@click.option(
    "--profile",
    default="server",
    show_default=True,
    help="The boot profile: `server` for machines as they are sold, `virtual` for virtual machines "
    "of KVM.",
)
@click.option(
    "--boot/--no-boot",
    default=True,
    show_default=True,
    help="Whether to build what nodes boot (kernel, minOS).",
)
@disktools_option
@click.option(
    "--cache",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where downloaded kernel packages are kept; `cache` in the data directory if not given.",
)
@yes_option
def init(
    app: App,
    data_dir: Path,
    settings: Sequence[str],
    profile: str,
    boot: bool,
    cache: Path | None,
    yes: bool,
    dns: str | None,
    disktools: bool | None,
    **said: str | None,
) -> Answer:
    """Set up a head on this machine: settings, keys, what the nodes boot.

    What is not said by an option is found out. What cannot be found out is asked, on a terminal and
    without --yes. Run it again to complete what is missing, and to build anew what nodes boot;
    settings that are there stay as they are.
    """
    # Imported here: the client must start fast, and work where the head's dependencies are not
    # installed.
    from layercake.setup import initialise

    ask = None if yes or app.out.json or not sys.stdin.isatty() else _prompt
    lines: list[str] = []
    initialise(
        data_dir,
        **said,
        dns=None if dns is None else dns.split(","),
        options=dict(map(setting, settings)),
        ask=ask,
        profile=profile,
        boot=boot,
        cache=cache,
        disktools=disktools,
        echo=lines.append if app.out.json else app.out.line,
    )
    return Answer({"data_dir": str(data_dir), "messages": lines})


def _prompt(question: str, answers: Sequence[str], usual: str) -> str:
    """Asks until there is an answer. Raises click.Abort for Ctrl-C."""
    kind = click.Choice(answers) if answers else None
    return str(
        click.prompt(question, type=kind, default=usual or None, show_choices=False, err=True)
    )


def setting(text: str) -> tuple[str, Any]:
    """KEY=VALUE. Raises InputError."""
    import yaml

    name, equals, value = text.partition("=")
    try:
        if name and equals:
            return name, yaml.safe_load(value)
    except yaml.YAMLError:
        pass
    raise InputError(
        f"cannot use --set {text}: it must be KEY=VALUE, the value in YAML",
        hint="such as boot.tftp_port=69",
    )


@click.command()
@data_option
@click.option(
    "--listen-fd",
    "inherited",
    type=click.IntRange(3),
    hidden=True,
    help="A listening socket, inherited as this file descriptor: the API is served on it, too. "
    "`layercake sim` uses it.",
)
def serve(data_dir: Path, inherited: int | None) -> int:
    """Run the head until it is stopped (SIGTERM or SIGINT)."""
    from layercake.main import serve as run  # imported here for the reason given in `init`

    return run(data_dir, inherited)


_passphrase_option = click.option(
    "--passphrase-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file with the passphrase. Without it, LAYERCAKE_PASSPHRASE in the environment is "
    "taken.",
)


@command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@data_option
@_passphrase_option
def backup(app: App, file: Path, data_dir: Path, passphrase_file: Path | None) -> Answer:
    """Write an encrypted backup of the head on this machine; it may be running."""
    from layercake import backup as backups  # imported here for the reason given in `init`

    names = backups.back_up(data_dir, file, backups.passphrase(passphrase_file))
    return Answer(
        {"file": str(file), "holds": names},
        f"{file}: {len(names)} files of {data_dir}; images are not in it",
    )


@command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@data_option
@_passphrase_option
@click.option("--replace", is_flag=True, help="Replace what is in the data directory.")
def restore(
    app: App, file: Path, data_dir: Path, passphrase_file: Path | None, replace: bool
) -> Answer:
    """Put a backup into an empty data directory; no head may be running there."""
    from layercake import backup as backups  # imported here for the reason given in `init`

    names = backups.restore(file, data_dir, backups.passphrase(passphrase_file), replace=replace)
    return Answer(
        {"data_dir": str(data_dir), "holds": names},
        f"{data_dir}: {len(names)} files of {file}; `layercake init` builds what nodes boot",
    )


def _database(view: Mapping[str, Any]) -> str:
    if view["well"]:
        return "well"
    return (
        f"UNWELL for {format_duration(view['since_s'])}: {view['trouble']}; {view['waiting']} "
        "events "
        "wait to be written"
    )


@command()
def status(app: App) -> Answer:
    """Show how the head, its services and the nodes are."""
    answer = app.head.get("/v1/status")

    def show(out: Output) -> None:
        out.line(
            f"head      version {answer['version']}, up {format_duration(answer['uptime_s'])}, "
            "epoch "
            f"{answer['epoch']}"
        )
        out.line(_nodes_line(answer["nodes"]))
        _show_guard(out, answer["guard"])
        _show_troubles(out, answer)
        out.line("")
        rows = [_service_row(service) for service in answer["services"]]
        out.table(_SERVICES, rows, empty="no services")

    return Answer(answer, show)


def _nodes_line(nodes: Mapping[str, Any]) -> str:
    asking = nodes.get("asking")
    return (
        f"nodes     {nodes['total']}: {nodes['converged']} converged, {nodes['working']} working, "
        f"{nodes['quarantined']} quarantined"
    ) + (f", {asking} need a person" if asking else "")


def _show_guard(out: Output, guard: Mapping[str, Any]) -> None:
    """What keeps the head from working on nodes: a freeze, the queue of boots, outages."""
    if guard["frozen"]:
        out.line(f"FROZEN    by {guard['frozen']['by']}: {guard['frozen']['reason']}")
    boots = guard.get("boots") or {"waiting": 0}
    if boots["waiting"]:
        known = boots["left_s"] is not None
        left = f"; all are up in about {format_duration(boots['left_s'])}" if known else ""
        out.line(
            f"boots     {boots['booting']} under way, {boots['waiting']} wait for their turn{left}"
        )
    for outage in guard["outages"]:
        out.line(
            f"OUTAGE    {outage['where']}, for {format_duration(outage['seconds'])}: "
            f"{outage['silent']} of {outage['members']} nodes are silent; nothing is done to them"
        )


def _show_troubles(out: Output, answer: Mapping[str, Any]) -> None:
    """How the head itself is: its database, its loop, its certificates, and its warnings."""
    if "database" in answer:  # a head from before an upgrade does not say
        out.line(f"database  {_database(answer['database'])}")
    if (loop := answer.get("loop")) and not loop["well"]:
        out.line(f"LATE      for {format_duration(loop['since_s'])}: {loop['trouble']}")
    if certificates := answer.get("certificates"):
        ages = [f"{c['what']}: {c['days']:.0f} days" for c in certificates]
        out.line(f"certificates  {', '.join(ages)}")
    for warning in answer.get("warnings") or []:
        out.line(f"WARNING   {warning}")


def _service_row(service: Mapping[str, Any]) -> list[object]:
    return [
        service["name"],
        service["state"],
        service["pid"] or "-",
        service["restarts"],
        format_duration(service["since_s"]),
        service["health"] or "",
    ]
