"""What people are shown of the inventory beyond its nodes: the networks that they are in, and the
names that they have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from layercake.fleet.networks import SiteNetworks
from layercake.fleet.store import Record, Store
from layercake.kernel.kernel import SiteSettings
from layercake.kraken.errors import LayercakeError
from layercake.moduleapi.guests import count
from layercake.moduleapi.network import Network, is_loopback, size
from layercake.modules.calls import AskModule

RELAYS = "boot.relays"
"""The call by which the relays that were heard are read."""
GUESTS, LEASES = "boot.guests", "boot.leases"
"""The calls by which it is read how many guests there are, and who they are."""
NAMES = "boot.names"
"""The call by which the names that the head's DNS has are read."""


class SiteViews:
    """What is shown. `ask` calls a module."""

    def __init__(
        self, store: Store, networks: SiteNetworks, settings: SiteSettings, ask: AskModule
    ) -> None:
        self._store = store
        self._networks = networks
        self._settings = settings
        self._ask = ask

    async def networks(self, sees: Callable[[Record], bool] | None) -> list[dict[str, Any]]:
        """The networks of the inventory by name, and first the head's own where none of them is
        that. With `sees`, of the nodes for which it holds, and no others are counted. Where relays
        cannot be asked for, none is shown."""
        settings, by_name = self._settings, self._networks.by_name
        counts = Counter(r.node.network for r in self._store if sees is None or sees(r))
        heard = await self._asked(RELAYS, {})
        guests = sees is None and any(network.guests for network in by_name.values())
        used = await self._asked(GUESTS, {}) if guests else {}
        found = [
            _one(name, network, counts[name], heard.get(name), used.get(name))
            for name, network in sorted(by_name.items())
        ]
        own = settings.network
        if not is_loopback(own) and own not in {network.subnet for network in by_name.values()}:
            served = await self._asked(NAMES, {"records": False})
            dns = (served["address"],) if served.get("serves") else tuple(settings.dns)
            network = Network(subnet=own, gateway=settings.gateway, dns=dns)
            found.insert(0, _one("", network, counts[""], heard.get(""), None))
        return found

    async def _asked(self, call: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """What a module answers; {} while it is not there: `layercake status` says so."""
        try:
            found: Mapping[str, Any] = await self._ask(call, request)
        except LayercakeError:
            found = {}
        return found

    async def guests(self) -> list[dict[str, Any]] | None:
        """The machines that are not in the inventory and have an address of the head; None where
        that cannot be asked for."""
        found: list[dict[str, Any]] = []
        start = 0
        while page := await self._asked(LEASES, {"start": start}):
            found += page["leases"]
            if not page["more"]:
                return found
            start = page["more"]
        return None

    async def names(
        self, name: str, sees: Callable[[Record], bool] | None, *, brief: bool
    ) -> dict[str, Any]:
        """The names that the head's DNS has, or what one of them leads to. With `sees`, those of
        the nodes for which it holds, and of the head itself; `brief` is for viewers: without
        BMCs."""
        try:
            found = await self._names(name)
        except LayercakeError:  # as with relays
            found = {
                "serves": None,
                "address": "",
                "domains": [],
                "forward": [],
                "ours": True,
                "records": [],
            }
        seen = None if sees is None else {r.name for r in self._store if sees(r)} | {""}
        return {
            **found,
            "records": [
                record
                for record in found["records"]
                if (seen is None or record["node"] in seen) and not (brief and record["bmc"])
            ],
        }

    async def _names(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = await self._ask(NAMES, {"name": name, "start": 0})
        while found["more"]:
            page = await self._ask(NAMES, {"name": name, "start": found["more"]})
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
