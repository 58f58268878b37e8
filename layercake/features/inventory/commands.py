"""`layercake networks` and `dns`: the networks of the inventory, and its names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from layercake.client.command import FAILED, OK, Answer, App, command
from layercake.client.output import Column, format_duration

_NETWORKS = (
    Column("NAME"),
    Column("SUBNET"),
    Column("GATEWAY"),
    Column("NODES", right=True),
    Column("USE", right=True),
    Column("GUESTS", right=True),
    Column("DOMAIN"),
    Column("TOLD", flexible=True),
    Column("RELAY", flexible=True),
)
_GUESTS = (
    Column("MAC"),
    Column("NAME", flexible=True),
    Column("ADDRESS"),
    Column("NETWORK"),
    Column("FOR", right=True),
)
_NAMES = (Column("NAME"), Column("TYPE"), Column("DATA", flexible=True), Column("NODE"))
_OWN = "(the head's own)"
_HEAD = "(the head)"


@command()
@click.option(
    "--guests",
    is_flag=True,
    help="The machines that are not in the inventory and have an address, instead.",
)
def networks(app: App, guests: bool) -> Answer:
    """List the networks of the inventory: how many addresses nodes and guests have, and which DHCP
    relay was heard last."""
    if guests:
        return _guests(app)
    answer = app.head.get("/v1/networks")
    rows = [
        [
            n["name"] or _OWN,
            n["subnet"],
            n["gateway"] or "-",
            str(n["nodes"]),
            f"{100 * n['use']:.0f} %",
            _used(n),
            n["domain"] or "-",
            _says(n) or "-",
            _relay(n["relay"]),
        ]
        for n in answer["networks"]
    ]
    return Answer(
        answer,
        lambda out: out.table(
            _NETWORKS, rows, empty="no networks; they stand under `networks` in the inventory"
        ),
    )


def _guests(app: App) -> Answer:
    answer = app.head.get("/v1/networks/guests")
    if answer["guests"] is None:
        return Answer(
            answer,
            "which guests there are cannot be said: the module pxe does not answer; see `layercake "
            "status`",
            FAILED,
        )
    rows = [
        [g["mac"], g["name"] or "-", g["address"], g["network"], format_duration(g["seconds"])]
        for g in answer["guests"]
    ]
    return Answer(
        answer,
        lambda out: out.table(
            _GUESTS, rows, empty="no guests; `guests` of a network has addresses for them"
        ),
    )


def _used(network: Mapping[str, Any]) -> str:
    """How many addresses guests have, of how many."""
    addresses = network.get("guest_addresses")
    used = network.get("guests_used")
    return "-" if not addresses else f"{'?' if used is None else used} of {addresses}"


@command()
@click.argument("name", default="")
def dns(app: App, name: str) -> Answer:
    """List the names that the head's DNS has, or what NAME (or an IP address) leads to."""
    answer = app.head.get("/v1/dns", name=name)
    if answer["serves"] is None:
        return Answer(
            answer,
            "which names there are cannot be said: the module pxe does not answer; see `layercake "
            "status`",
            FAILED,
        )
    if not answer["serves"]:
        return Answer(
            answer,
            "the head serves no DNS; `boot: {dns: {serve: true}}` in config.yaml has it do so",
        )
    records = (
        answer["records"]
        if name
        else sorted(answer["records"], key=lambda r: (r["node"], r["bmc"], r["type"], r["name"]))
    )
    rows = [[r["name"], r["type"], r["data"], r["node"] or _HEAD] for r in records]
    if not answer["ours"]:
        asked = (
            f"asked of {', '.join(answer['forward'])}"
            if answer["forward"]
            else "refused: no servers are set to ask"
        )
        return Answer(answer, f"{name} is in no zone of the head: it is {asked}")
    none = f"there is no {name} in the head's zones"
    return Answer(answer, lambda out: out.table(_NAMES, rows, empty=none), OK if rows else FAILED)


def _says(network: Mapping[str, Any]) -> str:
    """What its nodes are told besides."""
    lists = [f"{key} {', '.join(network[key])}" for key in ("dns", "ntp") if network[key]]
    mtu = [f"mtu {network['mtu']}"] if network["mtu"] else []
    return "; ".join(
        [*lists, *mtu, *(f"{to} via {router}" for to, router in network["routes"].items())]
    )


def _relay(relay: Mapping[str, Any] | None) -> str:
    if relay is None:
        return "-"
    port = f" port {relay['circuit']}" if relay["circuit"] else ""
    return f"{relay['relay']}{port}, {format_duration(relay['seconds_ago'])} ago"
