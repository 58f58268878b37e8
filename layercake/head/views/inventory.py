"""What people are shown of the inventory beyond its nodes: the networks that they are in, and the
names that they have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from layercake.fleet.store import Record
from layercake.head.head import Head
from layercake.kraken.errors import LayercakeError
from layercake.moduleapi.guests import count
from layercake.moduleapi.network import Network, is_loopback, size

RELAYS = "boot.relays"
"""The call by which the relays that were heard are read."""
GUESTS, LEASES = "boot.guests", "boot.leases"
"""The calls by which it is read how many guests there are, and who they are."""
NAMES = "boot.names"
"""The call by which the names that the head's DNS has are read."""


async def networks_view(head: Head, sees: Callable[[Record], bool] | None) -> list[dict[str, Any]]:
    """The networks of the inventory by name, and first the head's own where none of them is that.
    With `sees`, of the nodes for which it holds, and no others are counted. Where relays cannot be
    asked for, none is shown."""
    settings, by_name = head.settings, head.networks.by_name
    counts = Counter(record.node.network for record in head.store if sees is None or sees(record))
    try:
        heard = await head.ask(RELAYS, {})
    except LayercakeError:  # the module is not there now: `layercake status` says so
        heard = {}
    used = (
        await _guests(head)
        if sees is None and any(network.guests for network in by_name.values())
        else {}
    )
    found = [
        _one(name, network, counts[name], heard.get(name), used.get(name))
        for name, network in sorted(by_name.items())
    ]
    own = settings.network
    if not is_loopback(own) and own not in {network.subnet for network in by_name.values()}:
        served = await _served(head)
        dns = (served["address"],) if served.get("serves") else tuple(settings.dns)
        network = Network(subnet=own, gateway=settings.gateway, dns=dns)
        found.insert(0, _one("", network, counts[""], heard.get(""), None))
    return found


async def _served(head: Head) -> Mapping[str, Any]:
    """How the head's DNS is served, {} where that cannot be asked for."""
    try:
        found: Mapping[str, Any] = await head.ask(NAMES, {"records": False})
    except LayercakeError:  # as above
        found = {}
    return found


async def _guests(head: Head) -> Mapping[str, Mapping[str, Any]]:
    """How many addresses guests have, by network; {} where that cannot be asked for."""
    try:
        found: Mapping[str, Mapping[str, Any]] = await head.ask(GUESTS, {})
    except LayercakeError:  # as above
        found = {}
    return found


async def guests_view(head: Head) -> list[dict[str, Any]] | None:
    """The machines that are not in the inventory and have an address of the head; None where that
    cannot be asked for."""
    found: list[dict[str, Any]] = []
    try:
        page = await head.ask(LEASES, {"start": 0})
        found += page["leases"]
        while page["more"]:
            page = await head.ask(LEASES, {"start": page["more"]})
            found += page["leases"]
    except LayercakeError:  # as above
        return None
    return found


async def names_view(
    head: Head, name: str, sees: Callable[[Record], bool] | None, *, brief: bool
) -> dict[str, Any]:
    """The names that the head's DNS has, or what one of them leads to. With `sees`, those of the
    nodes for which it holds, and of the head itself; `brief` is for viewers: without BMCs."""
    try:
        found = await _names(head, name)
    except LayercakeError:  # as with relays
        found = {
            "serves": None,
            "address": "",
            "domains": [],
            "forward": [],
            "ours": True,
            "records": [],
        }
    seen = None if sees is None else {record.name for record in head.store if sees(record)} | {""}
    return {
        **found,
        "records": [
            record
            for record in found["records"]
            if (seen is None or record["node"] in seen) and not (brief and record["bmc"])
        ],
    }


async def _names(head: Head, name: str) -> dict[str, Any]:
    found: dict[str, Any] = await head.ask(NAMES, {"name": name, "start": 0})
    while found["more"]:
        page = await head.ask(NAMES, {"name": name, "start": found["more"]})
        found = {**page, "records": [*found["records"], *page["records"]]}
    del found["more"]
    return found


def _one(
    name: str,
    network: Network,
    nodes: int,
    relay: Mapping[str, Any] | None,
    guests: Mapping[str, Any] | None,
) -> dict[str, Any]:
    hosts = size(network.subnet)
    facts = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in msgspec.structs.asdict(network).items()
    }
    return {
        "name": name,
        **facts,
        "nodes": nodes,
        "addresses": hosts,
        "use": round(nodes / hosts, 4),
        "relay": None if relay is None else dict(relay),
        "guest_addresses": count(network.guests),
        "guests_used": None if guests is None else guests["used"],
    }
