"""The worst night: 10,000 nodes, a third of them dark, a roll under way, and what an administrator
sees of it. Run with `python -m tests.bench.trouble [NODES]`.

The head is one in a process of its own; its nodes are HELLOs. What is planted: the last third is
dark, PLANTED nodes were given up on before that for two reasons, some are in maintenance, and a
roll goes on. `explain_lines` and `explain_s` are of `layercake explain` (the median of RUNS, with
the start of the program), `status_lines` of `layercake status`. `alerts` is what a chat is told from
the first silent node on. `height_px` is the first page at 1280 pixels with all areas that scroll,
`interactive_s` from nothing in the browser's cache until it shows the causes and answers a key,
`pixel_p99_ms` from the datagram of a node until its cell of the rack has another colour.
All node sets that are shown, by the page and by the command line, have to be exactly what is
planted. The last line is one JSON object.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from imageapi.store.store import ImageStore
from layercake.agents import pki
from layercake.features.guard.guard import Guard
from layercake.features.rolls.manager import Rolls
from layercake.features.rolls.operations import Ask
from layercake.features.webhooks.formats import alerts
from layercake.fleet.store import Event
from layercake.head.life import THREAD_S
from layercake.inventory.ranges import fold, names_of
from layercake.kraken.converge import Barred
from tests.bench._history import quantile
from tests.bench.dashboard import Head, interactive, inventory, pixels, signed_in
from tests.support.api import token
from tests.support.dashboard import chromium
from tests.support.world import World

NODES, RUNS = 10_000, 5
HELLO_S = 5
PLANTED = 20
SAMPLES = 100
GATHER_S = 15.0


class Night:
    """The site, and what is planted in it."""

    def __init__(self, world: World, count: int) -> None:
        names = [f"n{number:05d}" for number in range(count)]
        third = count // 3
        self._world = world
        self._told: list[str] = []
        self._batch: list[Event] = []
        self.dark = names[-third:]
        self.lit = names[:-third]
        self.given_up = {
            "no answer of its BMC": self.lit[40 : 40 + PLANTED // 2],
            "its power supply trips": self.lit[40 + PLANTED // 2 : 40 + PLANTED],
        }
        self.maintained = self.lit[70:74]
        self.rolled = self.lit[80:480]

    def _speak(self, names: list[str]) -> None:
        for name in names:
            image = "ACTIVE" if self._world.node(name).wanted else "IDLE"
            self._world.send(self._world.hello(name, image=image))

    async def fall(self) -> None:
        """All is well, and then it is not."""
        world = self._world
        for name in (*self.dark, *self.lit):
            world.attach(name)
        self._speak([*self.dark, *self.lit])
        for record in world.head.store:
            record.acked = record.cfg_revision
        await self._roll()
        world.head.store.listen(self._hear)
        for text, names in self.given_up.items():
            for place, name in enumerate(names):
                record = world.node(name)
                world.head.engine.post(record, Barred(f"{text}: no answer in {place} s"))
        await world.ops.care.begin(fold(self.maintained), "new boards", "ann", None)
        for _ in range(100 // HELLO_S):
            self._speak(self.lit)
            world.tick(HELLO_S)
            await world.head.part(Rolls).advance()

    async def _roll(self) -> None:
        world = self._world
        for name in ("one", "two"):
            file = world.directory / f"{name}.squashfs"
            file.write_bytes(b"hsqs" + name.encode() * 10)
            world.head.part(ImageStore).add(file, name, {"systemd": False})
        await world.ops.rolls.start(fold(self.rolled), Ask("two", by="ann"))

    def _hear(self, event: Event) -> None:
        """Gathers what a chat is told, in batches."""
        if event.severity not in ("warning", "error"):
            return
        if self._batch and event.at - self._batch[0].at > GATHER_S:
            self._send()
        self._batch.append(event)

    def _send(self) -> None:
        news = [event for event in self._batch if not self._expected(event.node)]
        self._told += [alert.line for alert in alerts(news)]
        self._batch = []

    def messages(self) -> list[str]:
        """What a chat was told."""
        self._send()
        return self._told

    def _expected(self, name: str) -> bool:
        record = self._world.head.store.lookup(name)
        return record is not None and (
            record.care.maintenance is not None or self._world.head.part(Guard).spares(record)
        )

    def truth(self) -> dict[str, list[str]]:
        """What is to be seen, by a word of each cause."""
        return {"outage": self.dark, **self.given_up, "maintenance": self.maintained}


async def serve(directory: Path, count: int) -> None:
    """The head: says what is planted, and has a node say what each line of its input wants."""
    sys.setswitchinterval(THREAD_S)
    pki.create(directory / "pki", "127.0.0.1")
    world = World(directory)
    world.settings = msgspec.structs.replace(world.settings, socket=str(directory / "api.sock"))
    world.head.settings = world.settings
    world.open()
    await world.ops.inventory.apply(inventory(count), "rack.yaml", None, True)
    night, api = Night(world, count), world.head.api()
    await night.fall()
    await world.head.database.flush(world.head.store)
    await api.start()
    bearer = (await token(world.head, "bench", "operator"))["Authorization"].partition(" ")[2]
    facts = {
        "port": api.port,
        "token": bearer,
        "truth": {word: fold(names) for word, names in night.truth().items()},
        "alerts": night.messages(),
    }
    print(json.dumps(facts), flush=True)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while line := (await reader.readline()).split():
        at = time.time()
        world.send(world.hello(line[1].decode(), image=line[2].decode()))
        print(at, flush=True)


def command(socket: Path, *words: str) -> tuple[list[str], float]:
    """The lines that a command prints on a pipe, and how long it takes."""
    argv = [sys.executable, "-m", "layercake.cli.main", *words]
    begin = time.perf_counter()
    environment = {**os.environ, "LAYERCAKE_SOCKET": str(socket)}
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, check=False)
    if done.stderr:
        raise SystemExit(f"layercake {' '.join(words)}: {done.stderr}")
    return done.stdout.splitlines(), time.perf_counter() - begin


def shown(lines: list[str]) -> Iterator[tuple[str, str]]:
    """(what is wrong, nodes) of the lines of `layercake explain`."""
    for line, after in itertools.pairwise(lines):
        if match := re.match(r"  nodes:  ([^;]+)", after):
            yield line, match[1]
        if match := re.search(r"frozen or in maintenance: (.*)", after):
            yield after, match[1]


def check(found: list[tuple[str, str]], truth: dict[str, str], where: str) -> None:
    """Each planted set is shown once, exactly as it is."""
    for word, nodes in truth.items():
        its = [names for text, names in found if word in text]
        if [sorted(names_of(names)) for names in its] != [sorted(names_of(nodes))]:
            raise SystemExit(f"{where} does not show {word} of {nodes}: {its}")


_HEIGHT = """
() => document.documentElement.scrollHeight
    + [...document.querySelectorAll("*")].reduce((sum, one) =>
        one === document.documentElement || one === document.body ? sum
        : sum + Math.max(0, getComputedStyle(one).overflowY === "visible" ? 0 : one.scrollHeight - one.clientHeight), 0)
