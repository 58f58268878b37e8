"""The head: everything is wired together here, and here only."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import time
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from imageapi.store.open import open_store
from imageapi.store.tickets import Tickets as ImageTickets
from layercake.agents.client import NodeLink
from layercake.agents.https.api import NodeApi
from layercake.agents.https.authentication import SessionAuthenticator
from layercake.agents.https.document import DesiredDocument
from layercake.agents.https.join import JoinApi
from layercake.agents.https.requests import NodeRequests
from layercake.agents.intake import NodeEventIntake
from layercake.agents.joining import Joining
from layercake.agents.pki import Authority
from layercake.agents.sync import Sync
from layercake.base import process
from layercake.base.clock import Clock, steady_clock
from layercake.base.secrets import Vault
from layercake.features.access import tokens
from layercake.features.access.audit import Audit
from layercake.features.access.people import People
from layercake.features.access.sessions import Sessions
from layercake.features.boots.boot_sets import BootSets
from layercake.features.boots.node_routes import BootSetRequests
from layercake.features.boots.watch import BootSetWatch
from layercake.features.disks.node_disks import NodeDisks
from layercake.features.files.node_files import NodeFiles
from layercake.features.guard.guard import Guard
from layercake.features.guard.lost_nodes import LostNodes, power_of
from layercake.features.guard.witness import Witnesses
from layercake.features.images.document import ImageAddresses, ImagesDocument
from layercake.features.images.node_keys import NodeKeyring
from layercake.features.images.node_routes import ImageSecretRequests
from layercake.features.machines.manager import Machines
from layercake.features.nodes.lists.facts import Unmet
from layercake.features.nodes.lists.listing import Listing
from layercake.features.nodes.lists.metrics import Tally
from layercake.features.nodes.queries import NodeQueries
from layercake.features.releases.manager import ReleaseManager
from layercake.features.releases.means import HeadNodeActions
from layercake.features.releases.table import Releases
from layercake.features.rolls import subjects
from layercake.features.rolls.facts import Kind, Roll
from layercake.features.rolls.manager import Rolls
from layercake.features.rolls.slurm import Scontrol, Slurm
from layercake.features.thermal.manager import ThermalManager
from layercake.features.tpm.manager import Tpms
from layercake.features.webhooks.sender import Webhooks
from layercake.fleet import events
from layercake.fleet.desired import DesiredState
from layercake.fleet.engine import Engine
from layercake.fleet.guard_state import Order
from layercake.fleet.networks import DOCUMENTS as NETWORKS
from layercake.fleet.networks import SiteNetworks
from layercake.fleet.persistence.database import Database
from layercake.fleet.store import Record, Store, WantedImage
from layercake.fleet.transaction import Transaction
from layercake.head.features import FEATURES
from layercake.head.loading import load_modules, section
from layercake.head.reading import Readers
from layercake.head.settings import Settings
from layercake.inventory.schema import Node
from layercake.kernel.kernel import Kernel
from layercake.kernel.lag import Lag
from layercake.kraken.converge import Barred, Cleared, Discovered, NodeState
from layercake.kraken.errors import LayercakeError
from layercake.kraken.events import EventKind
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
from minos.build.sets import MODULES

log = logging.getLogger("layercake.head")
LOOK_S = 0.5
SCAN_S = 1.0
THREAD_S = 0.0005
"""How long the database's thread may hold the interpreter while the loop has something to do;
Python's own 5 ms are felt."""
SIGNING = "signing/begun"
"""The document that says: from here on images and boot sets are signed as they are taken in, and
only then."""
NOT_WHILE_HELD = ("disks", "uinit")
"""What a node is not told of while it is being released (minos.disks, minos.tasks)."""


