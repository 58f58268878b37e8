"""The head: its parts are made and wired together here, and here only; features bring the rest."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from socket import socket
from typing import TypeVar

from layercake.agents.client import NodeLink
from layercake.agents.https.requests import NodeRequests
from layercake.agents.joining import Joining
from layercake.agents.orders import PowerOrders
from layercake.agents.pki import Authority
from layercake.agents.sync import Sync
from layercake.api.access import NoAccess
from layercake.api.server import Api
from layercake.base.clock import Clock, steady_clock
from layercake.base.secrets import Vault
from layercake.fleet.desired import DesiredState
from layercake.fleet.engine import Engine
from layercake.fleet.networks import SiteNetworks
from layercake.fleet.persistence.database import Database
from layercake.fleet.store import Record, Store
from layercake.head.features import FEATURES
from layercake.head.life import Life
from layercake.head.loading import load_modules, section
from layercake.head.settings import Settings
from layercake.kernel.feature import Feature
from layercake.kernel.kernel import Kernel
from layercake.kernel.lag import Lag
from layercake.kernel.membership import Membership
from layercake.kernel.node_door import NodeDoor
from layercake.kernel.running import RunningFeatures
from layercake.kraken.converge import Barred, Discovered
from layercake.moduleapi.network import facing
from layercake.modules.boot_timeouts import BootTimeouts
from layercake.modules.calls import ModuleCalls
from layercake.modules.dispatch import Dispatcher
from layercake.modules.effect_runner import EffectRunner
from layercake.modules.host import ModuleHost
from layercake.modules.listener import ModuleListener
from layercake.modules.manager import ServiceManager
from layercake.modules.manual_power import ManualPower
from layercake.modules.notifier import ModuleNotifier

Part = TypeVar("Part")


class Head:
    """The parts of the head. `environ` is where {env: NAME} of the inventory is looked up."""

    def __init__(
        self,
        data_dir: Path,
        settings: Settings,
        clock: Clock | None = None,
        environ: Mapping[str, str] | None = None,
        features: Sequence[Feature] = FEATURES,
    ) -> None:
        self.data_dir = data_dir
        self.settings = settings
        self.clock = clock or steady_clock()
        self.features = RunningFeatures()
        self.store = Store(self.clock, wall=clock or time.time)
        self.database = Database(data_dir / "layercake.db", self.clock)
        self.authority = Authority(data_dir / "pki")
        self.networks = SiteNetworks()
        self.vault = Vault(
            settings.secrets_in(data_dir), os.environ if environ is None else environ
        )
        self.joining = Joining(
            self.store, self.clock, lambda record: self.sync.end(record), self._bar
        )
        self._make_modules()
        self._make_fleet()
        self.kernel = self._make_kernel()
        self.kernel.start(features)
        self.nodes = NodeDoor(self.kernel)
        self.life = Life(self.kernel, self.host, self.listener)
        self.load = self.life.load
        self.start = self.life.start
        self.stop = self.life.stop

    def _make_modules(self) -> None:
        """The modules' processes, and who talks to them."""
        self.table, launches = load_modules(self.data_dir, self.settings)
        socket_path = self.data_dir / "modules.sock"
        self.host = ModuleHost(socket_path)
        self.services = ServiceManager(self.host, socket_path, self.data_dir / "log", launches)
        self.ask = ModuleCalls(self.table, self.host).call
        self.notifier = ModuleNotifier(
            self.store,
            self.table,
            self.host,
            self.features.decisions.boot_set,
            self.vault,
            self.settings.site(self.data_dir),
            self.networks,
            self.features.decisions.boot_sets_of_strangers,
        )
        self.boot_timeouts = BootTimeouts(
            self.store, lambda record, event: self.engine.post(record, event), self.clock
        )
        self.dispatcher = Dispatcher(self.host, self.joining, self.table, self.boot_timeouts)
        self.effects = EffectRunner(
            self.dispatcher, self.notifier, self.joining, self.boot_timeouts
        )

    def _make_fleet(self) -> None:
        """The engine and who talks to the nodes."""
        store, features = self.store, self.features
        self.engine = Engine(store, self.effects, self.clock, gate=lambda: features.decisions.gate)
        self.sync = Sync(
            store,
            self.engine,
            self.settings.sync,
            self.settings.addresses,
            self.table,
            self.clock,
            features.decisions.lost,
            features.decisions.heard,
        )
        self.manual_power = ManualPower(store, self.engine, self.sync)
        self.listener = ModuleListener(
            store,
            self.table,
            self.engine,
            self.sync,
            self.dispatcher,
            self.notifier,
            self.joining,
            self.manual_power,
            self.boot_timeouts,
            self.services.set_health,
            features.decisions.claimed,
        )
        self.desire = DesiredState(
            store, self.engine, self.database, self.table, features.decisions.image
        )
        self.membership = Membership(
            store,
            self.table,
            self.effects,
            self.joining,
            self.sync,
            self.boot_timeouts,
            self.notifier,
            features,
        )

    def _make_kernel(self) -> Kernel:
        return Kernel(
            self.data_dir,
            self.settings,
            partial(section, self.settings),
            self._serves,
            self.clock,
            self.store,
            self.table,
            self.engine,
            self.database,
            self.desire,
            self.sync,
            self.joining,
            NodeRequests(self.store, self.sync),
            NodeLink(self.authority),
            self.authority,
            self.networks,
            self.vault,
            self.services,
            self.notifier,
            self.boot_timeouts,
            self.manual_power,
            self.ask,
            PowerOrders(self.store, self.engine, self.desire, self.sync, self.clock),
            self.membership,
            Lag(),
            self.features,
        )

    def part(self, kind: type[Part]) -> Part:
        """The object of a feature, by its class. Raises DeclarationError."""
        return self.kernel.part(kind)

    def api(self, *inherited: socket) -> Api:
        """What serves people and nodes; `inherited` are listening sockets that it serves, too."""
        access = self.features.access or NoAccess()
        routes = self.features.routes()
        return Api(self.settings, self.store, self.authority, access, routes, self.nodes, inherited)

    def _serves(self, node: str) -> str:
        """The head's address that a node uses, as it stands before a port, by the node's id."""
        record = self.store.find(node)
        network = None if record is None else self.networks.of(record.node)
        return facing(self.settings.heads, network).host

    def _bar(self, record: Record, why: str) -> None:
        """Whatever runs on a node is started anew once a person has looked, and not before."""
        self.engine.post(record, Barred(why))
        self.engine.post(record, Discovered({"power": "HANG"}, why))
