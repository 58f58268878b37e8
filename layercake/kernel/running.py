"""The features that run, as one: what the rest of the head calls, each of them does."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from aiohttp import web

from layercake.agents.https.routes import NodeRoute, OpenRoute
from layercake.agents.intake import Hears
from layercake.agents.joining import Claim
from layercake.api.access import Access
from layercake.api.route import Route, routes_of
from layercake.fleet.store import Record
from layercake.kernel.decisions import Decisions, hooks
from layercake.kernel.feature import Running
from layercake.kraken.events import EventKind


class RunningFeatures:
    """The parts that the head is made of are given this before any feature has begun; a feature is
    added once it was started. See Running for what each hook is."""

    def __init__(self) -> None:
        self._all: dict[str, Running] = {}
        self.decisions = Decisions(self._all)

    def add(self, name: str, running: Running) -> None:
        """Has a feature called from now on."""
        self._all[name] = running
        self.decisions.add(running)

    # ----- their life

    def prepare(self) -> None:
        """Has each read what the engine has to know first."""
        for running in self._all.values():
            running.prepare()

    def load(self) -> None:
        """Has each read what it keeps."""
        for running in self._all.values():
            running.load()

    def tick(self) -> None:
        """Twice a second."""
        for running in self._all.values():
            running.tick()

    def scans(self) -> list[Callable[[], None]]:
        """What is to be done once a second, piece by piece."""
        return [running.scan for running in self._all.values()]

    def loops(self) -> list[Coroutine[Any, Any, None]]:
        """The loops of all, to be run as tasks."""
        return [loop() for running in self._all.values() for loop in running.loops]

    async def stop(self) -> None:
        """Ends what they do, the last one first."""
        for running in reversed(self._all.values()):
            await running.stop()

    def forget(self, record: Record) -> None:
        """A node is about to be taken out of the store."""
        for running in self._all.values():
            running.forget(record)

    def removed(self, record: Record) -> None:
        """A node was taken out of the store."""
        for running in self._all.values():
            running.removed(record)

    # ----- what people and nodes see of them

    def routes(self) -> list[Route]:
        """What people may ask."""
        return [
            route
            for running in self._all.values()
            for handlers in running.routes
            for route in routes_of(handlers)
        ]

    @property
    def access(self) -> Access | None:
        """Who lets people in over the network; None: nobody does."""
        return next(hooks(self._all, lambda running: running.access), None)

    def node_routes(self) -> list[NodeRoute | OpenRoute]:
        """What nodes may ask."""
        return [route for running in self._all.values() for route in running.node_routes]

    def document(self, record: Record) -> dict[str, Any]:
        """What a node is told with its desired state."""
        document: dict[str, Any] = {}
        for part in hooks(self._all, lambda running: running.document):
            document |= part(record)
        return document

    def welcome(self, record: Record) -> dict[str, Any]:
        """What a node is told as it joins."""
        document: dict[str, Any] = {}
        for part in hooks(self._all, lambda running: running.welcome):
            document |= part(record)
        return document

    def hears(self) -> Mapping[EventKind, Hears]:
        """Who wants the data of which events of nodes."""
        return {
            kind: hears for running in self._all.values() for kind, hears in running.hears.items()
        }

    async def before(
        self, record: Record, claim: Claim, body: Mapping[str, Any]
    ) -> web.Response | None:
        """See JoinCheck: what the first feature answers that a joining node has yet to satisfy."""
        for check in hooks(self._all, lambda running: running.join_check):
            if (first := await check.before(record, claim, body)) is not None:
                return first
        return None

    def passed(self, record: Record, claim: Claim) -> bool:
        """See JoinCheck."""
        passed = [check.passed(record, claim) for check in hooks(self._all, lambda r: r.join_check)]
        return any(passed)
