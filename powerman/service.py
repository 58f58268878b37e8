"""The powerman service: BMCs by node, mutations and calls from the head, and the poller that
notices what changed by itself."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from layercake.base.lease import permit_of
from layercake.kraken.errors import (
    InputError,
    LayercakeError,
    OperationFailed,
    Refused,
    Unreachable,
)
from layercake.kraken.events import EventKind
from layercake.moduleapi.event_loop.tasks import cancel_all
from layercake.moduleapi.module import Site
from layercake.moduleapi.service import Link, MutationRequest, Service
from powerman import events, passwords
from powerman.bmc import Clock, Lanes, ManagedBmc, SteadyClock
from powerman.console.consoles import Consoles
from powerman.driver import SLOW_HINT, PowerDriver, PowerState
from powerman.drivers.command import Programs
from powerman.drivers.sim import SOCKET, SimLine
from powerman.drivers.table import Shared, make_driver
from powerman.health import HealthNotifier
from powerman.inspect.eventlog import EventLogs
from powerman.inspect.inspection import InspectedBmc, inspect_bmcs
from powerman.inspect.latency import Latencies
from powerman.inspect.scan import FoundBmc, host_of, scan
from powerman.inventory import DEFAULT_PORTS
from powerman.ipmi.pyghmi_pool import PyghmiPool
from powerman.medium import FILE, MediumServer
from powerman.module import MODULE
from powerman.mutations import ASKED, HEALTH, MUTATIONS, Attempt, power_discover, slowness
from powerman.redfish.web import Web
from powerman.settings import BmcSpec, PowerSettings, limit_s, of_site

log = logging.getLogger("powerman")

# of an attempt's time is used, so that why it failed reaches the engine before the engine gives up
_MARGIN = 0.9
_LAST_MARGIN = 0.97  # ... when a BMC answers so slowly that even giving up took too long
_POLL_SHARE = 4.0  # between two readings are at least so many times the time that one took
_SLOW_S = 1.0  # a BMC that takes so long for an answer is not polled while a step waits
_ASKED_AFTER_S = 1.0
_CALL_LIMIT_S = 45.0  # how long a person waits at most, behind other operations on the same BMC


@dataclass(slots=True)
class _Node:
    """A node: its BMC, or why it has none. With neither, a person switches it. `moved` is set when
    `believed` changes. `ejecting` is the last work on taking its boot medium out, None before there
    was any."""

    name: str
    bmc: ManagedBmc | None
    problem: InputError | None
    next_poll: float
    believed: str = field(default="UNKNOWN")
    polling: asyncio.Task[None] | None = None
    ejecting: asyncio.Task[None] | None = None
    moved: asyncio.Event = field(default_factory=asyncio.Event)


class PowerService(Service):
    """Power for the head.

    `polls` False leaves it to somebody else to call `poll_due`, as tests with a made-up clock do.
    """

    module = MODULE

    def __init__(
        self,
        drivers: Callable[[BmcSpec, Shared], PowerDriver] = make_driver,
        clock: Clock | None = None,
        polls: bool = True,
    ) -> None:
        self._make_driver = drivers
        self._polls = polls
        self._clock = clock or SteadyClock()
        self.nodes: dict[str, _Node] = {}
        """What is known of each node, by its id."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._scanning = False
        self.latencies = Latencies()

    async def start(self, link: Link, site: Site, settings: PowerSettings) -> None:
        """Starts polling."""
        self._settings = settings
        self._link = link
        self._lanes = Lanes.of(self._settings.workers)
        self.shared = Shared(
            Web(),
            PyghmiPool(),
            SimLine(Path(site.data_dir) / SOCKET),
            Programs(settings.programs),
            permit_of(Path(site.data_dir)),
        )
        self.medium_server = MediumServer(Path(site.data_dir) / FILE, settings.media_port)
        self.consoles = Consoles(Path(site.data_dir), settings.console, link, self._spawn)
        self.logs = EventLogs(
            Path(site.data_dir), settings.events_s, link, self._clock, self._spawn
        )
        self.health = HealthNotifier(link, HEALTH.name)
        if self._polls:
            self._spawn(self.logs.run(), "looking at event logs")
            self._spawn(self._poll_for_ever(), "the poller")

    async def stop(self) -> None:
        """Ends polling and drops all connections."""
        await self.consoles.stop()
        await cancel_all(self._tasks)
        for name in list(self.nodes):
            await self.node_removed(name)
        await self.medium_server.close()
        await self.shared.close()

    async def node_changed(self, node: str, record: Mapping[str, Any]) -> None:
        """Takes a new or changed record; a BMC whose facts are the same keeps what is known of
        it."""
        old = self.nodes.get(node)
        name = str(record.get("name") or node)
        if record.get("bmc") is None:
            if old is None or old.bmc is not None or old.problem is not None:
                await self.node_removed(node)
                self.nodes[node] = _Node(
                    name, None, None, 0.0, believed=old.believed if old else "UNKNOWN"
                )
                self.consoles.set(node, name, None)
            return
        try:
            spec = of_site(BmcSpec.from_record(node, record), self._settings)
        except InputError as problem:
            await self.node_removed(node)
            self.nodes[node] = _Node(name, None, problem, 0.0)
            self.consoles.set(node, name, None)
            self._link.event(node, events.NO_BMC, str(problem))
            return
        if old is not None and old.bmc is not None and old.bmc.spec == spec:
            return
        await self.node_removed(node)

        def note(kind: EventKind, text: str) -> None:
            self._link.event(node, kind, text)

        driver = self._make_driver(spec, self.shared)
        bmc = ManagedBmc(spec, driver, self._settings.limits, self._clock, self._lanes, note)
        bmc.healthy = self.health.notifier_for(node)
        bmc.took = self.latencies.of(spec.driver)
        first = self._clock.now() + self._settings.poll_s * (0.25 + phase(node))
        self.nodes[node] = _Node(
            name, bmc, None, first, believed=old.believed if old else "UNKNOWN"
        )
        self.consoles.set(node, name, bmc)
        self.logs.set(node, bmc, phase(node))

    async def node_removed(self, node: str) -> None:
        """Forgets a node."""
        old = self.nodes.pop(node, None)
        await self.consoles.remove(node)
        self.logs.remove(node)
        if old is not None:
            old.moved.set()
        if old is not None and old.bmc is not None:
            await self.medium_server.give_back(node)
            await old.bmc.driver.close()

    async def node_state(self, node: str, values: Mapping[str, str]) -> None:
        """Keeps what the engine holds for the node's power, so that only news is told. A node that
        has booted, or is off again, needs its boot medium no more."""
        known = self.nodes.get(node)
        if known is None:
            return
        self.health.believes(node, values.get(HEALTH.name, "UNKNOWN"))
        before = known.believed
        known.believed = values.get("power", "UNKNOWN")
        known.moved.set()
        over = values.get("boot") == "INIT" or (
            known.believed == "OFF" and before in ("ON", "HANG")
        )
        if (
            known.bmc is not None
            and known.bmc.spec.boot == "media"
            and over
            and (known.ejecting is None or known.ejecting.done())
        ):
            ticket = self.medium_server.ticket(node)
            if (
                ticket or known.ejecting is None
            ):  # a process of ours before this one may have put one in
                known.ejecting = self._spawn(
                    self._eject(known.bmc, ticket), f"ejecting the boot medium of {known.name}"
                )

    async def _eject(self, bmc: ManagedBmc, ticket: str) -> None:
        """Takes the boot medium out, unless one of another ticket was put in meanwhile. What cannot
        be taken out is told of."""
        drive = bmc.driver.drive
        try:
            async with bmc.turn(_CALL_LIMIT_S):
                if self.medium_server.ticket(bmc.spec.node) != ticket:
                    return
                if drive is not None and await bmc.run(drive.eject):
                    bmc.note(
                        events.MEDIUM,
                        "the boot medium is out of the virtual drive of the BMC at "
                        f"{bmc.spec.where}",
                    )
        except LayercakeError as error:
            if ticket:
                bmc.note(events.MEDIUM_STAYS, str(error))
        await self.medium_server.give_back(bmc.spec.node)

    async def mutate(self, request: MutationRequest) -> Mapping[str, str]:
        """Carries out one attempt; what is returned was read from the BMC."""
        known = self.nodes.get(request.node)
        if known is not None and known.bmc is None and known.problem is None:
            return await self.by_hand(request)
        changes = await super().mutate(request)
        if request.node in self.nodes:
            self.nodes[request.node].believed = changes["power"]
        return changes

    # For the handlers in powerman.mutations and powerman.calls.

    async def by_hand(self, request: MutationRequest) -> Mapping[str, str]:
        """A step of a node without a BMC: a person is asked, and the head sees what becomes of it.
        Nobody can say whether such a node is on: it is held for off, unless its agent has been
        heard (parameter up), for that may come back."""
        node = self.nodes.get(request.node)
        if node is None:
            raise InputError(f"cannot manage the power of {request.node!r}: no such node")
        if request.mutation == power_discover.name:
            return {"power": "HANG" if request.params.get("up") else "OFF"}
        wanted = next(
            after
            for m in MUTATIONS
            if m.name == request.mutation
            for _, after in m.changes.values()
        )
        with contextlib.suppress(
            TimeoutError
        ):  # one that somebody has just switched: the news of that is on its way
            async with asyncio.timeout(_ASKED_AFTER_S):
                return await self._until(request.node, node, wanted)
        self._link.event(
            request.node, events.BY_HAND, f"{node.name} needs a person: {ASKED[request.mutation]}"
        )
        return await self._until(request.node, node, wanted)

    async def _until(self, key: str, node: _Node, wanted: str) -> Mapping[str, str]:
        """Returns when the head has seen that the node's power is so. Raises OperationFailed if its
        entry changes before."""
        while node.believed != wanted:
            node.moved.clear()
            await node.moved.wait()
            if self.nodes.get(key) is not node:
                raise OperationFailed(
                    f"cannot wait for a person to switch {node.name}: its entry in the inventory "
                    "has changed"
                )
        return {}

    @contextlib.asynccontextmanager
    async def attempt(self, request: MutationRequest) -> AsyncIterator[Attempt]:
        """The node's BMC to oneself, for as long as an attempt may take. Raises InputError and
        Unreachable."""
        bmc = self.bmc_of(request.node)
        self.logs.give_way(request.node)
        polling = self.nodes[request.node].polling
        if (
            polling is not None and bmc.driver.answer_s >= _SLOW_S
        ):  # reading such a one may take a minute
            polling.cancel()
        usual = limit_s(request.mutation, self._settings, bmc.spec) * _MARGIN
        until = self._clock.now() + request.timeout * _MARGIN
        async with (
            bmc.turn(min(usual * slowness(bmc.driver), request.timeout * _MARGIN)),
            _at_most(bmc, request.timeout * _LAST_MARGIN),
        ):
            since = self._clock.now()
            yield Attempt(bmc, since, usual, until - since, request.params)

    @contextlib.asynccontextmanager
    async def asking(self, node: str) -> AsyncIterator[ManagedBmc]:
        """The node's BMC to oneself, for a person who wants to know now. Raises InputError and
        Unreachable."""
        bmc = self.bmc_of(node)
        async with bmc.turn(_CALL_LIMIT_S, force=True):
            yield bmc

    async def status(self, node: str, *, tell: bool = False) -> dict[str, Any]:
        """Reads the power unless somebody is at the BMC or it is left alone; then it says what was
        read last, or raises why it cannot be reached. With `tell` it reads in any case, and tells
        the engine."""
        known = self.nodes.get(node)
        if known is not None and known.bmc is None and known.problem is None and not tell:
            return {
                "name": known.name,
                "power": known.believed,
                "driver": "none",
                "address": "",
                "reachable": None,
                "age_s": None,
                "error": "",
                "circuit": "",
            }
        bmc = self.bmc_of(node)
        if not tell and not bmc.idle:
            if bmc.outage is not None:
                raise Unreachable(bmc.outage.why)
            return bmc.status()
        async with self.asking(node):
            await bmc.read()
        self._report_power(bmc, "read on request", always=tell)
        return bmc.status()

    async def set_password(self, node: str, new: str) -> dict[str, Any]:
        """Gives the user of a node's BMC another password (passwords.change). Raises
        LayercakeError."""
        async with self.asking(node) as bmc:
            return await passwords.change(bmc, new, self._new_driver)

    async def log_in(self, node: str) -> None:
        """Logs in at a node's BMC anew, by its record. Raises LayercakeError."""
        async with self.asking(node) as bmc:
            await passwords.log_in(bmc, bmc.spec, self._new_driver)

    def _new_driver(self, spec: BmcSpec) -> PowerDriver:
        return self._make_driver(spec, self.shared)

    async def inspect_bmcs(self, limit_s: float) -> list[InspectedBmc]:
        """Looks at all BMCs within so many seconds, and names the nodes that have none."""
        without = [
            InspectedBmc(
                node=key,
                name=node.name,
                where="",
                result="no-bmc" if node.problem else "by-hand",
                why=node.problem.message if node.problem else "",
            )
            for key, node in self.nodes.items()
            if node.bmc is None
        ]
        return without + await inspect_bmcs(
            [node.bmc for node in self.nodes.values() if node.bmc is not None], limit_s
        )

    async def scan(self, addresses: Sequence[str]) -> list[FoundBmc]:
        """Asks addresses whether a BMC is there. Raises Refused while others are asked, InputError
        for what is no address."""
        if self._scanning:
            raise Refused(
                "cannot scan: addresses are being scanned already", hint="wait a few seconds"
            )
        self._scanning = True
        try:
            known = {
                host_of(node.bmc.spec): node.name
                for node in self.nodes.values()
                if node.bmc is not None and node.bmc.spec.driver in DEFAULT_PORTS
            }
            return [
                replace(one, node=known.get(one.address, ""))
                for one in await scan(addresses, self.shared.web.session)
            ]
        finally:
            self._scanning = False

    def spec(self, node: str) -> BmcSpec:
        """How a node's BMC is reached; it holds the password. Raises LayercakeError for a node
        without one."""
        return self.bmc_of(node).spec

    def bmc_of(self, node: str) -> ManagedBmc:
        """The BMC of a node, by its id. Raises InputError if there is none, or says why it is
        unusable."""
        known = self.nodes.get(node)
        if known is None:
            raise InputError(f"cannot manage the power of {node!r}: no such node")
        if known.bmc is None:
            raise known.problem or InputError(f"cannot ask the BMC of {known.name}: it has none")
        return known.bmc

    def _report_power(self, bmc: ManagedBmc, why: str, *, always: bool = False) -> None:
        """Tells the engine what the BMC says, if that is news to it or `always`.

        HANG is the engine's own finding about a node that is on, so a BMC that says ON does not
        contradict it.
        """
        node = self.nodes.get(bmc.spec.node)
        if bmc.power is None or node is None or node.bmc is not bmc:
            return
        before = node.believed
        now = bmc.power.value
        if before == "HANG" and bmc.power is PowerState.ON:
            return
        if before == "ON" and bmc.power is PowerState.OFF is bmc.power_before and not always:
            return  # it has said so all the time, and others have seen since that the node is on
        if now != before:
            self._link.event(bmc.spec.node, events.STATE, f"power is {now} (was {before}), {why}")
        elif not always:
            return
        node.believed = now
        self._link.discover(bmc.spec.node, {"power": now}, f"the BMC says so, {why}")

    def poll_due(self) -> list[asyncio.Task[None]]:
        """Starts reading the BMCs whose turn it is, and that nobody is at; returns what was
        started."""
        now = self._clock.now()
        started = []
        for name, node in self.nodes.items():
            if node.bmc is not None and node.next_poll <= now:
                node.next_poll = now + self._settings.poll_s
                if node.bmc.idle:
                    node.polling = self._spawn(self._poll(node.bmc), f"polling {name}")
                    started.append(node.polling)
        return started

    async def _poll_for_ever(self) -> None:
        while True:
            self.poll_due()
            await self._clock.sleep(min(1.0, self._settings.poll_s / 10))

    async def _poll(self, bmc: ManagedBmc) -> None:
        began = self._clock.now()
        lost = (
            bmc.outage is not None
        )  # a node that could not be discovered may wait for exactly this
        try:
            async with bmc.turn(self._settings.poll_s):
                await bmc.read()
        except LayercakeError as error:  # told once per outage by the BMC's notes
            log.debug("polling %s: %s", bmc.spec.node, error.message)
            return
        if (
            node := self.nodes.get(bmc.spec.node)
        ) is not None:  # a slow one is not kept busy by that alone
            node.next_poll = max(
                node.next_poll, self._clock.now() + _POLL_SHARE * (self._clock.now() - began)
            )
        self._report_power(bmc, "read by the poller", always=lost)

    def _spawn(self, work: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)

        def done(ended: asyncio.Task[None]) -> None:
            self._tasks.discard(ended)
            if not ended.cancelled() and (error := ended.exception()) is not None:
                log.error("%s failed", what, exc_info=error)
                self._link.health(f"{what} failed: {type(error).__name__}")

        task.add_done_callback(done)
        return task


@contextlib.asynccontextmanager
async def _at_most(bmc: ManagedBmc, limit_s: float) -> AsyncIterator[None]:
    """Ends an attempt that drags on. Raises Unreachable."""
    try:
        async with asyncio.timeout(limit_s):
            yield
    except TimeoutError:
        raise Unreachable(
            f"cannot use the BMC at {bmc.spec.where}: it answers too slowly, not done in "
            f"{limit_s:.0f} s",
            hint=SLOW_HINT,
        ) from None


def phase(node: str) -> float:
    """Where in the polling period a node's turn is, 0 to 1, the same for ever: spreads the reads
    without any dice."""
    return int.from_bytes(hashlib.blake2b(node.encode(), digest_size=4).digest()) / 2**32
