"""Measures all hot paths, in a process of its own: `python -m tests.costs.worker [--planted]`.

In a process of its own nothing that other tests have done, imported or cached is counted. Each path
goes a few rounds; what counts is the least of them, since what else happens in between only adds.
With --planted each is measured once more, with extra calls in it that its guard has to notice.
Prints one JSON object last: {"measured": {path: figures}, "planted": {path: figures}}.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import FunctionType
from typing import Any

from tests.bench._lab import Lab
from tests.bench.roll import enter
from tests.costs.boot_paths import Machines, boot_paths
from tests.costs.comparison import TOLERANCE, Figures, written
from tests.costs.counting import CallMeter, MemoryMeter, SyscallMeter
from tests.costs.head_paths import head_paths
from tests.costs.paths import PLANTED, HotPath, Traffic

WARM, ROUNDS = 2, 3
PLANTED_ROUNDS = 1
LEAST = 0.02
"""Functions that are called less often for a unit are not kept."""


class Least:
    """The least of several counts, name by name."""

    def __init__(self) -> None:
        self._counts: list[Mapping[str, int]] = []

    def add(self, counts: Mapping[str, int]) -> None:
        """One round's."""
        self._counts.append(dict(counts))

    def for_each(self, units: int) -> dict[str, float]:
        """The least of all rounds, for a unit."""
        names = set.intersection(*(set(counts) for counts in self._counts))
        least = {n: min(counts[n] for counts in self._counts) / units for n in sorted(names)}
        return {name: round(times, 3) for name, times in least.items() if times >= LEAST}


async def calls_of(path: HotPath, meter: CallMeter, rounds: int, found: Figures) -> None:
    """Counts function calls, statements, and what goes by the network."""
    functions, statements, seen = Least(), Least(), list[Traffic]()
    for _ in range(rounds):
        meter.begin()
        seen.append(await path.round(meter))
        functions.add(meter.by_function())
        statements.add(meter.statements)
    found.details["calls"] = functions.for_each(path.units)
    found.details["statements"] = statements.for_each(path.units)
    found.totals["datagrams"] = min(one.datagrams for one in seen) / path.units
    found.totals["bytes"] = min(one.size for one in seen) / path.units


async def memory_of(path: HotPath, rounds: int, found: Figures) -> None:
    """How much memory a round takes at its height."""
    peaks = []
    for _ in range(rounds):
        meter = MemoryMeter()
        await path.round(meter)
        peaks.append(meter.peak)
    found.totals["memory_bytes"] = min(peaks) / path.units


class Calibrated:
    """A meter that says how many stretches went by it."""

    def __init__(self, meter: SyscallMeter) -> None:
        self._meter = meter
        self.stretches = 0

    def __enter__(self) -> object:
        self.stretches += 1
        return self._meter.__enter__()

    def __exit__(self, *why: Any) -> None:
        self._meter.__exit__(*why)


async def syscalls_of(
    paths: Sequence[HotPath], rounds: int, begin: Callable[[HotPath], AbstractContextManager[None]]
) -> dict[str, dict[str, float]]:
    """The system calls of all paths, by their names; `begin` stands around each path."""
    meter = SyscallMeter()
    meter.attach()
    done: list[tuple[HotPath, int]] = []
    for path in paths:
        with begin(path):
            for _ in range(rounds):
                counted = Calibrated(meter)
                await path.round(counted)
                done.append((path, counted.stretches))
    stretches = iter(meter.detach([thread for path in paths for thread in path.threads]))
    least: dict[str, Least] = {path.name: Least() for path in paths}
    for path, count in done:
        least[path.name].add(sum((next(stretches) for _ in range(count)), Counter()))
    return {path.name: least[path.name].for_each(path.units) for path in paths}


@contextlib.contextmanager
def planted(path: HotPath, found: Figures | None) -> Iterator[None]:
    """Extra calls in the path, a little more than is tolerated of what was `found`: of functions,
    of the kernel, of the database, and a datagram. Without `found` nothing."""
    if found is None:
        yield
        return
    owner, name = path.seam
    real = getattr(owner, name)
    more = {metric: int(total * TOLERANCE * 1.5) + 1 for metric, total in found.totals.items()}
    kept: list[bytes] = []

    def with_more(*words: Any, **options: Any) -> Any:
        for _ in range(more["calls"]):
            another_call()
        for _ in range(more["syscalls"]):
            os.getppid()
        for _ in range(more["statements"]):
            database.execute("SELECT 1")
        if path.listens is not None:
            sender.sendto(PLANTED, path.listens)
        kept.append(bytes(more["memory_bytes"] + 100))
        return real(*words, **options)

    with (
        contextlib.closing(sqlite3.connect(":memory:", check_same_thread=False)) as database,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        setattr(owner, name, with_more)
        try:
            yield
        finally:
            setattr(owner, name, real)


def _another_call() -> None:
    """One call more."""


another_call = FunctionType(
    _another_call.__code__.replace(co_filename="planted.py", co_qualname="another_call"), {}
)
"""As if it stood in the product: what the tests call is not counted."""


async def measure(
    paths: Sequence[HotPath], meter: CallMeter, plant: Mapping[str, Figures] | None = None
) -> dict[str, Figures]:
    """The figures of these paths; with what is planted by those of before."""

    rounds = PLANTED_ROUNDS if plant else ROUNDS

    def begin(path: HotPath) -> AbstractContextManager[None]:
        return planted(path, plant[path.name] if plant else None)

    gc.disable()  # when it runs depends on what was before, and profiled Python 3.11 fails in it
    found = {path.name: Figures(path.unit) for path in paths}
    for path in paths:
        with begin(path):
            for _ in range(WARM):
                await path.round(contextlib.nullcontext())
            await calls_of(path, meter, rounds, found[path.name])
            await memory_of(path, rounds, found[path.name])
    for name, counts in (await syscalls_of(paths, rounds, begin)).items():
        found[name].details["syscalls"] = counts
    for path in paths:
        found[path.name].add_up()
    return found


async def main(plant: bool) -> None:
    """The paths of the boot service, then those of a head; what is planted is measured in another
    head, which has done the same before."""
    meter = CallMeter()
    meter.install()
    with Lab() as lab, contextlib.closing(Machines(lab.rack)) as machines:
        enter(lab.head)
        boot = await boot_paths(lab, machines)
        found = {"measured": await measure(boot, meter), "planted": {}}
        async with head_paths(lab.folder / "head") as paths:
            found["measured"] |= await measure(paths, meter)
        if plant:
            found["planted"] = await measure(boot, meter, found["measured"])
            async with head_paths(lab.folder / "planted") as paths:
                found["planted"] |= await measure(paths, meter, found["measured"])
    print(written(found))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] == ["--planted"]))
