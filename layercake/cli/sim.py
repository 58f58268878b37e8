"""`layercake sim`: a throw-away head with a simulated fleet, to try things on."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from layercake.cli.head import setting
from layercake.client.command import Answer, App, command
from layercake.kraken.errors import InputError

_MANY = 100_000
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class Span(click.ParamType[float]):
    """A time: 15ms, 60s, 10m, 1h; in seconds."""

    name = "TIME"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Reads it; usage is at fault otherwise."""
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)", str(value))
        if match is None:
            self.fail(f"{str(value)[:40]!r} is no time: write 15ms, 60s, 10m or 1h", param, ctx)
        return float(match[1]) * _UNITS[match[2]]


class Share(click.ParamType[float]):
    """A share: 1%, 0.01."""

    name = "SHARE"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Reads it; usage is at fault otherwise."""
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(%?)", str(value))
        share = float(match[1]) / (100.0 if match[2] else 1.0) if match is not None else 2.0
        if share > 1.0:
            self.fail(
                f"{str(value)[:40]!r} is no share: write 1% or 0.01, 100% at most", param, ctx
            )
        return share


@click.group()
def sim() -> None:
    """A throw-away head with up to 100,000 simulated nodes: try a policy, an upgrade or an
    inventory before the site sees it."""


@sim.command("run")
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    help="The simulation's own directory, which is not there yet; it is gone at the end. A "
    "temporary one if not given.",
)
@click.option(
    "--listen",
    default="",
    metavar="ADDRESS:PORT",
    help="Where a browser on this machine reaches the dashboard, such as 127.0.0.1:8443; nowhere "
    "if not given.",
)
@click.option(
    "--allow-remote",
    is_flag=True,
    help="Accept an address for --listen that other machines may reach.",
)
@click.option(
    "--nodes",
    type=click.IntRange(1, _MANY),
    default=100,
    show_default=True,
    help="How many nodes are made up.",
)
@click.option(
    "--inventory",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The nodes of this inventory instead, with simulated BMCs.",
)
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The settings of a site (its config.yaml), as far as they lead to nothing real.",
)
@click.option(
    "--address",
    default="",
    metavar="ADDRESS/PREFIX",
    help="The head's address in the nodes' network.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of the head: `guard.site_boots=500`.",
)
@click.option(
    "--firmware",
    type=Span(),
    default="8s",
    show_default=True,
    help="How long a machine's firmware takes.",
)
@click.option(
    "--kernel", type=Span(), default="4s", show_default=True, help="How long kernel and minOS take."
)
@click.option(
    "--heads",
    type=click.IntRange(1, 3),
    default=1,
    show_default=True,
    help="How many heads there are: of several one leads, and the directories of the others are "
    "DIR/head2 and DIR/head3. It needs etcd.",
)
@click.option(
    "--dhcp",
    is_flag=True,
    help="Machines ask by DHCP, by a relay; without it they ask for their boot script at once.",
)
@click.option(
    "--seed", type=int, default=1, show_default=True, help="The same seed makes the same faults."
)
@click.option(
    "--loss", type=Share(), default="0%", help="Datagrams that are lost, in each direction."
)
@click.option("--delay", "delay_s", type=Span(), default="0s", help="How long a datagram takes.")
@click.option("--jitter", "jitter_s", type=Span(), default="0s", help="... more or less.")
@click.option("--reorder", type=Share(), default="0%", help="Datagrams that later ones overtake.")
@click.option("--duplicate", type=Share(), default="0%", help="Datagrams that arrive twice.")
@click.option(
    "--flap", type=Share(), default="0%", help="Nodes that fall silent for 20 s of each 60 s."
)
@click.option(
    "--dead",
    type=Share(),
    default="0%",
    help="Nodes that hang, once, within a minute of their first life.",
)
@click.option(
    "--bad-bmc",
    type=Share(),
    default="0%",
    help="Nodes whose BMC is dead, slow, or says yes and does nothing.",
)
@click.option(
    "--dark",
    multiple=True,
    metavar="NODES",
    help="A group, a range or a share (33%) that goes dark, BMCs too.",
)
@click.option(
    "--at",
    type=Span(),
    default="60s",
    show_default=True,
    help="When it does, after the inventory was applied.",
)
@click.option(
    "--for", "lasts", type=Span(), default="120s", show_default=True, help="How long it lasts."
)
@click.option(
    "--every",
    type=Span(),
    default="0s",
    help="How often nodes of --dead hang again, and those of --dark go dark again; once if not "
    "given.",
)
@click.option("--time", "seconds", type=Span(), default="0s", help="End by itself after so long.")
@click.option("--keep", is_flag=True, help="Keep the directory, with the head's log and database.")
def run(
    directory: Path | None,
    listen: str,
    allow_remote: bool,
    nodes: int,
    inventory: Path | None,
    config: Path | None,
    address: str,
    settings: Sequence[str],
    firmware: float,
    kernel: float,
    heads: int,
    dhcp: bool,
    dark: Sequence[str],
    at: float,
    lasts: float,
    every: float,
    seconds: float,
    keep: bool,
    **faults: float,
) -> int:
    """Run a head and a simulated fleet, in a network of their own, until Ctrl-C. A line says how
    they are.

    No running head and nothing on a real network is touched. Talk to it by its socket: `layercake
    --socket DIR/api.sock status`. With --listen: once the fleet is up it prints a link to its
    dashboard.
    """
    # Imported here: the client must start fast, and work where the head's dependencies are not
    # installed.
    from layercake.sim.launch import launch

    program = sys.argv[0] if Path(sys.argv[0]).name == "layercake" else "layercake"
    options = {
        "nodes": nodes,
        "inventory": str(inventory.absolute()) if inventory else "",
        "config": str(config.absolute()) if config else "",
        "address": address,
        "changes": dict(map(setting, settings)),
        "heads": heads,
        "dhcp": dhcp,
        "faults": {**faults, "every_s": every},
        "dark": [{"nodes": words, "at": at, "lasts": lasts, "every": every} for words in dark],
        "firmware_s": firmware,
        "kernel_s": kernel,
        "seconds": seconds,
        "keep": keep,
        "program": program,
    }
    return launch(options, place=directory, listen=listen, remote=allow_remote)


@command(sim, "inventory")
@click.option(
    "--nodes", type=click.IntRange(1, _MANY), default=100, show_default=True, help="How many nodes."
)
@click.option(
    "--of",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The nodes of this inventory, with simulated BMCs, instead of made-up ones.",
)
def inventory_of(app: App, nodes: int, file: Path | None) -> Answer:
    """Print an inventory of simulated nodes, in YAML."""
    from layercake.sim import inventory  # imported here for the reason given in `run`

    try:
        text = (
            inventory.generated(nodes)
            if file is None
            else inventory.replaced(file.read_text(), str(file))
        )
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {file}: {error}") from None
    return Answer({"yaml": text}, lambda out: out.raw(text))
