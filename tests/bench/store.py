"""What it costs that several heads share what a head writes. `python -m tests.bench.store
[--nodes 10000] [--changes 500] [--rest 60]`.

A whole head that is not started, by SQLite alone and as the leader of a site with an etcd of three
members on loopback, and a head that follows, in a process of its own; in turn. `NAME_changes_s` is
how many changes of one node are accepted in a second when 16 people make them at a time,
`NAME_p50_ms` and `NAME_p99_ms` how long one takes when one person does; NAME is `sqlite` or `etcd`.
`NAME_apply_s` is the median of what an apply of N changed nodes takes, `apply_ratio` that of etcd
by that of SQLite (aim: 2); `apply_cpu_ratio` is the same of the processor's seconds, which others
on the machine change less. `lag_p99_ms` is from when the store has a change, before it is accepted,
until the follower's copy has it (aim: 250), of changes at random moments, about 20 a second.

Then N simulated nodes that have joined before (_joined.py) are at rest, with one head and with two:
`one_rest_core` and `leader_rest_core` are the share of a core that the head takes, `services`
without, over `--rest` seconds; `rest_ratio` is the second by the first (aim: 1.2). 0 leaves that
out. All times are wall times: see `calibration_s`. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import random
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from layercake.agents import pki
from layercake.base.lease import Lease
from layercake.base.process import THRESHOLDS
from layercake.features.history.history import Repositories
from layercake.features.inventory.reading import Readers
from layercake.fleet.persistence.changes import Changes
from layercake.fleet.site_heads import SiteHead
from layercake.head.head import Head
from layercake.head.life import THREAD_S
from layercake.head.settings import DATABASE, Settings
from layercake.heads.copying import HeadLink
from layercake.heads.settings import DIRECTORY, KEY, KEY_BYTES, HeadsSettings
from layercake.heads.site import SharedSite
from layercake.kraken.errors import LayercakeError
from layercake.moduleapi.network import HeadAddress
from layercake.sim import namespace
from layercake.sim.api import Api
from layercake.sim.fleet.etcd import EtcdMembers
from layercake.sim.play import Options, Play
from layercake.sim.play import run as play
from layercake.sim.screen import Screen
from layercake.sim.show import Meter
from layercake.sim.site import SOCKET
from tests.bench._history import median, quantile
from tests.bench._joined import prepare
from tests.bench.engine import calibration
from tests.bench.plan import ADDRESS, inventory
from tests.support.operations import Operations

AT_ONCE = 16
APPLIES = 3
PAUSE_S = 0.05
LOOK_S = 0.001
RESTS_S = 60.0
SETTLE_S = 600.0
REACHED = SiteHead(
    name="bench",
    addresses=(HeadAddress(interface="lo", address="127.0.0.1", prefix=8),),
    api_port=1,
    sync_port=1,
)


class TimedSite(SharedSite):
    """A head of a site that notes when an entry was in the log."""

    times: dict[int, float]

    def write(self, written: Changes) -> tuple[int, str]:
        """See SharedSite."""
        place = super().write(written)
        self.times[place[0]] = time.monotonic()
        return place


def site_at(directory: Path, name: str, store: list[str]) -> TimedSite:
    """A head of a site, with its directory."""
    (directory / DIRECTORY).mkdir(parents=True, exist_ok=True)
    (directory / DIRECTORY / KEY).write_bytes(bytes(KEY_BYTES))
    settings = HeadsSettings(name, store)
    power = Lease(directory, write=True)
    link = HeadLink(ssl.create_default_context)
    site = TimedSite(directory, settings, "", REACHED, directory / DATABASE, power, link)
    site.times = {}
    return site


async def follow(directory: Path, store: list[str]) -> None:
    """A head that follows; prints a line for each entry that its copy has, with the time. Ends with
    its input."""
    site = site_at(directory, "follower", store)
    following = asyncio.create_task(site.standby.wait_to_lead())
    ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    site.standby.may_lead = False
    before = 0
    print("ready", flush=True)
    while not ended.done():
        if site.standby.entry != before:
            before = site.standby.entry
            print(before, time.monotonic(), flush=True)
        await asyncio.sleep(LOOK_S)
    following.cancel()


class Follower:
    """One in a process of its own, and what it has said."""

    def __init__(self, directory: Path, store: list[str]) -> None:
        directory.mkdir()
        self._log = directory / "said"
        with self._log.open("wb") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.bench.store", "--follow", str(directory), *store],
                stdin=subprocess.PIPE,
                stdout=said,
            )

    def had(self) -> dict[int, float]:
        """When its copy had an entry first, by the number of the newest one."""
        words = (line.split() for line in self._log.read_text().splitlines())
        return {int(two[0]): float(two[1]) for two in words if len(two) == 2}

    def stop(self) -> None:
        """Ends it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


