"""A simulated fleet: machines, their BMCs, firmware and agents, in one process. The head that it
talks to knows no difference."""

from __future__ import annotations

import asyncio
import functools
import random
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layercake import __version__
from layercake.kraken.errors import LayercakeError, OperationFailed, Refused
from layercake.sim.fleet.agent import Agent, Facts
from layercake.sim.fleet.bmc import BmcServer
from layercake.sim.fleet.clockwork import Clockwork
from layercake.sim.fleet.commands import played
from layercake.sim.fleet.dhcp import Relay
from layercake.sim.fleet.ether import Ether
from layercake.sim.fleet.faults import Bmc, Faults, random_numbers
from layercake.sim.fleet.links import CONNECTIONS, Links
from layercake.sim.fleet.machine import Machine, MachineIdentity, Phase

_AGAIN_S = 2.0
_CUT_LOOK_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Where the head of a fleet is: its address, the ports of TLS, state sync and boot files, the
    file of its authority, and the socket at which its powerman looks for BMCs, None for none.
    `dhcp`: the port of its DHCP server, 0 to ask none. `others` are the addresses of further heads,
    with the same ports."""

    address: str
    tls: int
    sync: int
    http: int
    authority: Path
    bmcs: Path | None = None
    dhcp: int = 0
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BootTimes:
    """How long machines take, in seconds: their firmware, and kernel and minOS until the agent asks
    to join. Each boot of each node takes a fifth more or less."""

    firmware_s: float = 8.0
    kernel_s: float = 4.0


class Fleet:
    """All of it. `own`: nodes have addresses of their own in this network namespace, and send from
    them."""

    def __init__(
        self,
        identities: Iterable[MachineIdentity],
        head: Head,
        faults: Faults,
        boot_times: BootTimes,
        *,
        own: bool = True,
        connections: int = CONNECTIONS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.machines = {
            p.name: Machine(p, uuid.UUID(p.id).bytes, faults.of_node(p.name)) for p in identities
        }
        self.faults = faults
        self.head = head
        self._boot_times = boot_times
        self._own = own
        self.clockwork = Clockwork(clock)
        self._ether = Ether(
            {m.node: m for m in self.machines.values()},
            faults,
            self.clockwork,
            self.cut,
            self.acts,
            own=own,
        )
        self.links = Links(
            head.authority, (head.address, head.tls), self.cut, connections=connections, own=own
        )
        self.bmcs = BmcServer(
            {m.identity.bmc: m for m in self.machines.values() if m.identity.bmc},
            self.clockwork,
            self._start,
        )
        self._relay = (
            Relay((head.address, *head.others), head.dhcp, faults, self.cut) if head.dhcp else None
        )
        self._running: asyncio.Task[None] | None = None
        self._random = random.Random(faults.seed)  # noqa: S311 (nothing secret follows from it)
        self.troubles: Counter[str] = Counter()
        self.played: Callable[[str, Mapping[str, Any]], tuple[float, dict[str, Any]]] = played

    # -- life

    async def start(self) -> None:
        """Opens the sockets; from here on machines can be switched on. Raises OSError."""
        self._ether.open((self.head.address, *self.head.others), self.head.sync)
        if self.head.bmcs is not None:
            await self.bmcs.open(self.head.bmcs)
        if self._relay is not None:
            self._relay.open()
        self.links.start()
        self._running = asyncio.create_task(self.clockwork.run())
        self._running.add_done_callback(
            lambda task: None if task.cancelled() else task.result()
        )  # a bug is told of at once

    async def stop(self) -> None:
        """Ends it: nobody answers any more."""
        boots = [m.boot for m in self.machines.values() if m.boot is not None]
        for task in (*boots, *([self._running] if self._running is not None else ())):
            task.cancel()
        await asyncio.gather(*boots, return_exceptions=True)
        await self.links.close()
        await self.bmcs.close()
        if self._relay is not None:
            self._relay.close()
        self._ether.close()

    # -- what goes wrong

    def cut(self, machine: Machine) -> bool:
        """Whether nothing gets to a machine and nothing from it, besides its BMC."""
        return machine.dark or self.faults.silent(machine.node_faults, self.clockwork.age)

    def darken(self, names: Iterable[str], *, dark: bool) -> int:
        """Takes machines and their BMCs off all networks, or brings them back; how many. They run
        on meanwhile."""
        count = 0
        for name in names:
            self.machines[name].dark = dark
            count += 1
        return count

    # -- what machines do

    def _start(self, machine: Machine) -> None:
        machine.start(lambda m: asyncio.get_running_loop().create_task(self._boot(m)))

    def attach(self, name: str, facts: Facts) -> None:
        """Has a machine run with a session that it already has: the join is no part of what is
        tried."""
        machine = self.machines[name]
        machine.phase = Phase.RUNNING
        self._run(machine, facts)

    def _run(self, machine: Machine, facts: Facts) -> Agent:
        agent = machine.agent = Agent(self, machine, machine.node, facts)
        self.later(
            self.jitter() * (facts.hello_s if not self._own else 0.1), lambda: self._speak(agent)
        )
        return agent

    async def _boot(self, machine: Machine) -> None:
        """One life of a machine, from power-on to its agent's join; it is asked again and again, as
        firmware does."""
        identity = machine.identity
        life = machine.life
        firmware, kernel, _, _ = random_numbers(self.faults.seed, identity.name, "boot", life)
        try:
            await asyncio.sleep(self._boot_times.firmware_s * (0.8 + 0.4 * firmware))
            parameters = await self._script(machine)
            machine.phase = Phase.KERNEL
            await asyncio.sleep(self._boot_times.kernel_s * (0.8 + 0.4 * kernel))
            claim = {
                "node": parameters["node"],
                "token": parameters["token"],
                "mac": parameters["mac"],
                "boot": parameters.get("boot", ""),
                "agent": parameters.get("boot", ""),
                "version": __version__,
                "boot_id": str(uuid.uuid4()),
            }
            facts, document = await self._join(machine, claim)
        # a real one goes on asking once a minute, and its boot fails at the head's time
        except Refused as error:
            self._trouble(str(error))
            machine.phase = Phase.HUNG
            machine.boot = None
            return
        machine.phase = Phase.RUNNING
        machine.boot = None
        self._run(machine, facts).desired(document)
        after = machine.dies_after
        machine.dies_after = None  # once: its later lives are well, or last longer
        if after is not None and self.faults.every_s:
            machine.dies_after = self.faults.every_s
        if after is not None:
            self.clockwork.later(after, lambda: machine.hang() if machine.life == life else None)

    async def _script(self, machine: Machine) -> Mapping[str, str]:
        """The words of the kernel's command line in the boot script, which firmware asks for until
        it gets it."""
        identity = machine.identity
        path = f"boot/{identity.mac.replace(':', '-')}"
        while True:
            await self._reach(machine)
            url = f"http://{self.links.host}:{self.head.http}/{path}"
            try:
                if self._relay is not None:
                    url = await self._relay.boot(machine)
                status, text = await self.links.script(url, identity.ip)
                if status == 200:
                    return words_of(text)
                self._trouble(f"no boot script: {status}")
            except (OSError, EOFError, LayercakeError) as error:
                self._trouble(f"no boot script: {error!r}")
            await asyncio.sleep(_AGAIN_S)

    async def _join(
        self, machine: Machine, claim: dict[str, str]
    ) -> tuple[Facts, Mapping[str, Any]]:
        while True:
            await self._reach(machine)
            try:
                answer = await self.links.join(machine.identity.ip, claim)
                return Facts.of(answer), answer["desired"]
            except (OSError, EOFError) as error:
                self._trouble(f"no join: {error!r}")
            await asyncio.sleep(_AGAIN_S)

    async def _reach(self, machine: Machine) -> None:
        # What flaps is back by the clock, and tells nobody.
        while self.cut(machine):  # noqa: ASYNC110
            await asyncio.sleep(_CUT_LOOK_S)

    def _trouble(self, what: str) -> None:
        self.troubles[what[:120]] += 1

    # -- the world of agents (agent.World)

    def _speak(self, agent: Agent) -> None:
        """Has an agent say HELLO if that is due, and looks again when it will be."""
        if agent.owner.agent is not agent:
            return
        if agent.due <= self.now():
            agent.hello()
        self._schedule_hello(agent)

    def _schedule_hello(self, agent: Agent) -> None:
        due = agent.due
        if agent.told_at <= self.now() or due < agent.told_at:
            agent.told_at = due
            self.clockwork.at(due, functools.partial(self._due, agent, due))

    def _due(self, agent: Agent, when: float) -> None:
        if agent.told_at == when:
            agent.told_at = 0.0
            self._speak(agent)

    @property
    def several(self) -> bool:
        """Whether there are several heads."""
        return bool(self.head.others)

    def acts(self, address: str) -> None:
        """The head at this address acts: requests go there."""
        self.links.host = address

    def send_datagram(self, agent: Agent, data: bytes, head: str = "") -> None:
        """Sends a datagram."""
        self._ether.send(agent.owner, data, head)
        if agent.told_at:
            self.clockwork.later(0.0, lambda: self._schedule_hello(agent))

    def send_request(self, agent: Agent, line: str, body: bytes = b"") -> None:
        """Makes a request."""
        self.links.queue_request(agent, line, body)

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        """Has something done later."""
        self.clockwork.later(seconds, what)

    def now(self) -> float:
        """Seconds of the steady clock."""
        return self.clockwork.clock()

    def jitter(self) -> float:
        """Any number from [0, 1)."""
        return self._random.random()

    # -- what is shown

    def view(self) -> dict[str, Any]:
        """How the fleet is: machines by what they are at, joins and datagrams, and what is wrong on
        purpose."""
        phases = Counter(m.phase.name.lower() for m in self.machines.values())
        return {
            "machines": dict(phases),
            "dark": sum(m.dark for m in self.machines.values()),
            "joins": self.links.joins,
            "requests": self.links.requests,
            "datagrams": sum(m.sent for m in self.machines.values()),
            "lost": self._ether.lost,
            "power": self.bmcs.commands,
            "troubles": dict(self.troubles.most_common(5)),
        }


def wrong(machines: Iterable[Machine]) -> dict[str, list[str]]:
    """Which nodes have which fault: for people, and to see that the same seed makes the same
    ones."""
    faults: dict[str, list[str]] = {"flap": [], "dead": [], "bad-bmc": []}
    for m in machines:
        for what, has in (
            ("flap", m.node_faults.flaps_from is not None),
            ("dead", m.node_faults.dies_after is not None),
            ("bad-bmc", m.node_faults.bmc is not Bmc.WELL),
        ):
            if has:
                faults[what].append(m.identity.name)
    return faults


def words_of(script: str) -> Mapping[str, str]:
    """What a boot script says to minOS: {"token": .., "node": ..}. Raises OperationFailed if it
    says nothing."""
    line = next((line for line in script.splitlines() if line.startswith("kernel ")), "")
    parameters = dict(
        word.removeprefix("layercake.").split("=", 1)
        for word in line.split()
        if word.startswith("layercake.") and "=" in word
    )
    if not {"node", "token", "mac"} <= parameters.keys():
        raise OperationFailed("cannot boot by the script: it names no node and token")
    return parameters
