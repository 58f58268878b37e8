"""`layercake init`, `serve`, `status`, `backup`, `restore`: the head itself."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from layercake.base.text import count_of
from layercake.client.command import Answer, App, F, command, yes_option
from layercake.kraken.errors import InputError

DEFAULT_DATA = "/var/lib/layercake"
data_option = click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_DATA,
    show_default=True,
    envvar="LAYERCAKE_DATA",
    show_envvar=True,
    help="Where the head keeps its state.",
)


def join_options(function: F) -> F:
    """--join, --token, and the ports of the member of the store."""
    for option in (
        click.option(
            "--join",
            "url",
            metavar="URL",
            help="The head of the site that this machine is to join: https://HEAD:8443.",
        ),
        click.option(
            "--token", help="The token that `layercake heads invite NAME` has printed there."
        ),
        click.option(
            "--store-port", default=2379, show_default=True, help="The port of its member of etcd."
        ),
        click.option(
            "--store-peer-port",
            default=2380,
            show_default=True,
            help="The port for the other members.",
        ),
    ):
        function = option(function)
    return function


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
@join_options
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
    url: str | None,
    token: str | None,
    store_port: int,
    store_peer_port: int,
    **said: str | None,
) -> Answer:
    """Set up a head on this machine: settings, keys, what the nodes boot.

    What is not said by an option is found out. What cannot be found out is asked, on a terminal and
    without --yes. Run it again to complete what is missing, and to build anew what nodes boot;
    settings that are there stay as they are.

    With --join this machine becomes a further head of a site: settings, keys and what nodes boot
    come from the head that leads.
    """
    # Imported here: the client must start fast, and work where the head's dependencies are not
    # installed.
    from layercake.setup import initialise

    if url is not None or token is not None:
        words = dict(map(setting, settings))
        return _join(app, data_dir, url, token, words, (store_port, store_peer_port), said, dns)
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


def _join(
    app: App,
    data_dir: Path,
    url: str | None,
    token: str | None,
    settings: Mapping[str, Any],
    ports: tuple[int, int],
    said: Mapping[str, str | None],
    dns: str | None,
) -> Answer:
    """Makes this machine a further head of a site."""
    from layercake import several_heads  # imported here for the reason given in `init`
    from layercake.guess import Given

    if not url or not token:
        raise InputError(
            "cannot join: --join and --token belong together",
            hint="`layercake heads invite NAME` on the head that leads prints them",
        )
    given = Given(
        said["interface"],
        said["address"],
        said["gateway"],
        None if dns is None else tuple(dns.split(",")),
    )
    lines: list[str] = []
    echo = lines.append if app.out.json else app.out.line
    several_heads.join(data_dir, url, token, given, settings, several_heads.Ports(*ports), echo)
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
        f"{file}: {count_of(len(names), 'file')} of {data_dir}; images are not in it"
        + (
            ""
            if backups.HISTORY in names or not backups.has_history(data_dir)
            else ", nor is the history of the inventory: git cannot read it, or it is empty"
        ),
    )


@command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@data_option
@_passphrase_option
@click.option("--replace", is_flag=True, help="Replace what is in the data directory.")
@click.option(
    "--revoke",
    is_flag=True,
    help="Revoke all tokens of the backup. Tokens that were revoked since it was made are valid "
    "again otherwise.",
)
def restore(
    app: App, file: Path, data_dir: Path, passphrase_file: Path | None, replace: bool, revoke: bool
) -> Answer:
    """Put a backup into an empty data directory; no head may be running there."""
    from layercake import backup as backups  # imported here for the reason given in `init`

    secret = backups.passphrase(passphrase_file)
    names = backups.restore(file, data_dir, secret, replace=replace, revoke=revoke)
    tokens = (
        "all tokens are revoked: `layercake init` makes the first one"
        if revoke
        else "tokens that were revoked since the backup are valid again: `layercake token list`, "
        "or restore with --revoke"
    )
    return Answer(
        {"data_dir": str(data_dir), "holds": names, "revoked": revoke},
        f"{data_dir}: {count_of(len(names), 'file')} of {file}; `layercake init` builds what nodes "
        "boot\n"
        f"{tokens}",
    )
