"""A head under test with nodes that answer as agents do: they take the desired state, stage,
switch, and say HELLO."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from imageapi.store.store import ImageStore
from layercake.agents import pki
from layercake.agents.reports import apply_report
from layercake.features.images.document import ImagesDocument
from layercake.features.rolls.facts import Roll
from layercake.features.rolls.manager import Rolls
from layercake.features.rolls.operations import RollStart
from layercake.features.rolls.views import roll_view
from tests.support.world import World


class Agent:
    """One node. `bad` names an image that fails here; a BUSY one does not switch."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.busy = "FREE"
        self.bad = ""
        self.silent = False
        self.runs: list[dict[str, Any]] = []
        self.staged: set[str] = set()
        self.started: list[str] = []
        world.attach(name)

    def turn(self) -> None:
        """Takes what is wanted, does it, and says so."""
        if self.silent:
            return
        record = self.world.node(self.name)
        document = ImagesDocument(lambda digest, node: f"http://head/images/{digest}").of(record)
        stage = {i["digest"]: i for i in document["stage"]}
        for digest in stage.keys() - self.staged:
            self.event("image.staged", {"digest": digest, "name": stage[digest]["name"]})
        self.staged = set(stage)
        image = "ACTIVE" if document["images"] else "IDLE"
        if document["images"] != self.runs:
            if self.busy == "BUSY":
                image = "UPDATE"
            else:
                self.runs = document["images"]
                self.started.append(self.runs[0]["name"] if self.runs else "")
        if any(i["name"] == self.bad for i in self.runs):
            image = "FATAL"
        self.world.send(self.world.hello(self.name, image=image, busy=self.busy))

    def event(self, name: str, data: dict[str, Any]) -> None:
        record, kind = self.world.node(self.name), self.world.head.table.events[name]
        self.world.head.store.event(record, kind, name, data=data)
        if apply_report(record, kind, name, data):
            self.world.head.store.mark(record)


def inventory(count: int, image: str) -> str:
    """An inventory of so many nodes."""
    groups = {0: "[test]", 1: "[small]", 2: "[small]"}
    lines = [
        f'  n{i}: {{mac: "52:54:00:00:01:{i:02x}", ip: 10.1.0.{10 + i}, images: [{image}], groups: '
        f"{groups.get(i, '[]')}, "
        f"bmc: {{driver: ipmi, address: 10.2.0.{10 + i}}}}}"
        for i in range(count)
    ]
    return "\n".join(["groups: {test: {}, small: {}}", "nodes:", *lines])


class Site:
    """A head and its nodes, moved on a second at a time."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.agents: dict[str, Agent] = {}

    async def up(self, count: int) -> None:
        """So many nodes, up, running the image `one`; `two` and `three` are there too. n0 is in
        group test, n1 and n2 in small."""
        for name in ("one", "two", "three"):
            file = self.world.directory / f"{name}.squashfs"
            file.write_bytes(b"hsqs" + name.encode() * 10)
            self.world.head.part(ImageStore).add(file, name, {"systemd": False})
        await self.world.ops.inventory.apply(inventory(count, "one"), "test.yaml", None, True)
        self.agents = {f"n{i}": Agent(self.world, f"n{i}") for i in range(count)}
        await self.step(2)

    async def start(self, text: str, image: str, health_s: Any = 5.0, **ask: Any) -> Roll:
        return await self.world.ops.rolls.start(
            RollStart(text, image, by="ann", health_timeout_s=health_s, **ask)
        )

    async def step(self, seconds: int = 1) -> None:
        for _ in range(seconds):
            for agent in self.agents.values():
                agent.turn()
            self.world.tick(1)
            self.world.head.part(Rolls).tick()
            await self.world.head.part(Rolls).advance()

    async def until_over(self, number: int, seconds: int = 300) -> dict[str, Any]:
        for _ in range(seconds):
            if self.roll(number)["state"] in ("done", "failed", "aborted", "paused"):
                break
            await self.step()
        return self.roll(number)

    def roll(self, number: int) -> dict[str, Any]:
        return roll_view(self.world.head.part(Rolls).get(number), self.world.head.store)

    def running(self) -> dict[str, str]:
        return {name: agent.runs[0]["name"] for name, agent in self.agents.items()}


@asynccontextmanager
async def a_site(directory: Path, count: int, now: float | None = None) -> AsyncIterator[Site]:
    """A head with so many nodes that run the first image; away afterwards. `now`: what its clock
    shows, since the epoch."""
    world = World(directory)
    world.clock.now = now or world.clock.now
    try:
        world.open()
        found = Site(world)
        await found.up(count)
        yield found
    finally:
        await world.close_head()
        world.client.close()


@asynccontextmanager
async def on_socket(directory: Path, count: int, path: Path) -> AsyncIterator[Site]:
    """The same head, with its API on a Unix socket of its own."""
    async with a_site(directory, count) as found:
        head = found.world.head
        head.settings = msgspec.structs.replace(head.settings, socket=str(path))
        pki.create(directory / "pki", "127.0.0.1")
        api = head.api()
        await api.start()
        try:
            yield found
        finally:
            await api.stop()
