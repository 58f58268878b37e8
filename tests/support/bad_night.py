"""The worst night, for the benchmark `trouble`, for tests and for pictures: a site of which a third
is dark, with a roll under way. `python -m tests.bench.trouble --head DIRECTORY NODES` serves it as
a process of its own."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from imageapi.store.store import ImageStore
from layercake.agents import pki
from layercake.features.guard.guard import Guard
from layercake.features.rolls.manager import Rolls
from layercake.features.rolls.operations import RollStart
from layercake.features.webhooks.formats import alerts
from layercake.fleet.store import Event
from layercake.head.life import THREAD_S
from layercake.inventory.ranges import fold, names_of
from layercake.kraken.converge import Barred
from layercake.modules.manager import ServiceState
from tests.support.api import token
from tests.support.world import World

RACK = 40
HELLO_S = 10
PLANTED = 20
GATHER_S = 15.0


def inventory(count: int) -> str:
    """Racks of forty, each in a line."""
    begins = range(0, count, RACK)
    lines = ["groups:", *(f"  rack{i // RACK:03d}: {{domain: true}}" for i in begins), "nodes:"]
    for i in begins:
        last = min(i + RACK, count) - 1
        lines.append(
            f'  n[{i:05d}-{last:05d}]: {{mac: "52:54:00:{i >> 16:02x}:{i >> 8 & 255:02x}:'
            f'{i & 255:02x}+", ip: "10.1.{i >> 8}.{i & 255}+", images: [], '
            f"groups: [rack{i // RACK:03d}]}}"
        )
    return "\n".join(lines)


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
        await world.ops.rolls.start(RollStart(fold(self.rolled), "two", by="ann"))

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
    """The head: says what is planted, and has a node say what each line of its input wants. It has
    the authority in `directory`, if there is one. What is no part of it are its services."""
    sys.setswitchinterval(THREAD_S)
    if not (directory / "pki").exists():
        pki.create(directory / "pki", "127.0.0.1")
    world = World(directory)
    world.settings = msgspec.structs.replace(world.settings, socket=str(directory / "api.sock"))
    world.head.settings = world.settings
    world.open()
    await world.ops.inventory.apply(inventory(count), "rack.yaml", None, True)
    for module in world.head.modules.services.status.values():
        module.state = ServiceState.RUNNING
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
