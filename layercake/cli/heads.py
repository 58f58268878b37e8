"""What makes this machine a head of several, or a witness: `layercake heads begin`, `heads end`,
`heads serve-store`, `witness`."""

from __future__ import annotations

from pathlib import Path

import click

from layercake.cli.head import data_option, join_options
from layercake.client.command import Answer, App, command, yes_option
from layercake.features.heads.commands import heads
from layercake.kraken.errors import InputError

__all__ = ["heads", "witness"]

_file = click.Path(exists=True, dir_okay=False, path_type=Path)


@command(heads)
@data_option
@click.option("--name", default="head1", show_default=True, help="What this head is to be called.")
@click.option(
    "--store",
    metavar="URL,..",
    help="An etcd that the site has anyhow, to be used instead of a store of the heads' own.",
)
@click.option("--store-ca", type=_file, help="What that etcd's certificate is checked by.")
@click.option("--store-cert", type=_file, help="The certificate that this head shows it.")
@click.option("--store-key", type=_file, help="Its key.")
@click.option(
    "--prefix", default="/layercake/", show_default=True, help="What its keys begin with there."
)
@click.option("--store-port", default=2379, show_default=True, help="The port of its member.")
@click.option(
    "--store-peer-port", default=2380, show_default=True, help="The port for the other members."
)
@yes_option
def begin(
    app: App,
    data_dir: Path,
    name: str,
    store: str | None,
    store_ca: Path | None,
    store_cert: Path | None,
    store_key: Path | None,
    prefix: str,
    store_port: int,
    store_peer_port: int,
    yes: bool,
) -> Answer:
    """Make the head of this machine the first of several.

    It starts a member of etcd beside the head, and leads when the head is started again. No node is
    touched, and all that it has is kept. Debian's own etcd.service is switched off on this machine.
    """
    from layercake import several_heads  # imported here for the reason given in `init`

    app.must_confirm("Make this head the first of several?", yes)
    lines: list[str] = []
    several_heads.begin(
        data_dir,
        name,
        lines.append,
        prefix=prefix,
        ports=several_heads.Ports(store_port, store_peer_port),
        foreign=several_heads.ForeignStore(tuple(store.split(",")), store_ca, store_cert, store_key)
        if store
        else None,
    )
    return Answer({"head": name, "messages": lines}, tuple(lines))


@command(heads)
@data_option
@yes_option
def end(app: App, data_dir: Path, yes: bool) -> Answer:
    """Make the last head of several one that is alone, with the database that it has.

    The head must be stopped, and no other one may lead: this cannot see the others.
    """
    from layercake import several_heads  # imported here for the reason given in `init`

    question = "Make this head the only one? What other heads have that it has not is lost"
    app.must_confirm(question, yes)
    lines: list[str] = []
    several_heads.end(data_dir, lines.append)
    return Answer({"messages": lines}, tuple(lines))


@command(heads, "serve-store")
@data_option
def serve_store(app: App, data_dir: Path) -> Answer:
    """Run this machine's member of the heads' store, in the foreground. The unit
    layercake-store.service does it."""
    from layercake import several_heads  # imported here for the reason given in `init`

    several_heads.run_store(data_dir)
    return Answer()


@command()
@data_option
@join_options
@click.option("--address", help="This machine's address; the one towards the head if not given.")
def witness(
    app: App,
    data_dir: Path,
    url: str | None,
    token: str | None,
    store_port: int,
    store_peer_port: int,
    address: str | None,
) -> Answer:
    """Make this machine a witness of the heads: a member of their store, and nothing else.

    Two heads need one: more than half of the members must be there.
    """
    from layercake import several_heads  # imported here for the reason given in `init`

    if not url or not token:
        raise InputError(
            "cannot be a witness: --join and --token are needed",
            hint="`layercake heads invite NAME --witness` on the head that leads prints them",
        )
    lines: list[str] = []
    ports = several_heads.Ports(store_port, store_peer_port)
    several_heads.witness(data_dir, url, token, address, ports, lines.append)
    return Answer({"messages": lines}, tuple(lines))