"""
_SETS = """
() => [...document.querySelectorAll(".cause, .stopped-too")].map(one =>
    [(one.querySelector("h3") ?? one).textContent, one.querySelector(".range")?.textContent ?? ""])
"""


async def page(head: Head, pki_of: Path, count: int) -> dict[str, float]:
    """The first screen; then the rack, in which a node changes."""
    async with chromium(pki_of) as browser, signed_in(browser, head) as view:
        begin = time.perf_counter()
        await view.page.goto(f"{head.url}/dashboard/", wait_until="commit")
        await view.page.wait_for_selector(".cause", state="visible")
        await view.page.keyboard.press("Tab")
        await view.page.evaluate("() => new Promise(requestAnimationFrame)")
        found = {"interactive_s": time.perf_counter() - begin}
        check([tuple(one) for one in await view.page.evaluate(_SETS)], head.facts["truth"], "page")
        found["height_px"] = float(await view.page.evaluate(_HEIGHT))
        await interactive(view.page, head, count)
        found["pixel_p99_ms"] = quantile(await pixels(view.page, head, SAMPLES), 0.99)
        if view.complaints():
            raise SystemExit(f"the page complains: {view.complaints()[:3]}")
    return found


def main() -> None:
    """Everything, or the head alone."""
    words = sys.argv[1:]
    if words[:1] == ["--head"]:
        asyncio.run(serve(Path(words[1]), int(words[2])))
        return
    count = int(words[0]) if words else NODES
    with tempfile.TemporaryDirectory(prefix="lct") as scratch, contextlib.ExitStack() as stack:
        place = Path(scratch)
        head = Head(place, count, module="tests.bench.trouble")
        stack.callback(head.end)
        runs = [command(place / "api.sock", "explain") for _ in range(RUNS)]
        check(list(shown(runs[0][0])), head.facts["truth"], "explain")
        status, _ = command(place / "api.sock", "status")
        for line in head.facts["alerts"]:
            print(f"alert: {line[:150]}")
        found: dict[str, float] = {
            "explain_lines": len(runs[0][0]),
            "explain_s": statistics.median(seconds for _, seconds in runs),
            "status_lines": len(status),
            "alerts": len(head.facts["alerts"]),
            **asyncio.run(page(head, place / "pki", count)),
        }
    print(json.dumps({key: round(value, 3) for key, value in found.items()}))


if __name__ == "__main__":
    main()
