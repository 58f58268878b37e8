"""What features are made of: the fleet, the agents and the modules of a head, and the other
features by their classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from layercake.agents.client import NodeLink
from layercake.agents.https.requests import NodeRequests
from layercake.agents.joining import Joining
from layercake.agents.orders import PowerOrders
from layercake.agents.pki import Authority
from layercake.agents.sync import Sync
from layercake.api.served import ServedRequests
from layercake.base.clock import Clock
from layercake.base.secrets import Vault
from layercake.fleet.desired import DesiredState
from layercake.fleet.engine import Engine
from layercake.fleet.networks import SiteNetworks
from layercake.fleet.persistence.database import Database
from layercake.fleet.site_heads import SiteHeads
from layercake.fleet.store import Record, Store
from layercake.fleet.table import Table
from layercake.heads.site import SharedSite
from layercake.kernel.feature import Feature, in_order
from layercake.kernel.lag import Lag
from layercake.kernel.membership import Membership
from layercake.kernel.running import RunningFeatures
from layercake.kraken.errors import DeclarationError
from layercake.moduleapi.event_loop.slices import slowly
from layercake.moduleapi.network import HeadAddress
from layercake.modules.manual_power import ManualPower
from layercake.modules.side import ModuleSide

Part = TypeVar("Part")


class SiteSettings(Protocol):
    """The settings that are no feature's own (head.settings has what each is)."""

    @property
    def addresses(self) -> Sequence[str]:
        """The head's addresses, the first one first."""

    @property
    def agent_addresses(self) -> Sequence[str]:
        """All addresses at which the API may be reached."""

    @property
    def agent_ports(self) -> Sequence[int]:
        """The ports of the API and of state sync."""

    @property
    def beside_nodes(self) -> Sequence[str]:
        """These with the length of their prefixes, as far as nodes are beside them."""

    @property
    def floating(self) -> Sequence[HeadAddress]:
        """The addresses of the head that leads, beside its own."""

    @property
    def certificate_names(self) -> Sequence[str]:
        """The addresses and names that the head's certificate is for."""

    @property
    def people_url(self) -> str:
        """Where people reach the head."""

    @property
    def network(self) -> str:
        """The subnet that the head is in."""

    @property
    def gateway(self) -> str | None:
        """The default gateway there."""

    @property
    def dns(self) -> Sequence[str]:
        """The DNS servers there."""

    @property
    def simulated(self) -> bool:
        """Whether all nodes are simulated."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """`section` gives the settings of a module or a feature. `running` are the features, `site`
    this head among others of its site."""

    data_dir: Path
    settings: SiteSettings
    section: Callable[[str], Any]
    clock: Clock
    store: Store
    table: Table
    engine: Engine
    database: Database
    desire: DesiredState
    sync: Sync
    joining: Joining
    requests: NodeRequests
    node_link: NodeLink
    authority: Authority
    heads: SiteHeads
    vault: Vault
    modules: ModuleSide
    manual_power: ManualPower
    orders: PowerOrders
    membership: Membership
    running: RunningFeatures
    site: SharedSite | None = None
    lag: Lag = field(default_factory=Lag)
    served: ServedRequests = field(default_factory=ServedRequests)
    _parts: dict[type, object] = field(default_factory=dict)

    def start(self, features: Iterable[Feature]) -> None:
        """Makes the features, each after those that it needs. Raises DeclarationError."""
        for feature in in_order(features):
            running = feature.start(self)
            made = tuple(type(handlers) for handlers in running.routes)
            if made != feature.routes:
                raise DeclarationError(
                    f"cannot start the head: feature {feature.name} has other routes than it says"
                )
            self.running.add(feature.name, running)
            for part in running.parts:
                self._parts[type(part)] = part

    def part(self, kind: type[Part]) -> Part:
        """The object of a feature that runs, by its class. Raises DeclarationError."""
        part = self.find(kind)
        if part is None:
            raise DeclarationError(f"cannot start the head: nothing provides {kind.__name__}")
        return part

    def find(self, kind: type[Part]) -> Part | None:
        """The same; None if there is none."""
        return next((part for part in self._parts.values() if isinstance(part, kind)), None)

    @property
    def networks(self) -> SiteNetworks:
        """The networks of the site."""
        return self.heads.networks

    def serves(self, node: str) -> str:
        """The head's address that a node uses, by the node's id, as it stands before a port."""
        return self.heads.own_address(self.store.find(node))

    def touch(self, record: Record) -> None:
        """What a node is told has changed, beside what is wanted of it: it is told anew."""
        self.store.revise(record)
        self.store.mark(record)
        self.sync.push(record)

    async def heads_changed(self) -> None:
        """The heads of the site are others: all nodes are told anew, as many at a time as come to
        fetch it, and so is who boots them."""
        for name in self.networks.by_name:
            self.modules.notifier.network(name)
        async for record in slowly(list(self.store)):
            if self.store.find(record.node.id) is not record:
                continue
            self.modules.notifier.changed(record)
            self.store.revise(record)
            self.store.mark(record)
            if not self.sync.speaks(record) or await self.sync.coming.turn(
                record.node.id, record.cfg_revision
            ):
                self.sync.push(record)
