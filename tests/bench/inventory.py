"""What the history of the inventory costs, and how fast it is read and undone. `python -m
tests.bench.inventory [N] [--changes M]`.

A whole head that is not started, with N nodes (10,000). First all of them are added, then all
change, twice, then M times one of them (300). `commit_ms` is what the commit of a change of all nodes takes
of the head's loop, processor time, with what is noted before the change is written; `commit_one_ms`
the same of one node. `slice_ms` is how long the loop stood still at most while all were committed,
`follow_s` how long it took until they were. `log_s`, `log_node_s`, `blame_s`, `show_s` and `diff_s`
(of all nodes) are read as a person reads them, the first of each of three; `revert_plan_s` plans the
undoing of a change of one node, `revert_all_plan_s` of that of all. `git_mb` is the repository. The
last line is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from layercake.agents import pki
from layercake.api.caller import Caller
from layercake.base.process import THRESHOLDS
from layercake.features.history.feature import FOLDER
from layercake.features.history.history import History, Repositories
from layercake.features.history.operations import PastInventories
from layercake.features.inventory.reading import Readers
from layercake.fleet.transaction import Transaction
from layercake.head.head import Head
from layercake.head.life import THREAD_S
from layercake.head.settings import Settings
from layercake.moduleapi.module import Role
from tests.bench._stalls import Stalls
from tests.bench.plan import ADDRESS, inventory
from tests.support.operations import Operations

ADMIN = Caller("bench", "local", Role.ADMIN)
TIMES = 3


class Noted:
    """What the head's loop spends on noting changes before they are written."""

    def __init__(self, history: History) -> None:
        self._accept = history.accept
        self.seconds = 0.0
        self.worst = 0.0

    def __call__(self, transaction: Transaction) -> None:
        began = time.thread_time()
        self._accept(transaction)
        took = time.thread_time() - began
        self.seconds += took
        self.worst = max(self.worst, took)


@contextlib.asynccontextmanager
async def followed(
    history: History, noted: Noted, found: dict[str, float], name: str, stalls: Stalls | None = None
) -> AsyncIterator[None]:
    """Has what changes inside committed, and notes what that took. With `stalls`, also how long the
    loop stood still, which takes of its time."""
    noted.seconds = noted.worst = 0.0
    yield
    gc.collect()
    looking = asyncio.create_task(stalls.measure()) if stalls is not None else None
    await asyncio.sleep(0.01)
    began = time.perf_counter()
    used = time.thread_time()
    if not await history.follow():
        raise SystemExit(history.trouble)
    found[f"{name}_ms"] = (time.thread_time() - used + noted.seconds) * 1000
    found[f"{name}_follow_s"] = time.perf_counter() - began
    if looking is not None and stalls is not None:
        looking.cancel()
        found[f"{name}_slice_ms"] = 1000 * max(stalls.worst, noted.worst)


async def fastest(work: Callable[[], Awaitable[Any]]) -> float:
    """Seconds of the fastest of some."""
    taken = []
    for _ in range(TIMES):
        began = time.perf_counter()
        await work()
        taken.append(time.perf_counter() - began)
    return min(taken)


async def run(directory: Path, count: int, changes: int) -> dict[str, float]:
    """One size."""
    pki.create(directory / "pki", ADDRESS)
    (directory / "boot").mkdir()
    head = Head(directory, Settings(interface="lo", address=ADDRESS, prefix=10))
    sys.setswitchinterval(THREAD_S)
    gc.set_threshold(*THRESHOLDS)
    head.load()
    history = head.part(History)
    past = head.part(PastInventories)
    noted = Noted(history)
    head.desire.accepting = noted
    wanted = Operations(head).inventory
    found: dict[str, float] = {}
    async with followed(history, noted, found, "add"):
        await wanted.apply(inventory(count, each=True), "bench.yaml", None, False)
    gc.freeze()
    async with followed(history, noted, found, "commit"):
        await wanted.apply(inventory(count, each=True, firmware="bios"), "bench.yaml", None, False)
    async with followed(history, noted, found, "again", Stalls()):
        await wanted.apply(inventory(count, each=True), "bench.yaml", None, False)
    every = await past.log(ADMIN, "", 1, "")
    ones: list[float] = []
    for number in range(changes):
        name = f"n{number * 7 % count:06d}"
        one: dict[str, float] = {}
        async with followed(history, noted, one, "one"):
            await wanted.change(name, {"kernel_args": f"bench={number}"}, ())
        ones.append(one["one_ms"])
    found["commit_one_ms"] = sorted(ones)[len(ones) // 2]
    await past.history.caught_up()
    work: dict[str, Callable[[], Awaitable[Any]]] = {
        "log": lambda: past.log(ADMIN, "", 30, ""),
        "log_node": lambda: past.log(ADMIN, "n000007", 30, ""),
        "blame": lambda: past.blame(ADMIN, "n000007", "HEAD"),
        "show": lambda: past.show(ADMIN, "", "HEAD"),
        "diff": lambda: past.diff(ADMIN, "", every["changes"][0]["revision"] + "~1", "HEAD"),
        "revert_plan": lambda: past.plan_revert("HEAD~5", ""),
        "revert_all_plan": lambda: past.plan_revert(every["changes"][0]["revision"], "keep"),
    }
    for name, one_work in work.items():
        found[f"{name}_s"] = await fastest(one_work)
    files = [path for path in (directory / FOLDER).rglob("*") if path.is_file()]
    found["git_mb"] = sum(path.stat().st_size for path in files) / 1e6
    await head.part(Repositories).close()
    await head.part(Readers).close()
    await head.database.close(head.store)
    return found


def main() -> None:
    """Measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=10_000)
    parser.add_argument("--changes", type=int, default=300)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="layercake-inventory-") as scratch:
        found = asyncio.run(run(Path(scratch), options.count, options.changes))
    found["slice_ms"] = found.pop("again_slice_ms")
    del found["again_ms"], found["again_follow_s"]
    found["follow_s"] = found.pop("commit_follow_s")
    print(json.dumps({name: round(value, 3) for name, value in found.items()}))


if __name__ == "__main__":
    main()