class Bench:
    """A head with its nodes, by itself or leading."""

    def __init__(self, head: Head, count: int) -> None:
        self._head = head
        self._wanted = Operations(head).inventory
        self._count = count
        self._random = random.Random(36)
        self._number = 0

    async def apply(self) -> tuple[float, float]:
        """Seconds of an apply in which all nodes are others, and those of this process."""
        self._number += 1
        firmware = ("bios", "uefi")[self._number % 2]
        text = inventory(self._count, each=True, firmware=firmware)
        gc.collect()
        began = time.monotonic()
        used = time.process_time()
        done = await self._wanted.apply(text, "bench.yaml", None, False)
        if self._number > 1 and len(done["changed"]) != self._count:
            raise SystemExit(f"not all nodes have changed: {len(done['changed'])}")
        return time.monotonic() - began, time.process_time() - used

    async def change(self) -> float:
        """Seconds of a change of one node."""
        self._number += 1
        name = f"n{self._random.randrange(self._count):06d}"
        began = time.monotonic()
        await self._wanted.change(name, {"kernel_args": f"bench={self._number}"}, ())
        return time.monotonic() - began

    async def rate(self, changes: int) -> float:
        """Changes in a second, when many are made at a time."""
        left = iter(range(changes))

        async def one_after_the_other() -> None:
            for _ in left:
                await self.change()

        began = time.monotonic()
        await asyncio.gather(*(one_after_the_other() for _ in range(AT_ONCE)))
        return changes / (time.monotonic() - began)

    async def lags(self, changes: int, follower: Follower, site: TimedSite) -> list[float]:
        """Seconds from when the log had changes until the follower had them."""
        site.times.clear()
        for _ in range(changes):
            await asyncio.sleep(self._random.expovariate(1 / PAUSE_S))
            await self.change()
        logged = dict(site.times)
        while max(follower.had(), default=0) < max(logged):
            await asyncio.sleep(0.1)
        had = follower.had()
        return [
            max(0.0, min(at for entry, at in had.items() if entry >= number) - when)
            for number, when in logged.items()
        ]


@contextlib.asynccontextmanager
async def opened(directory: Path, count: int, site: SharedSite | None) -> AsyncIterator[Bench]:
    """A head with its nodes, which leads if it is one of several."""
    pki.create(directory / "pki", ADDRESS)
    (directory / "boot").mkdir()
    if site is not None:
        site.begin()
        await site.lead(lambda: None)
    head = Head(directory, Settings(interface="lo", address=ADDRESS, prefix=10), site=site)
    head.load()
    bench = Bench(head, count)
    await bench.apply()
    gc.freeze()
    try:
        yield bench
    finally:
        await head.part(Repositories).close()
        await head.part(Readers).close()
        await head.database.close(head.store)
        if site is not None:
            await site.close()


