"""`layercake shell-groups`: the inventory's groups for ClusterShell, as an external source of its
groups (clush, nodeset; groups.conf(5))."""

from __future__ import annotations

from collections.abc import Iterable

import click

from layercake.client.command import Answer, App, command
from layercake.inventory.ranges import fold

CONFIG = """\
# Of /etc/clustershell/groups.conf.d/layercake.conf, for clush and nodeset
[layercake]
map: layercake shell-groups map "$GROUP"
all: layercake shell-groups all
list: layercake shell-groups list
reverse: layercake shell-groups reverse "$NODE"
cache_time: 60
"""


@click.group()
def shell_groups() -> None:
    """The inventory's groups for ClusterShell's clush and nodeset."""


@command(shell_groups)
def config(app: App) -> Answer:
    """Print the lines for /etc/clustershell/groups.conf.d/layercake.conf."""
    return Answer({"config": CONFIG}, lambda out: out.lines(CONFIG))


@command(shell_groups, "map")
@click.argument("group")
def map_(app: App, group: str) -> Answer:
    """Print the nodes of GROUP."""
    return _nodes(app, f"@{group}")


@command(shell_groups, "all")
def all_(app: App) -> Answer:
    """Print all nodes."""
    return _nodes(app, "@all")


@command(shell_groups, "list")
def list_(app: App) -> Answer:
    """Print the names of all groups."""
    return _names(_groups(app, "@all"))


@command(shell_groups)
@click.argument("node")
def reverse(app: App, node: str) -> Answer:
    """Print the groups that NODE is in."""
    return _names(_groups(app, node))


def _nodes(app: App, nodes: str) -> Answer:
    names = [
        view["name"] for view in app.head.get("/v1/nodes", range=nodes, fields="name")["nodes"]
    ]
    return Answer({"nodes": names}, fold(names))


def _groups(app: App, nodes: str) -> set[str]:
    views = app.head.get("/v1/nodes", range=nodes, fields="groups")["nodes"]
    return {group for view in views for group in view["groups"]}


def _names(names: Iterable[str]) -> Answer:
    found = sorted(names)
    return Answer({"groups": found}, lambda out: out.lines("\n".join(found)))
