"""The head: its parts are made and wired together here, and here only; features bring the rest."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from socket import socket

from layercake.agents.client import NodeLink
from layercake.agents.https.requests import NodeRequests
from layercake.agents.joining import Joining
from layercake.agents.orders import PowerOrders
from layercake.agents.pki import Authority
from layercake.agents.sync import Sync
from layercake.api.server import Api
from layercake.base.clock import Clock, steady_clock
from layercake.base.secrets import Vault
from layercake.fleet.desired import DesiredState
from layercake.fleet.engine import Engine
from layercake.fleet.networks import SiteNetworks
from layercake.fleet.persistence.database import Database
from layercake.fleet.site_heads import SiteHeads
from layercake.fleet.store import Store
from layercake.head.features import FEATURES
from layercake.head.life import Life
from layercake.head.loading import Ready, load_modules, own_head, section_reader
from layercake.head.serving import make_api
from layercake.head.settings import DATABASE, Settings
from layercake.heads.site import SharedSite
from layercake.kernel.feature import Feature
from layercake.kernel.kernel import Kernel, Part
from layercake.kernel.membership import Membership
from layercake.kernel.node_door import NodeDoor
from layercake.kernel.running import RunningFeatures
from layercake.modules.listener import ModuleListener
from layercake.modules.side import ModuleSide


class Head:
    """The parts of the head. `environ` is for {env: NAME} of the inventory, `site` other heads,
    `ready` what was made by these settings while one of them led."""

    def __init__(
        self,
        data_dir: Path,
        settings: Settings,
        clock: Clock | None = None,
        environ: Mapping[str, str] = os.environ,
        features: Sequence[Feature] = FEATURES,
        site: SharedSite | None = None,
        ready: Ready | None = None,
    ) -> None:
        self.data_dir = data_dir
        self.settings = settings
        self.site = site
        self.clock = clock or steady_clock()
        self.features = RunningFeatures()
        self.store = Store(self.clock, wall=clock or time.time)
        ahead = ready.records if ready else None
        self.database = Database(data_dir / DATABASE, self.clock, site, ahead)
        self.authority = Authority(data_dir / "pki", settings.certificates.days)
        self.networks = SiteNetworks()
        self.heads = SiteHeads(self.store, self.networks, own_head(settings))
        self.vault = Vault(settings.secrets_in(data_dir), environ)
        self.joining = Joining(
            self.store, self.clock, lambda r: self.sync.end(r), lambda r, w: self.engine.bar(r, w)
        )
        self.table, launches = ready.modules if ready else load_modules(data_dir, settings)
        self.modules = ModuleSide(
            data_dir,
            self.table,
            launches,
            settings.site(data_dir),
            self.store,
            self.joining,
            self.vault,
            self.heads,
            self.clock,
            self.features.decisions,
            lambda record, event: self.engine.post(record, event),
        )
        self._make_fleet()
        self.kernel = self._make_kernel()
        self.kernel.start(features)
        self.nodes = NodeDoor(self.kernel)
        self.life = Life(self.kernel, self.modules.host, self.listener)
        self.load = self.life.load
        self.start = self.life.start
        self.stop = self.life.stop

    def _make_fleet(self) -> None:
        """The engine, who talks to the nodes, and who hears what modules say."""
        store = self.store
        decide = self.features.decisions
        self.engine = Engine(store, self.modules.effects, self.clock, gate=lambda: decide.gate)
        self.sync = Sync(
            store,
            self.heads,
            self.engine,
            self.settings.sync,
            self.settings.addresses,
            self.table,
            self.clock,
            decide.lost,
            decide.node_spoke,
        )
        self.listener = ModuleListener(
            store, self.table, self.engine, self.sync, self.joining, self.modules, decide.claimed
        )
        self.desire = DesiredState(store, self.engine, self.database, self.table, decide.image)
        self.membership = Membership(
            store, self.table, self.modules, self.joining, self.sync, self.features
        )

    def _make_kernel(self) -> Kernel:
        return Kernel(
            self.data_dir,
            self.settings,
            section_reader(self.settings),
            self.clock,
            self.store,
            self.table,
            self.engine,
            self.database,
            self.desire,
            self.sync,
            self.joining,
            NodeRequests(self.store, self.sync),
            NodeLink(self.authority, self.heads, self.clock),
            self.authority,
            self.heads,
            self.vault,
            self.modules,
            self.listener.manual_power,
            PowerOrders(self.store, self.engine, self.desire, self.sync, self.clock),
            self.membership,
            self.features,
            self.site,
        )

    def part(self, kind: type[Part]) -> Part:
        """The object of a feature, by its class. Raises DeclarationError."""
        return self.kernel.part(kind)

    def api(self, *inherited: socket) -> Api:
        """What serves people and nodes; `inherited` are listening sockets that it serves, too."""
        return make_api(self.settings, self.kernel, self.nodes, inherited)
