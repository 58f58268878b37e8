"""`layercake networks`: the networks that nodes are in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from layercake.cli.common.command import Answer, App, command
from layercake.cli.common.output import Column, seconds

_COLUMNS = (Column("NAME"), Column("SUBNET"), Column("GATEWAY"), Column("NODES", right=True), Column("USE", right=True),
            Column("DOMAIN"), Column("TOLD", flexible=True), Column("RELAY", flexible=True))
OWN = "(the head's own)"


@command()
def networks(app: App) -> Answer:
    """List the networks of the inventory: how many of their addresses nodes have, and which DHCP relay was heard last."""
    found = app.head.get("/v1/networks")
    rows = [[n["name"] or OWN, n["subnet"], n["gateway"] or "-", str(n["nodes"]), f"{100 * n['use']:.0f} %", n["domain"] or "-",
             _told(n) or "-", _relay(n["relay"])] for n in found["networks"]]
    return Answer(found, lambda out: out.table(_COLUMNS, rows, empty="no networks; they stand under `networks` in the inventory"))


def _told(network: Mapping[str, Any]) -> str:
    """What its nodes are told besides."""
    lists = [f"{key} {', '.join(network[key])}" for key in ("dns", "ntp") if network[key]]
    mtu = [f"mtu {network['mtu']}"] if network["mtu"] else []
    return "; ".join([*lists, *mtu, *(f"{to} via {router}" for to, router in network["routes"].items())])


def _relay(relay: Mapping[str, Any] | None) -> str:
    if relay is None:
        return "-"
    port = f" port {relay['circuit']}" if relay["circuit"] else ""
    return f"{relay['relay']}{port}, {seconds(relay['seconds_ago'])} ago"
