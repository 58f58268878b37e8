"""The head: everything is wired together here, and here only."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import json
import logging
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from imageapi.store.rbdstore import Cluster, RbdContent
from imageapi.store.store import ImageStore
from layercake.base.clock import Clock, steady_clock
from layercake.head import modules
from layercake.head.agents.certificates import NodeCertificates
from layercake.head.agents.client import NodeLink
from layercake.head.agents.joining import Joining
from layercake.head.agents.server import NodeApi
from layercake.head.agents.sync import Sync
from layercake.head.hosting.dispatch import Dispatcher
from layercake.head.hosting.host import ModuleHost
from layercake.head.hosting.manager import ServiceManager
from layercake.head.rolls.manager import Rolls
from layercake.head.rolls.slurm import Scontrol, Slurm
from layercake.head.settings import ImageSettings, Settings
from layercake.head.state.database import Database
from layercake.head.state.engine import Engine
from layercake.head.state.store import Record, Store
from layercake.inventory.schema import Node
from layercake.inventory.secrets import resolve
from layercake.kraken.converge import Discovered, Failed, Held, NodeState, Progress
from layercake.kraken.errors import LayercakeError
from layercake.kraken.planner import Planner
from layercake.moduleapi import module_pb2 as pb

log = logging.getLogger("layercake.head")
FLUSH_S = 0.5
SCAN_S = 1.0
GARBAGE = (10_000, 20, 100)
"""When Python looks for garbage. Records live long and hold no cycles; a search through those of ten thousand nodes is felt."""
THREAD_S = 0.0005
"""How long the database's thread may hold the interpreter while the loop has something to do; Python's own 5 ms are felt."""
_BOOT_STEPS = ("boot.discover-seen", "boot.nbp-sent", "boot.script-sent", "boot.kernel-sent", "boot.initrd-sent")
_STEP_EXTENDS_S = 60.0  # a boot that gets on is given this long from its last step


class Head:
    """The parts of the head, and what they tell each other. It is the Hands of the engine and the Listener of the services."""

    def __init__(self, data_dir: Path, settings: Settings, clock: Clock | None = None) -> None:
        self.data_dir = data_dir
        self.settings = settings
        self.clock = clock or steady_clock()
        self.started = time.monotonic()
        self.store = Store(self.clock)
        self.images = open_store(data_dir / "images", settings.images)
        self._planners: dict[float, Planner] = {}
        socket_path = data_dir / "modules.sock"
        self.host = ModuleHost(socket_path, self)
        self.joining = Joining(self.store, self.clock)
        self.engine = Engine(self.store, self, self.clock)
        self.sync = Sync(self.store, self.engine, settings, self.clock, self.lost)
        self.database = Database(data_dir / "layercake.db")
        self.rolls = Rolls(self.store, self.engine, self.sync, self.database, self.clock)
        self.dispatcher = Dispatcher(self.host, self.joining, modules.OWNER)
        certificates = NodeCertificates(data_dir / "pki")
        self.node_link = NodeLink(certificates)
        self.nodes = NodeApi(self.store, self.engine, self.joining, self.sync, self.database, settings, self.images, certificates)
        self.services = ServiceManager(self.host, socket_path, data_dir / "log", {
            "pxe": settings.for_pxe(data_dir), "powerman": settings.for_powerman(), "imageapi": settings.for_imageapi(data_dir),
        })
        self._tasks: list[asyncio.Task[None]] = []

    # -- life

    async def start(self) -> None:
        """Loads the state, opens the sockets, starts the services and the loops."""
        sys.setswitchinterval(THREAD_S)
        self.load()
        gc.freeze()
        gc.set_threshold(*GARBAGE)
        self.sync.open()
        await self.host.start()
        self.services.start()
        self._tasks = [asyncio.create_task(loop) for loop in (self.engine.run(), self._every(), self.rolls.run())]
        if self.settings.images.store != "file":
            self._tasks.append(asyncio.create_task(self._check_images()))
        slurm = self.settings.slurm
        if slurm.conf and slurm.drain:
            gate = Slurm(Scontrol(slurm.conf), self.rolls.all, self.rolls.look, self._slurm_event)
            self.rolls.gate = gate
            self._tasks.append(asyncio.create_task(gate.run(slurm.poll_s)))
        self.store.event(None, "head.started", f"the head has started with {len(self.store)} nodes")

    async def _check_images(self) -> None:
        """Says whether the image store works. The head goes on without: what nodes run needs no store."""
        try:
            self.store.event(None, "images.ready", await asyncio.to_thread(self.images.check))
        except LayercakeError as error:
            self.store.event(None, "images.unwell", str(error), severity="error")

    def _slurm_event(self, key: str, kind: str, text: str, severity: str) -> None:
        self.store.event(self.store.find(key) if key else None, kind, text, severity=severity)

    async def stop(self) -> None:
        """Stops everything and writes what is left. No node is touched."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.store.event(None, "head.stopped", "the head is stopping")
        await self.host.stop()
        await self.services.stop()
        self.sync.close()
        await self.database.close(self.store)

    def load(self) -> None:
        """Reads the database. What was discovered before is only a hint now: a node that was in sync is held for as long as its
        agent may need to come back, so that a restart of the head touches no healthy node."""
        was = self.database.load(self.store, self.planner_for)
        grace = self.clock() + self.settings.sync.dead_s + self.settings.sync.hello_s
        for record in self.store:
            record.machine = dataclasses.replace(record.machine.resumed(self.clock()), state=0, assumed=0)
            if was[record.node.id].get("run") in ("SYNC", "INIT"):
                self.engine.post(record, Held(grace))
        self.rolls.load()

    def planner_for(self, node: Node) -> Planner:
        """The planner for a node; nodes alike share one."""
        planner = self._planners.get(node.boot_timeout)
        if planner is None:
            mutations = modules.configured(node.boot_timeout, self.settings.boot.attempts)
            planner = self._planners[node.boot_timeout] = Planner(mutations, modules.VARIABLES)
        return planner

    def default_planner(self) -> Planner:
        """The planner of a node with nothing special about it, for drawing the graph."""
        return next(iter(self._planners.values()), None) or Planner(modules.MUTATIONS, modules.VARIABLES)

    def add(self, node: Node) -> Record:
        """Takes a new node in."""
        planner = self.planner_for(node)
        return self.store.add(node, planner, NodeState.fresh(planner.layout.goal({})))

    async def _every(self) -> None:
        last_scan = time.monotonic()
        while True:
            await asyncio.sleep(FLUSH_S)
            try:
                if time.monotonic() - last_scan >= SCAN_S:
                    last_scan = time.monotonic()
                    self.sync.scan()
                self.rolls.tick()
                await self.database.flush(self.store)
            except LayercakeError as error:
                log.error("%s", error)
            except Exception:  # the loop outlives a bug in handling one node
                log.exception("a periodic task failed")

    # -- Hands of the engine

    def begin(self, record: Record, mutation: str, attempt: int, timeout: float) -> None:
        """Begins an attempt."""
        self.dispatcher.start(record, mutation, attempt, timeout)

    def cancel(self, record: Record, mutation: str) -> None:
        """Ends an attempt."""
        self.dispatcher.cancel(record, mutation)

    def changed(self, record: Record, before: int) -> None:
        """Tells the services a node's new discovered state. What the node alone is concerned with is not their business."""
        layout = record.planner.layout
        if not (record.machine.state ^ before) & ~(layout.mask("image") | layout.mask("busy")):
            return
        message = pb.NodeState(node=record.node.id, values=record.values())
        for service in ("pxe", "powerman"):
            self.host.send(service, pb.FromHead(node_state=message))

    # -- Listener of the services

    def attached(self, service: str) -> None:
        """A service gets the nodes, their states and the attempts that are under way."""
        for record in self.store:
            self.send_node(service, record)
            self.host.send(service, pb.FromHead(node_state=pb.NodeState(node=record.node.id, values=record.values())))
            self.dispatcher.resend(record, service)

    def detached(self, service: str) -> None:
        """A service went away; the service manager starts it again."""
        self.store.event(None, "service.detached", f"service {service} went away", severity="warning", data={"service": service})

    def discovered(self, service: str, node: str, values: Mapping[str, str], why: str) -> None:
        """A service found something out. A BMC that says OFF of a node that speaks is not believed before the node was asked."""
        record = self.store.find(node)
        if record is None:
            return
        if values.get("power") == "OFF" and record.value("run") == "SYNC" and record.machine.active is None:
            self.sync.suspect(record, "its BMC says that it is off")
            return
        self.engine.discover(record, values, why)

    def event(self, service: str, node: str, kind: str, severity: str, text: str, data: Mapping[str, Any]) -> None:
        """A service adds to a node's history."""
        record = self.store.find(node) if node else None
        self.store.event(record, kind, text, severity=severity, data=data)
        if record is None:
            return
        if kind == "boot.unwanted":
            self.sync.suspect(record, "its firmware asked for a boot program")
        elif kind in _BOOT_STEPS and record.machine.active is not None and record.machine.active.mutation == "boot-wait":
            self.engine.post(record, Progress("boot-wait", self.clock() + _STEP_EXTENDS_S))

    def result(self, number: int, ok: bool, error: str, hint: str, values: Mapping[str, str]) -> None:
        """An attempt ended in a service."""
        flight = self.dispatcher.finished(number)
        record = self.store.find(flight.node) if flight is not None else None
        if flight is None or record is None:
            return
        if not ok:
            text = f"{error} (hint: {hint})" if hint else error
            self.engine.post(record, Failed(flight.mutation, flight.attempt, text))
        elif values:
            self.engine.post(record, Discovered(values, f"{flight.mutation} says so"))

    def health(self, service: str, text: str) -> None:
        """A service says how it is."""
        self.services.set_health(service, text)
        good = text == "running"
        kind = "service.running" if good else "service.unwell"
        self.store.event(None, kind, f"service {service}: {text}", severity="info" if good else "error", data={"service": service})

    # -- what the parts above ask of each other

    def send_node(self, service: str, record: Record) -> None:
        """Sends a service its part of a node's record."""
        if service == "imageapi":
            return
        part = self._power_part(record) if service == "powerman" else _boot_part(record.node)
        self.host.send(service, pb.FromHead(node_changed=pb.NodeChanged(node=record.node.id, json=json.dumps(part).encode())))

    def _power_part(self, record: Record) -> dict[str, Any]:
        node, bmc = record.node, record.node.bmc
        if bmc is None:
            return {"name": node.name, "bmc": None, "firmware": node.firmware}
        part = bmc.to_record()
        part["password"] = ""
        if bmc.password is not None:
            try:
                part["password"] = resolve(bmc.password).reveal()
            except LayercakeError as error:
                self.store.event(record, "power.secret-unreadable", str(error), severity="error")
        return {"name": node.name, "bmc": part, "firmware": node.firmware}

    def forget(self, record: Record) -> None:
        """Takes a node out."""
        if record.machine.active is not None:
            self.dispatcher.cancel(record, record.machine.active.mutation)
        self.joining.close(record)
        self.sync.forget(record)
        self.store.remove(record)
        for service in ("pxe", "powerman"):
            self.host.send(service, pb.FromHead(node_removed=pb.NodeRemoved(node=record.node.id)))

    def lost(self, record: Record, why: str) -> None:
        """A node fell silent: the BMC is asked at once; one whose firmware asks for a boot program hangs by our lights."""
        if "boot program" in why:
            self.engine.post(record, Discovered({"power": "HANG"}, why))
            return
        task = asyncio.get_running_loop().create_task(self._refresh(record))
        self._tasks.append(task)
        task.add_done_callback(self._tasks.remove)

    async def _refresh(self, record: Record) -> None:
        with contextlib.suppress(LayercakeError):  # powerman records an unreachable BMC itself
            await self.host.call("powerman", "refresh", {"node": record.node.id})


def open_store(directory: Path, settings: ImageSettings) -> ImageStore:
    """The image store that the settings ask for. Nothing outside is asked yet."""
    if settings.store == "file":
        return ImageStore(directory)
    cluster = Cluster(settings.conf, settings.keyring, settings.pool, settings.user, settings.node_keyring)
    return ImageStore(directory, content=RbdContent(directory, cluster))


def _boot_part(node: Node) -> dict[str, Any]:
    return {
        "name": node.name, "macs": list(node.macs), "ip": node.ip, "arch": node.arch, "firmware": node.firmware,
        "kernel_args": node.kernel_args, "console": node.console,
    }
