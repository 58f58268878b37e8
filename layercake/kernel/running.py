"""The features that run, as one: what the rest of the head calls, each of them does."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from aiohttp import web

from layercake.agents.https.routes import NodeRoute, OpenRoute
from layercake.agents.intake import Hears
from layercake.agents.joining import Claim
from layercake.agents.sync import Loss
from layercake.api.access import Access
from layercake.api.route import Route, routes_of
from layercake.fleet.engine import Gate
from layercake.fleet.store import Record, WantedImage
from layercake.kernel.feature import Running
from layercake.kraken.errors import InputError, NotFound, Unreachable
from layercake.kraken.events import EventKind

Hook = TypeVar("Hook")


class RunningFeatures:
    """The parts that the head is made of are given this before any feature has begun; a feature is
    added once it was started. See Running for what each hook is."""

    def __init__(self) -> None:
        self._all: dict[str, Running] = {}

    def add(self, name: str, running: Running) -> None:
        """Has a feature called from now on."""
        self._all[name] = running

    def _hooks(self, of: Callable[[Running], Hook | None]) -> Iterator[Hook]:
        """The hooks of one kind, of those that have it."""
        for running in self._all.values():
            if (hook := of(running)) is not None:
                yield hook

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
        return next(self._hooks(lambda running: running.access), None)

    def node_routes(self) -> list[NodeRoute | OpenRoute]:
        """What nodes may ask."""
        return [route for running in self._all.values() for route in running.node_routes]

    def document(self, record: Record) -> dict[str, Any]:
        """What a node is told with its desired state."""
        document: dict[str, Any] = {}
        for part in self._hooks(lambda running: running.document):
            document |= part(record)
        return document

    def welcome(self, record: Record) -> dict[str, Any]:
        """What a node is told as it joins."""
        document: dict[str, Any] = {}
        for part in self._hooks(lambda running: running.welcome):
            document |= part(record)
        return document

    def hears(self) -> Mapping[EventKind, Hears]:
        """Who wants the data of which events of nodes."""
        return {
            kind: hears for running in self._all.values() for kind, hears in running.hears.items()
        }

    def guard_secrets(self, record: Record, what: str) -> None:
        """Raises Refused for a node that is not to be handed the secrets that `what` names."""
        for guard in self._hooks(lambda running: running.guard_secrets):
            guard(record, what)

    async def before(
        self, record: Record, claim: Claim, body: Mapping[str, Any]
    ) -> web.Response | None:
        """See JoinCheck: what the first feature answers that a joining node has yet to satisfy."""
        for check in self._hooks(lambda running: running.join_check):
            if (first := await check.before(record, claim, body)) is not None:
                return first
        return None

    def passed(self, record: Record, claim: Claim) -> bool:
        """See JoinCheck."""
        passed = [check.passed(record, claim) for check in self._hooks(lambda r: r.join_check)]
        return any(passed)

    def troubles(self, record: Record) -> dict[str, list[str]]:
        """What is wrong with a node, for people, by what."""
        return {
            what: of(record)
            for running in self._all.values()
            for what, of in running.troubles.items()
        }

    # ----- what they decide for the engine and the modules

    @property
    def gate(self) -> Gate | None:
        """Who says when a step may begin; None: nobody has it wait."""
        return next(self._hooks(lambda running: running.gate), None)

    def stopped(self, record: Record) -> str:
        """Why nothing may be begun on a node, "" if something may."""
        return next((why for of in self._hooks(lambda r: r.stopped) if (why := of(record))), "")

    def stops_changed(self, nodes: Iterable[str]) -> None:
        """Of these nodes, by their ids, `stopped` may have another answer now."""
        for hook in self._hooks(lambda running: running.stops_changed):
            hook(nodes)

    def heard(self, record: Record, how: str) -> None:
        """A node speaks."""
        for hook in self._hooks(lambda running: running.heard):
            hook(record, how)

    def lost(self, record: Record, loss: Loss, why: str) -> None:
        """A node fell silent."""
        for hook in self._hooks(lambda running: running.lost):
            hook(record, loss, why)

    def claimed(self, record: Record, data: Mapping[str, Any]) -> None:
        """A machine claims a node's place."""
        for hook in self._hooks(lambda running: running.claimed):
            hook(record, data)

    async def change_cards(self, record: Record, macs: Sequence[str], by: str) -> None:
        """Makes these MAC addresses a node's. Raises LayercakeError."""
        hook = next(self._hooks(lambda running: running.change_cards), None)
        if hook is None:
            raise Unreachable("cannot take it: this head has no inventory to change")
        await hook(record, macs, by)

    def boot_set(self, record: Record) -> str:
        """The boot set that a node boots next, "" for none."""
        choice = next(self._hooks(lambda running: running.boot_sets), None)
        return "" if choice is None else choice.served(record)

    def boot_sets_of_strangers(self) -> Mapping[str, str]:
        """{architecture: boot set} of machines that are being discovered."""
        choice = next(self._hooks(lambda running: running.boot_sets), None)
        return {} if choice is None else choice.of_strangers()

    def kernel_modules(self, record: Record) -> Mapping[str, Any] | None:
        """Where the modules of the kernel are that a node has booted; None if there are none."""
        return next(
            (found for of in self._hooks(lambda r: r.kernel_modules) if (found := of(record))), None
        )

    async def matching(self, records: Sequence[Record], where: str) -> list[Record]:
        """The nodes of these that a query means. Raises InputError for one that is none."""
        hook = next(self._hooks(lambda running: running.matching), None)
        if hook is None:
            raise InputError("cannot look for nodes by a query: this head knows none")
        return await hook(records, where)

    def image(self, name: str) -> WantedImage:
        """An image by its name. Raises NotFound."""
        find = next(self._hooks(lambda running: running.image), None)
        if find is None:
            raise NotFound(f"cannot find image {name!r}: this head has no images")
        return find(name)
