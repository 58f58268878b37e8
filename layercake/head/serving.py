"""What serves people and nodes, put together."""

from __future__ import annotations

from collections.abc import Sequence
from socket import socket

from layercake.api.access import NoAccess
from layercake.api.server import Api, at_once
from layercake.head.settings import Settings
from layercake.kernel.kernel import Kernel
from layercake.kernel.node_door import NodeDoor


def make_api(
    settings: Settings, kernel: Kernel, nodes: NodeDoor, inherited: Sequence[socket]
) -> Api:
    """The API of a head. `inherited` are listening sockets that it serves, too. Where a site has
    several heads, a change is answered when the others have its files."""
    return Api(
        settings,
        kernel.store,
        kernel.authority,
        kernel.running.access or NoAccess(),
        kernel.running.routes(),
        nodes,
        kernel.served,
        inherited,
        at_once if kernel.site is None else kernel.site.wait_until_copied,
    )
