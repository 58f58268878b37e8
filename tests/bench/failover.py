"""How long a site is without a head when the machine of its leader ends. `python -m
tests.bench.failover [--nodes 10000] [--rounds 50] [--handovers 17]`.

Two heads, an etcd of three members (one beside each head, one as witness), simulated nodes that
have joined before (_joined.py), in a network namespace. At a random moment of its lease (TTL 5 s)
the leader's machine ends: its processes and its member of etcd are killed with -9. `p50_s` and
`p99_s` are from then until the other head has answered a DHCPDISCOVER, accepted a change, and had
a command carried out by a node's agent, whichever was last (_probes.py); `power_p99_s` until its
first power action has reached a BMC. Then the killed machine comes back, and follows.
`handover_p99_s` is the same as the first figure for a hand-over that a person asks for, without the
command, to a head that is ready (`layercake heads`) while all nodes are well. `boot_s` and so on
are medians of the parts. Times are wall times: with `calibration_s` (engine.py) beside them. Prints
one JSON object last.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from layercake.agents.settings import SyncSettings
from layercake.kraken.errors import LayercakeError
from layercake.sim import namespace
from layercake.sim.api import Api
from layercake.sim.play import Options, Play, run
from layercake.sim.screen import Screen
from layercake.sim.site import SOCKET
from minos.agent.head_link.sync import LATELY_S
from tests.bench._history import median, quantile
from tests.bench._joined import joined, prepare
from tests.bench._probes import CHANGE, COMMAND, DHCP, LOOK_S, Probes, Watched, until
from tests.bench.engine import calibration

# How long one thing is waited for, and for each node: a large site takes its time to settle.
LIMIT_S = 900.0
LIMIT_NODE_S = 0.05
SETTLES_S = 10.0
COMMANDED = 1
"""The number of the node that is commanded, which is played apart."""
LARGE = 20_000
"""Nodes of more than so many say HELLO half as often."""


class Bench:
    """The heads of a simulation, by number: 0 leads first."""

    def __init__(self, play: Play, rounds: int, handovers: int) -> None:
        self._play = play
        self._rounds = rounds
        self._handovers = handovers
        self._heads = [play.head, *play.others]
        directory = play.directory
        self._apis = [Api(directory / SOCKET), Api(directory / "head2" / SOCKET)]
        self._random = random.Random(20261127)
        self._limit_s = LIMIT_S + LIMIT_NODE_S * len(play.fleet.machines)
        self._probes = Probes(self._watched())
        self.parts: dict[str, list[float]] = {}
        self.totals: list[float] = []
        self.powers: list[float] = []
        self.handovers: list[float] = []

    def _watched(self) -> Watched:
        """What the probes ask."""
        play = self._play
        address = play.settings.address
        first, _, last = address.rpartition(".")
        machines = play.fleet.machines
        return Watched(
            head=replace(play.fleet.head, bmcs=None, dhcp=0),
            sockets=[play.directory / SOCKET, play.directory / "head2" / SOCKET],
            addresses=[address, f"{first}.{int(last) + 2}"],
            relay=f"{first}.{int(last) + 9}",
            booted=machines[name_of(play, 0)].identity,
            changed=name_of(play, 0),
            commanded=machines[name_of(play, COMMANDED)].identity,
            facts=joined(play).facts(name_of(play, COMMANDED)),
            limit_s=self._limit_s,
        )

    # -- looking

    async def until(self, what: Callable[[], bool]) -> None:
        """Waits until something is so. Raises SystemExit."""
        try:
            await until(what, self._limit_s)
        except TimeoutError as error:
            raise SystemExit(str(error)) from None

    def converged(self, number: int) -> bool:
        status = self._apis[number].request("GET", "/v1/status")["nodes"]
        return bool(status["converged"] == status["total"] > 0)

    def follows(self, number: int) -> bool:
        """Whether it follows, has all, and would lead at once."""
        found = self._apis[number].request("GET", "/v1/heads")
        own = [h for h in found["heads"] if h["head"] == f"head{number + 1}"]
        up = all(not member["trouble"] for member in found["members"])
        ready = own and own[0]["ready"] and not own[0]["leads"]
        return bool(up and ready and own[0]["entry"] == found["entry"])

    # -- what happens

    async def begin(self) -> None:
        """All are there, and nothing is new to them: who was told something lately asks a new
        leader at once."""
        await self.until(lambda: self.converged(0))
        await self.until(lambda: self.follows(1))
        await asyncio.sleep(LATELY_S + SETTLES_S)

    async def round(self, leader: int) -> int:
        """The leader's machine ends, and comes back; who leads then."""
        members = self._play.members
        assert members is not None
        other = 1 - leader
        await asyncio.sleep(self._random.uniform(0.0, 5.0))
        began = time.monotonic()
        os.killpg(self._heads[leader].pid, signal.SIGKILL)
        members.kill(leader)
        power = asyncio.create_task(self.first_power(other, began))
        times = await self._probes.seen(other, (DHCP, CHANGE, COMMAND))
        for name, when in times.items():
            self.parts.setdefault(name, []).append(when - began)
        self.totals.append(max(times.values()) - began)
        self.powers.append(await power)
        print(f"  {since(began, times)} power {self.powers[-1]:.2f}", file=sys.stderr)
        await self.come_back(leader)
        return other

    async def first_power(self, number: int, began: float) -> float:
        before = self._play.fleet.bmcs.commands
        while self._play.fleet.bmcs.commands == before:
            with contextlib.suppress(LayercakeError, OSError, http.client.HTTPException):
                body = {"range": name_of(self._play, 2), "action": "cycle"}
                await asyncio.to_thread(self._apis[number].request, "POST", "/v1/power", body)
            await asyncio.sleep(LOOK_S)
            if time.monotonic() - began > self._limit_s:
                raise SystemExit("no power action was carried out")
        return time.monotonic() - began

    async def come_back(self, number: int) -> None:
        members = self._play.members
        assert members is not None
        self._heads[number].stop()
        members.start(number)
        await asyncio.to_thread(members.wait)
        self._heads[number].start()
        await self.until(lambda: self.follows(number))
        await self.until(lambda: self.converged(1 - number))

    async def hand_over(self, leader: int) -> int:
        """Asked for by a person."""
        other = 1 - leader
        began = time.monotonic()
        body = {"head": f"head{other + 1}"}
        await asyncio.to_thread(self._apis[leader].request, "POST", "/v1/heads/promote", body)
        promoted = time.monotonic()
        times = await self._probes.seen(other, (DHCP, CHANGE))
        self.handovers.append(max(times.values()) - began)
        print(f"  handed over {since(began, {'promoted': promoted, **times})}", file=sys.stderr)
        await self.until(lambda: self.follows(leader))
        await self.until(lambda: self.converged(other))
        return other

    async def run(self) -> dict[str, Any]:
        """All rounds."""
        await self.begin()
        leader = 0
        for _ in range(self._rounds):
            leader = await self.round(leader)
        for _ in range(self._handovers):
            leader = await self.hand_over(leader)
        return self._found()

    def _found(self) -> dict[str, Any]:
        if not self.totals:
            found = {}
        else:
            found = {
                "p50_s": median(self.totals),
                "p99_s": quantile(self.totals, 0.99),
                "power_p99_s": quantile(self.powers, 0.99),
                **{f"{name}_s": median(times) for name, times in self.parts.items()},
            }
        if self.handovers:
            found["handover_p50_s"] = median(self.handovers)
            found["handover_p99_s"] = quantile(self.handovers, 0.99)
        return {name: round(seconds, 2) for name, seconds in found.items()}


