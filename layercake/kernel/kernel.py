"""What features are made of: the fleet, the agents and the modules of a head, and the other
features by their classes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import web

from layercake.agents.https.requests import NodeRequests
from layercake.agents.https.routes import NodeRoute, OpenRoute
from layercake.agents.intake import Hears
from layercake.agents.joining import Claim, Joining
from layercake.agents.sync import Sync
from layercake.base.clock import Clock
from layercake.base.secrets import Vault
from layercake.fleet.desired import DesiredState
from layercake.fleet.engine import Engine
from layercake.fleet.networks import SiteNetworks
from layercake.fleet.persistence.database import Database
from layercake.fleet.store import Record, Store
from layercake.fleet.table import Table
from layercake.kernel.feature import Feature, Running, in_order
from layercake.kraken.errors import DeclarationError
from layercake.kraken.events import EventKind
from layercake.modules.calls import AskModule
from layercake.modules.notifier import ModuleNotifier

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class Kernel:
    """`section` gives the settings of a section of config.yaml, `serves` the head's address for a
    node by its id, as it stands before a port."""

    data_dir: Path
    section: Callable[[str], Any]
    serves: Callable[[str], str]
    clock: Clock
    store: Store
    table: Table
    engine: Engine
    database: Database
    desire: DesiredState
    sync: Sync
    joining: Joining
    requests: NodeRequests
    networks: SiteNetworks
    vault: Vault
    notifier: ModuleNotifier
    ask: AskModule
    _running: dict[str, Running] = field(default_factory=dict)
    _parts: dict[type, object] = field(default_factory=dict)

    def provide(self, part: object) -> None:
        """Lets features ask for an object that the head itself has made."""
        self._parts[type(part)] = part

    def start(self, features: Iterable[Feature]) -> None:
        """Makes the features, each after those that it needs. Raises DeclarationError."""
        for feature in in_order(features):
            running = feature.start(self)
            self._running[feature.name] = running
            self.provide(running.part)

    def part(self, kind: type[Part]) -> Part:
        """The object of a feature that runs, by its class. Raises DeclarationError."""
        part = self._parts.get(kind)
        if not isinstance(part, kind):
            raise DeclarationError(f"cannot start the head: nothing provides {kind.__name__}")
        return part

    def touch(self, record: Record) -> None:
        """What a node is told has changed, beside what is wanted of it: it is told anew."""
        record.cfg_revision += 1
        self.store.mark(record)
        self.sync.push(record)

    # ----- what all of them do

    def load(self) -> None:
        """Has each feature read what it keeps."""
        for running in self._running.values():
            running.load()

    def tick(self) -> None:
        """Has each feature look after what goes with the time."""
        for running in self._running.values():
            running.tick()

    def loops(self) -> list[Coroutine[Any, Any, None]]:
        """The loops of all features, to be run as tasks."""
        return [loop() for running in self._running.values() for loop in running.loops]

    async def stop(self) -> None:
        """Ends what features do, the last one first."""
        for running in reversed(self._running.values()):
            await running.stop()

    def forget(self, record: Record) -> None:
        """A node is about to be taken out of the store."""
        for running in self._running.values():
            running.forget(record)

    def removed(self, record: Record) -> None:
        """A node was taken out of the store."""
        for running in self._running.values():
            running.removed(record)

    # ----- what nodes see of them

    def node_routes(self) -> list[NodeRoute | OpenRoute]:
        """What nodes may ask of features."""
        return [route for running in self._running.values() for route in running.node_routes]

    def document(self, record: Record) -> dict[str, Any]:
        """What features have a node told with its desired state."""
        document: dict[str, Any] = {}
        for running in self._running.values():
            if running.document is not None:
                document |= running.document(record)
        return document

    def hears(self) -> Mapping[EventKind, Hears]:
        """Who wants the data of which events of nodes."""
        return {
            kind: hears
            for running in self._running.values()
            for kind, hears in running.hears.items()
        }

    def guard_secrets(self, record: Record, what: str) -> None:
        """Raises Refused for a node that is not to be handed the secrets that `what` names."""
        for running in self._running.values():
            if running.guard_secrets is not None:
                running.guard_secrets(record, what)

    async def before(
        self, record: Record, claim: Claim, body: Mapping[str, Any]
    ) -> web.Response | None:
        """See JoinCheck: what the first feature answers that a joining node has yet to satisfy."""
        for running in self._running.values():
            check = running.join_check
            if check is not None and (first := await check.before(record, claim, body)) is not None:
                return first
        return None

    def passed(self, record: Record, claim: Claim) -> bool:
        """See JoinCheck."""
        checks = [r.join_check for r in self._running.values() if r.join_check is not None]
        passed = [check.passed(record, claim) for check in checks]
        return any(passed)
