"""The question before a command that may interrupt work: how many nodes it is about, how many of
them run something or are BUSY.

`app.confirm` asks; what is asked, and when, is here. --yes answers it. Who names the nodes one by
one or by a range of numbers knows which they are; a group is whatever the inventory makes of it
today, so it is asked about also where names are not.
"""

from __future__ import annotations

import getpass
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from layercake.inventory.ranges import fold

if TYPE_CHECKING:
    from layercake.client.command import App

NodeView = Mapping[str, Any]


def current_user() -> str:
    """The name that stands in the history for the person at this terminal."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def is_group(nodes: str) -> bool:
    """Whether a range names a group: what is in it does not show."""
    return "@" in nodes


def describe_nodes(found: Iterable[NodeView]) -> str:
    """ "12 nodes, 10 of them running, 2 BUSY (n[3-4])"."""
    from layercake.inventory.ranges import fold

    nodes = list(found)
    running = running_names(nodes)
    busy = [n["name"] for n in nodes if n["state"].get("busy") == "BUSY"]
    text = f"{len(nodes)} node{'' if len(nodes) == 1 else 's'}, {len(running)} of them running"
    return text + (f", {len(busy)} BUSY ({fold(busy)})" if busy else ", none BUSY")


def running_names(found: Iterable[NodeView]) -> list[str]:
    """The nodes that run something."""
    return [n["name"] for n in found if n["in_use"]]


def confirm_stop(app: App, nodes: str, what: str, yes: bool) -> None:
    """Asks before running nodes are stopped, and ends the command if they shall not be; nodes that
    run nothing are not worth a question. `what` is done to them: "Stop"."""
    if yes:
        return
    views = app.head.get("/v1/nodes", range=nodes)["nodes"]
    if running_names(views):
        app.must_confirm(f"{what} {nodes}: {describe_nodes(views)}. Go on?", False)


def confirm_images(
    app: App, nodes: str, image: str, how: str, yes: bool, *, always: bool = False
) -> None:
    """Asks before the nodes of a group change their images, or of any range if `always`, and ends
    the command if they shall not; `how` they do it: "in batches"."""
    if yes or not (always or is_group(nodes)):
        return
    views = app.head.get("/v1/nodes", range=nodes)["nodes"]
    if running_names(views):
        app.must_confirm(f"Roll {nodes} to {image}{how}: {describe_nodes(views)}. Go on?", False)


def at_stake(app: App, names: Iterable[str]) -> str:
    """What is counted of these nodes; "" if they run nothing."""
    wanted = set(names)
    views = [n for n in app.head.get("/v1/nodes")["nodes"] if n["name"] in wanted]
    return describe_nodes(views) if running_names(views) else ""


def stays_off(names: Sequence[str]) -> str:
    """What becomes of nodes that are wanted off, and how to take that back."""
    return f"stays off until `layercake power on {fold(names)}`"


def stays_up(names: Sequence[str]) -> str:
    """What becomes of nodes that are wanted up, and how to take that back."""
    return f"switched on again if it goes off; `layercake power off {fold(names)}` takes that back"