def name_of(play: Play, number: int) -> str:
    """The node of a number."""
    return list(play.fleet.machines)[number]


def since(began: float, times: Mapping[str, float]) -> str:
    """Seconds since then, for people."""
    return " ".join(f"{name} {when - began:.2f}" for name, when in times.items())


async def inside(nodes: int, rounds: int, handovers: int) -> dict[str, Any]:
    """In the namespace."""
    found: dict[str, Any] = {}
    hello_s = 10.0 if nodes > LARGE else SyncSettings().hello_s
    with tempfile.TemporaryDirectory(prefix="lcfo") as scratch:
        options = Options(
            directory=str(Path(scratch) / "sim"),
            nodes=nodes,
            heads=2,
            dhcp=True,
            firmware_s=1.0,
            kernel_s=1.0,
            changes={"sync.hello_s": hello_s, "sync.dead_s": 3 * hello_s},
        )
        (Path(scratch) / "sim").mkdir()

        async def then(play: Play) -> None:
            found.update(await Bench(play, rounds, handovers).run())

        async def first(play: Play) -> None:
            await prepare(play, apart={name_of(play, COMMANDED)})

        await run(options, asyncio.Event(), Screen(every_s=30.0), then, first)
    return found


def main() -> None:
    """Goes into a namespace of its own, and plays there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--handovers", type=int, default=17)
    parser.add_argument("--inside", action="store_true")
    options = parser.parse_args()
    if options.inside:
        found = asyncio.run(inside(options.nodes, options.rounds, options.handovers))
        print(json.dumps({"nodes": options.nodes, "rounds": options.rounds, **found}))
        return
    if shutil.which("etcd") is None:
        raise SystemExit("cannot measure: there is no etcd; install etcd-server")
    # A head that is installed has its modules compiled, and does not do it as it takes over.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    arguments = ["--nodes", str(options.nodes), "--rounds", str(options.rounds)]
    arguments += ["--handovers", str(options.handovers)]
    done = subprocess.run(
        namespace.command([sys.executable, "-m", "tests.bench.failover", "--inside", *arguments]),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    print(json.dumps({"calibration_s": round(calibration(), 3), **found}))


if __name__ == "__main__":
    main()
