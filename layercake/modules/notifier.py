"""Tells the modules' processes of nodes and networks: each gets the records that it declares."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from layercake.base.secrets import SecretRef, Vault
from layercake.fleet import events
from layercake.fleet.networks import SiteNetworks
from layercake.fleet.store import Record, Store
from layercake.fleet.table import Table
from layercake.kraken.errors import LayercakeError
from layercake.moduleapi import module_pb2 as pb
from layercake.moduleapi.module import Module, Site
from layercake.modules.host import ModuleHost


@dataclass(frozen=True, slots=True)
class NotifiedNode:
    """What a module may know of a node (moduleapi.module.NodeFacts)."""

    id: str
    name: str
    macs: tuple[str, ...]
    ip: str
    arch: str
    firmware: str
    boot_set: str
    offers: Mapping[str, str] = field(default_factory=dict)
    network: Mapping[str, Any] | None = None
    other_heads: Sequence[str] = ()


def _no_other_heads(network: Mapping[str, Any] | None) -> Sequence[str]:
    return ()


class ModuleNotifier:
    """Tells modules of nodes. `boots` gives the boot set that a node boots next, `vault` has the
    secrets, `site` is what modules are told of the head, `networks` what of a node's network,
    `strangers` gives the boot set of those that are being discovered, `other_heads` where the nodes
    of a network reach the site's other heads (SiteHeads.boot_words). `secret_of` says where a
    node's secret is that the inventory has at a place, while it is being changed."""

    def __init__(
        self,
        store: Store,
        table: Table,
        host: ModuleHost,
        boots: Callable[[Record], str],
        vault: Vault,
        site: Site,
        networks: SiteNetworks,
        strangers: Callable[[], Mapping[str, str]] = dict,
        other_heads: Callable[[Mapping[str, Any] | None], Sequence[str]] = _no_other_heads,
    ) -> None:
        self._other_heads = other_heads
        self._vault = vault
        self.secret_of: Callable[[Record, SecretRef], SecretRef] = lambda record, ref: ref
        self._site = site
        self._networks = networks
        self._strangers = strangers
        self._exposed: set[str] = set()
        self._store = store
        self._boots = boots
        self._table = table
        self._host = host
        self._modules = table.told_of_nodes()
        self._of_networks = [module for module in table.having_process() if module.networks]

    def changed(self, record: Record) -> None:
        """A node is new, or its entry in the inventory has changed."""
        for module in self._modules:
            self._record(module, record)

    def removed(self, record: Record) -> None:
        """A node is gone."""
        for module in self._modules:
            self._host.send(
                module.name, pb.FromHead(node_removed=pb.NodeRemoved(node=record.node.id))
            )

    def state(self, record: Record, before: int) -> None:
        """A node's discovered state has changed: told to the modules that watch one of the
        variables."""
        layout = record.planner.layout
        moved = record.machine.state ^ before
        message = None
        for module in self._modules:
            if any(moved & layout.mask(name) for name in module.watches):
                message = message or pb.FromHead(
                    node_state=pb.NodeState(node=record.node.id, values=record.values())
                )
                self._host.send(module.name, message)

    def network(self, name: str) -> None:
        """A network of the inventory is new, has changed, or is gone."""
        for module in self._of_networks:
            self._network(module, name)

    def networks(self) -> None:
        """What machines boot that are being discovered may be another boot set now."""
        for name, network in self._networks.by_name.items():
            if network.discovery:
                self.network(name)

    def _network(self, module: Module, name: str) -> None:
        told = self._networks.named(name)
        if told is not None and told.get("discovery"):
            others = list(self._other_heads(told))
            told = {**told, "boot_sets": self._strangers()}
            told |= {"other_heads": others} if others else {}
        message = (
            pb.FromHead(network_removed=pb.NetworkRemoved(name=name))
            if told is None
            else pb.FromHead(
                network_changed=pb.NetworkChanged(name=name, json=json.dumps(told).encode())
            )
        )
        self._host.send(module.name, message)

    async def everything(
        self, module: Module, first: Iterable[str], then: Callable[[Record], None]
    ) -> None:
        """A module's process is new: it gets all networks, nodes and their states, each node
        followed by `then`; those first whose ids are in `first`."""
        if module.networks:
            for name in self._networks.by_name:
                self._network(module, name)
        others = self._store if module.record is not None else ()

        def tell_of(node: str) -> None:
            record = self._store.find(node)
            if record is not None:
                self._snapshot(module, record)
                then(record)

        nodes = [*first, *(record.node.id for record in others)]
        await self._host.snapshot(module.name, nodes, tell_of)

    def _snapshot(self, module: Module, record: Record) -> None:
        """A node and its state."""
        if module.record is None:
            return
        self._record(module, record)
        state = pb.NodeState(node=record.node.id, values=record.values())
        self._host.send(module.name, pb.FromHead(node_state=state))

    def _facts(self, record: Record) -> NotifiedNode:
        node = record.node
        network = self._networks.of(node)
        offers: dict[str, str] = {}
        facts = NotifiedNode(
            node.id,
            node.name,
            node.macs,
            node.ip,
            node.arch,
            node.firmware,
            self._boots(record),
            offers,
            network,
            self._other_heads(network),
        )
        offered = [
            module.offers(facts, node.parts.get(name), self._table.settings.get(name), self._site)
            for name, module in self._table.modules.items()
            if module.offers is not None
        ]
        for one in offered:
            offers.update(one)
        return facts

    def _open_to_others(self, warning: str) -> None:
        """Told once while the head runs, not for every node."""
        if warning not in self._exposed:
            self._exposed.add(warning)
            self._store.event(None, events.SECRET_EXPOSED, warning)

    def _record(self, module: Module, record: Record) -> None:
        if module.record is None:
            return

        def reveal(secret: SecretRef | None) -> str:
            try:
                return (
                    ""
                    if secret is None
                    else self._vault.open(
                        self.secret_of(record, secret), self._open_to_others
                    ).reveal()
                )
            except LayercakeError as error:
                self._store.event(record, events.SECRET_UNREADABLE, str(error))
                return ""

        try:
            told = json.dumps(
                module.record(self._facts(record), record.node.parts.get(module.name), reveal)
            ).encode()
        # A site's code, in the head: others are told all the same.
        except Exception as error:  # noqa: BLE001
            where = traceback.extract_tb(error.__traceback__)[-1]
            # its text may hold a secret
            why = f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}"
            self._store.event(
                record,
                events.SERVICE_REFUSED,
                f"module {module.name} is not told of this node: its record cannot be made: {why}",
                data={"service": module.name},
            )
            return
        self._host.send(
            module.name, pb.FromHead(node_changed=pb.NodeChanged(node=record.node.id, json=told))
        )