class Head:
    """The parts of the head. `table` is what its modules declare; `environ` is where {env: NAME} of
    the inventory is looked up."""

    def __init__(
        self,
        data_dir: Path,
        settings: Settings,
        clock: Clock | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.data_dir = data_dir
        self.settings = settings
        self.clock = clock or steady_clock()
        self.started = time.monotonic()
        self.table, launches = load_modules(data_dir, settings)
        self.store = Store(self.clock, wall=clock or time.time)
        self.images = open_store(data_dir / "images", section(settings, "images"))
        socket_path = data_dir / "modules.sock"
        self.host = ModuleHost(socket_path)
        self.services = ServiceManager(self.host, socket_path, data_dir / "log", launches)
        self.ask = ModuleCalls(self.table, self.host).call
        self.joining = Joining(
            self.store, self.clock, lambda record: self.sync.end(record), self._barred
        )
        self.authority = Authority(data_dir / "pki")
        self.boots = BootSets(data_dir / "boot", self.authority.sign, self.images.signer)
        self.vault = Vault(
            settings.secrets_in(data_dir), os.environ if environ is None else environ
        )
        self.networks = SiteNetworks()
        self.notifier = ModuleNotifier(
            self.store,
            self.table,
            self.host,
            lambda r: self.boots.served(r.boots, r.node.profile, r.node.arch),
            self.vault,
            settings.site(data_dir),
            self.networks,
            self.boots.of_strangers,
        )
        self.patience = BootTimeouts(
            self.store, lambda record, event: self.engine.post(record, event), self.clock
        )
        self._dispatcher = Dispatcher(self.host, self.joining, self.table, self.patience)
        self.effects = EffectRunner(self._dispatcher, self.notifier, self.joining, self.patience)
        self.engine = Engine(self.store, self.effects, self.clock)
        self.node_link = NodeLink(self.authority)
        self.guard = self.engine.gate = Guard(
            self.store,
            self.engine,
            settings.guard,
            Witnesses(self.node_link, partial(power_of, self.ask)),
            self,
            self.clock,
        )
        self.sync = Sync(
            self.store,
            self.engine,
            settings.sync,
            settings.addresses,
            self.table,
            self.clock,
            lambda record, loss, why: self.lost_nodes.report(record, loss, why),
            self.guard.node_spoke,
        )
        self.attended = ManualPower(self.store, self.engine, self.sync)
        self.lost_nodes = LostNodes(self.engine, self.guard, self.attended, self.ask)
        self.boot_set_watch = BootSetWatch(self.store, self.boots, self.notifier)
        self.listener = ModuleListener(
            self.store,
            self.table,
            self.engine,
            self.sync,
            self._dispatcher,
            self.notifier,
            self.joining,
            self.attended,
            self.patience,
            self.services.set_health,
        )
        self.tally = Tally(self.store, {m.name for m in self.table.mutations})
        self.unmet = Unmet(self.store, self.clock, self.tally.converged.add)
        self.queries = NodeQueries(self.store, self.table, self.clock, self.unmet, self.guard.why)
        self.database = Database(data_dir / "layercake.db", self.clock)
        self.lag = Lag()
        self.tokens = tokens.Tokens(self.store.wall)
        self.people = People(settings.oidc, self.clock, self.store.wall)
        self.sessions = Sessions(self.store.wall)
        self.audit = Audit(self.database, self.store, self.clock, settings.audit.days)
        self.desire = DesiredState(self.store, self.engine, self.database, self.table, self._image)
        self.rolls = Rolls(
            self.store,
            self.desire,
            self.sync,
            self.database,
            self.clock,
            {
                Kind.IMAGES: subjects.Images(self.desire),
                Kind.AGENT: subjects.Agents(),
                Kind.BOOT: subjects.BootSets(
                    self.desire, self.clock, self.notifier.changed, self.patience.takes_s
                ),
            },
        )
        self.guard.written = lambda node: self.database.written(self.store, node)
        self.rolls.stopped = lambda record: (
            self.guard.stopped(record) or self.machines.held(record) or self.table.held(record)
        )
        self.requests = NodeRequests(self.store, self.sync)
        self.addresses = ImageAddresses(
            self._serves, section(settings, "images").http_port, ImageTickets(self.images.directory)
        )
        self._heads = settings.heads
        self.kernel = Kernel(
            data_dir,
            partial(section, settings),
            self._serves,
            self.clock,
            self.store,
            self.table,
            self.engine,
            self.database,
            self.desire,
            self.sync,
            self.joining,
            self.requests,
            self.networks,
            self.vault,
            self.notifier,
            self.ask,
        )
        for part in (self.boots, self.guard, self.addresses):
            self.kernel.provide(part)
        self.kernel.start(FEATURES)
        self.machines = self.kernel.part(Machines)
        self.files = self.kernel.part(NodeFiles)
        self.disks = self.kernel.part(NodeDisks)
        self.tpms = self.kernel.part(Tpms)
        self.thermal = self.kernel.part(ThermalManager)
        self.listener.claimed = self.machines.replacing.asked
        self.intake = NodeEventIntake(self.store, self.kernel.hears())
        self.document = self._desired_document()
        self.nodes = self._node_api()
        self.releases = ReleaseManager(
            self.store,
            self.desire,
            Releases(self.database, self.store),
            HeadNodeActions(
                self.store,
                self.desire,
                self.requests,
                self.sync,
                self.joining,
                self.files.keys,
                self.disks,
                self.machines,
                self.vault,
                self.table,
                self.order,
                self.ask,
                self.notifier.changed,
            ),
            self.clock,
        )
        self.node_keys = NodeKeyring(self.store, self.images, self.sync)
        self.readers = Readers()
        self._tasks: list[asyncio.Task[None]] = []

    def listing(self) -> Listing:
        """Lists of the nodes, and what is new in them."""
        return Listing(self.store, self.table, self.clock, self.guard.why, self.patience)

    def _desired_document(self) -> DesiredDocument:
        """What nodes are told: of each part that has something to say."""
        address = self.addresses.address

        def kernel_modules(record: Record) -> dict[str, Any] | None:
            """The modules of the kernel that a node has booted; they lie where its images do."""
            name = record.boots.runs
            found = self.boots.part(name, MODULES) if name else None
            url = address(f"boot/{name}", record.node.id)
            return None if found is None else {**found, "url": url}

        def of_modules(record: Record) -> dict[str, Any]:
            """A node that is being released mounts nothing, and begins no task."""
            told = self.table.told_to(record.node)
            return told if record.held is None else _without(told, NOT_WHILE_HELD)

        def agent(record: Record) -> dict[str, Any]:
            order = self.boots.order(record.boots)
            return {} if order is None else {"agent": order}

        def trust(record: Record) -> dict[str, Any]:
            certificate = record.trust.certificate
            return {"trust": {"authorities": self.authority.mark, "certificate": certificate}}

        images = ImagesDocument(
            address, self.images.attachment, self.images.signature, kernel_modules
        )
        return DesiredDocument(
            (of_modules, self.kernel.document, images.of, self.requests.document, agent, trust)
        )

    def _node_api(self) -> NodeApi:
        """The routes of nodes, of each part that has some."""
        join = JoinApi(
            self.store,
            self.desire,
            self.joining,
            self.sync,
            self.table,
            self.authority,
            self.document,
            self.kernel,
            self._serves,
            (lambda record: {"image_key": self.images.signer.public},),
        )
        secrets = ImageSecretRequests(
            self.store, self.images, self.vault, self.document, self.kernel.guard_secrets
        )
        more_drivers = self.settings.more_drivers
        routes = (
            *join.routes(),
            *secrets.routes(),
            *BootSetRequests(self.boots, more_drivers=more_drivers).routes(),
            *self.kernel.node_routes(),
        )
        authenticator = SessionAuthenticator(self.store)
        return NodeApi(authenticator, self.document, self.requests, self.intake, self.sync, routes)

    def _serves(self, node: str) -> str:
        """The head's address that a node uses, as it stands before a port, by the node's id."""
        record = self.store.find(node)
        return facing(self._heads, None if record is None else self.networks.of(record.node)).host

    # -- life

    async def start(self) -> None:
        """Loads the state, opens the sockets, starts the modules' processes and the loops."""
        sys.setswitchinterval(THREAD_S)
        self.load()
        process.freeze_heap()
        self.sync.open()
        await self.host.start(self.listener)
        self.services.start()
        loops = (
            self.engine.run(),
            self._every(),
            self.database.run(self.store),
            self.boot_set_watch.run(),
            self.rolls.run(),
            self.lag.run(self.store),
            *self.kernel.loops(),
            process.gc_loop(),
        )
        self._tasks = [asyncio.create_task(loop) for loop in loops]
        self._tasks += Webhooks(
            self.settings.webhooks, self.store, self.vault, self.settings.address
        ).run(self.database)
        if section(self.settings, "images").store != "file":
            self._tasks += [
                asyncio.create_task(work) for work in (self._check_images(), self.node_keys.run())
            ]
        slurm = self.settings.slurm
        if slurm.conf and slurm.drain:
            gate = Slurm(
                Scontrol(slurm.conf),
                self._draining,
                self.rolls.touch,
                self._slurm_event,
                lambda: {r.name: r.node.id for r in self.store if r.care.maintenance is not None},
                self.thermal.heat,
            )
            self.rolls.gate = gate
            self._tasks.append(asyncio.create_task(gate.run(slurm.poll_s)))
        self.store.event(
            None, events.HEAD_STARTED, f"the head has started with {len(self.store)} nodes"
        )

    def _draining(self) -> list[Roll]:
        """The rolls that Slurm's nodes are drained for: an agent is replaced while jobs run."""
        return [roll for roll in self.rolls.all() if roll.kind is not Kind.AGENT]

    async def _check_images(self) -> None:
        """Says whether the image store works. The head goes on without: what nodes run needs no
        store."""
        try:
            self.store.event(None, events.IMAGES_READY, await asyncio.to_thread(self.images.check))
        except LayercakeError as error:
            self.store.event(None, events.IMAGES_UNWELL, str(error))

    def _slurm_event(self, key: str, kind: EventKind, text: str) -> None:
        self.store.event(self.store.find(key) if key else None, kind, text)

    async def stop(self) -> None:
        """Stops everything and writes what is left. No node is touched."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.releases.stop()
        await self.lost_nodes.stop()
        await self.guard.stop()
        self.store.event(None, events.HEAD_STOPPED, "the head is stopping")
        await self.kernel.stop()
        await self.readers.close()
        await self.host.stop()
        await self.services.stop()
        self.sync.close()
        await self.database.close(self.store)

    def load(self) -> None:
        """Reads the database. What was discovered before is only a hint now: a node that was in
        sync is held for as long as its agent may need to come back, so that a restart of the head
        touches no healthy node."""
        gc.disable()  # nothing of it is garbage, and to look for some took an eighth of the time
        try:
            self._load()
        finally:
            gc.enable()

    def _load(self) -> None:
        was = self.database.load(self.store, self.table)
        self.networks.load(self.database.documents(NETWORKS))
        self.releases.load()
        grace = self.clock() + self.settings.sync.dead_s + self.settings.sync.hello_s
        self.desire.resume(was, self.clock(), grace)
        self.boots.load(self.database.documents("boot/"))
        if not self.database.documents(
            SIGNING
        ):  # what was taken in before anything was signed; nothing is later
            self.images.sign_all(
                {i.digest: i.size for r in self.store for i in (*r.wanted, *r.stage)}
            )
            self.boots.sign_all()
            self.store.documents[SIGNING] = lambda: b"1"
        self.boot_set_watch.touched(self.boots.reread())
        self.tokens.load(self.database.documents(tokens.DOCUMENTS))
        self.tokens.adopt(self.data_dir / tokens.FILE_NAME, self.store.documents)
        self.kernel.load()
        self.guard.load(self.database.documents("guard/"), grace)
        self.rolls.load()

    async def _every(self) -> None:
        last_scan = time.monotonic()
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                if time.monotonic() - last_scan >= SCAN_S:
                    last_scan = time.monotonic()
                    for look in (
                        self.sync.scan,
                        self.guard.tick,
                        self.attended.tick,
                        self.patience.tick,
                        self.services.trim_logs,
                    ):
                        look()
                        await asyncio.sleep(0)
                self.rolls.tick()
                self.kernel.tick()
                self.releases.advance()
                self.store.count()
                self.database.health.check(self.store)
            except Exception:  # the loop outlives a bug in handling one node
                log.exception("a periodic task failed")

    # -- nodes that come and go

    def add(self, transaction: Transaction, node: Node) -> Record:
        """Takes a new node in."""
        planner = self.table.planner_for(node)
        record = self.store.make(node, planner, NodeState.fresh(planner.layout.goal({})))
        transaction.add(record)
        return record

    def forget(self, record: Record) -> None:
        """Takes a node out."""
        if record.machine.active is not None:
            self.effects.cancel(record, record.machine.active.mutation)
        self.joining.close(record)
        self.sync.forget(record)
        self.guard.forget(record)
        self.patience.forget(record)
        self.releases.removed(record)
        self.kernel.forget(record)
        self.store.remove(record)
        self.notifier.removed(record)
        self.kernel.removed(record)

    def _barred(self, record: Record, why: str) -> None:
        """Whatever runs on a node is started anew once a person has looked, and not before."""
        self.engine.post(record, Barred(why))
        self.engine.post(record, Discovered({"power": "HANG"}, why))

    # -- what the guard has done

    def want_again(self, record: Record) -> None:
        """What is ordered of a node's power has changed: its goal follows, and it is told."""
        self.desire.again(record)
        self.sync.push(record)

    def order(self, record: Record, order: Order) -> None:
        """Has the engine do what a person ordered of a node's power; the caller has it written.
        Earlier failures are forgotten."""
        record.care = msgspec.structs.replace(record.care, ours=True, order=order)
        self.engine.post(record, Cleared(f"{order.by} ordered {order.what}"))
        self.want_again(record)

    def take(self, record: Record, by: str) -> None:
        """A machine that was found running is ours from now on, and is started anew."""
        self.store.event(record, events.NODE_TAKEN, f"by {by}: it is started anew")
        self.order(record, Order("cycle", force=True, by=by, at=self.clock()))

    # -- what the parts ask of each other

    def _image(self, name: str) -> WantedImage:
        image = self.images.get(name)
        return WantedImage(image.name, image.digest, image.size, image.container.to_wire())


def _without(told: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    return {key: value for key, value in told.items() if key not in keys}
