"""What people are shown of the inventory beyond its nodes: the networks that they are in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from layercake.head.head import Head
from layercake.head.state.store import Record
from layercake.kraken.errors import LayercakeError
from layercake.moduleapi.network import Network, is_loopback, size

RELAYS = "boot.relays"
"""The call by which the relays that were heard are read."""


async def networks_view(head: Head, sees: Callable[[Record], bool] | None) -> list[dict[str, Any]]:
    """The networks of the inventory by name, and first the head's own where none of them is that. With `sees`, of the nodes for
    which it holds, and no others are counted. Where relays cannot be asked for, none is shown."""
    settings, by_name = head.settings, head.networks.by_name
    counts = Counter(record.node.network for record in head.store if sees is None or sees(record))
    try:
        heard = await head.ask(RELAYS, {})
    except LayercakeError:  # the module is not there now: `layercake status` says so
        heard = {}
    found = [_one(name, network, counts[name], heard.get(name)) for name, network in sorted(by_name.items())]
    own = settings.network
    if not is_loopback(own) and own not in {network.subnet for network in by_name.values()}:
        network = Network(subnet=own, gateway=settings.gateway, dns=tuple(settings.dns))
        found.insert(0, _one("", network, counts[""], heard.get("")))
    return found


def _one(name: str, network: Network, nodes: int, relay: Mapping[str, Any] | None) -> dict[str, Any]:
    hosts = size(network.subnet)
    facts = {key: list(value) if isinstance(value, tuple) else value for key, value in msgspec.structs.asdict(network).items()}
    return {"name": name, **facts, "nodes": nodes, "addresses": hosts, "use": round(nodes / hosts, 4),
            "relay": None if relay is None else dict(relay)}