async def writes(scratch: Path, count: int, changes: int) -> dict[str, float]:
    """What changes and applies take."""
    sys.setswitchinterval(THREAD_S)
    gc.set_threshold(*THRESHOLDS)
    members = EtcdMembers(scratch)
    members.start()
    found: dict[str, float] = {}
    applies: dict[str, list[tuple[float, float]]] = {"sqlite": [], "etcd": []}
    try:
        await asyncio.to_thread(members.wait)
        (scratch / "leader").mkdir()
        (scratch / "alone").mkdir()
        site = site_at(scratch / "leader", "leader", members.endpoints)
        async with (
            opened(scratch / "alone", count, None) as alone,
            opened(scratch / "leader", count, site) as leader,
        ):
            follower = Follower(scratch / "follower", members.endpoints)
            both = {"sqlite": alone, "etcd": leader}
            for _ in range(APPLIES):
                for name, bench in both.items():
                    applies[name].append(await bench.apply())
            for name, bench in both.items():
                found[f"{name}_apply_s"] = median([took for took, _ in applies[name]])
                found[f"{name}_apply_cpu_s"] = median([used for _, used in applies[name]])
                times = [await bench.change() for _ in range(changes)]
                found[f"{name}_p50_ms"] = median(times) * 1e3
                found[f"{name}_p99_ms"] = quantile(times, 0.99) * 1e3
                found[f"{name}_changes_s"] = await bench.rate(changes)
            lags = await leader.lags(changes, follower, site)
            follower.stop()
    finally:
        members.kill()
    found["apply_ratio"] = found["etcd_apply_s"] / found["sqlite_apply_s"]
    found["apply_cpu_ratio"] = found["etcd_apply_cpu_s"] / found["sqlite_apply_cpu_s"]
    found["lag_p50_ms"] = median(lags) * 1e3
    found["lag_p99_ms"] = quantile(lags, 0.99) * 1e3
    return found


async def at_rest(nodes: int, heads: int, seconds: float) -> float:
    """The share of a core that a leader takes; in a namespace."""
    shares: list[float] = []

    async def then(play: Play) -> None:
        api = Api(play.directory / SOCKET)
        end = time.monotonic() + SETTLE_S
        while True:
            with contextlib.suppress(LayercakeError, OSError):
                status = await asyncio.to_thread(api.request, "GET", "/v1/status")
                if status["nodes"]["converged"] == status["nodes"]["total"] > 0:
                    break
            if time.monotonic() > end:
                raise SystemExit("the nodes do not come to rest")
            await asyncio.sleep(1.0)
        await asyncio.sleep(RESTS_S)
        meter = Meter(play.head.pid)
        meter.sample()
        await asyncio.sleep(seconds)
        shares.append(meter.sample()["head"])

    with tempfile.TemporaryDirectory(prefix="lcst") as scratch:
        place = Path(scratch) / "sim"
        place.mkdir()
        options = Options(
            directory=str(place), nodes=nodes, heads=heads, firmware_s=1.0, kernel_s=1.0
        )
        await play(options, asyncio.Event(), Screen(every_s=30.0), then, prepare)
    return shares[0]


def rest(nodes: int, heads: int, seconds: float) -> float:
    """The same, in a process and a namespace of its own."""
    words = ["--rest-of", str(heads), "--nodes", str(nodes), "--rest", str(seconds)]
    done = subprocess.run(
        namespace.command([sys.executable, "-m", "tests.bench.store", *words]),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(done.stdout.splitlines()[-1])


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All of it."""
    found: dict[str, Any] = {"calibration_s": calibration(), "nodes": options.nodes}
    if options.changes:
        with tempfile.TemporaryDirectory(prefix="lcst") as scratch:
            found |= asyncio.run(writes(Path(scratch), options.nodes, options.changes))
    if options.rest:
        found["one_rest_core"] = rest(options.nodes, 1, options.rest)
        found["leader_rest_core"] = rest(options.nodes, 2, options.rest)
        found["rest_ratio"] = found["leader_rest_core"] / found["one_rest_core"]
    return {k: round(v, 3) if isinstance(v, float) else v for k, v in found.items()}


def main() -> None:
    """Measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--changes", type=int, default=500)
    parser.add_argument("--rest", type=float, default=60.0)
    parser.add_argument("--rest-of", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--follow", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.follow:
        asyncio.run(follow(Path(options.follow[0]), options.follow[1:]))
    elif options.rest_of:
        print(asyncio.run(at_rest(options.nodes, options.rest_of, options.rest)))
    elif shutil.which("etcd") is None:
        raise SystemExit("cannot measure: there is no etcd; install etcd-server")
    else:
        print(json.dumps(measure(options)))


if __name__ == "__main__":
    main()
