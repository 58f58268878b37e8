"""The hot paths of the head, with nodes that are played: a HELLO, a change of a node's state, a
node of an apply, and a node of a roll.

The head is a whole one, with its database, and without its loops: each round has it do what its
loops would, and waits for nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from layercake.agents.sync import Sync
from layercake.features.rolls.manager import Rolls
from layercake.fleet.engine import Engine
from layercake.fleet.transaction import Transaction
from tests.costs.counting import Meter
from tests.costs.paths import HotPath, Traffic
from tests.support.rollnodes import Site, inventory
from tests.support.world import World

NODES, STEPS = 24, 200


class QuietWorld(World):
    """A head that reads what nodes have sent only when the round has it do so."""

    def send(self, data: bytes) -> None:
        self.client.sendto(data, ("127.0.0.1", self.port))

    def answers(self, sent: list[bytes]) -> Traffic:
        """What went by the network: this, and the answers to it that have come."""
        seen = Traffic()
        for data in sent:
            seen.add(data)
        seen.rest(self.client)
        return seen


class Rounds:
    """The rounds, over one head."""

    def __init__(self, world: QuietWorld, site: Site) -> None:
        self.world, self.site = world, site
        self._turn, self._image, self._busy = 0, "one", "FREE"

    def _say(self) -> list[bytes]:
        said = [self.world.hello(n, image="ACTIVE", busy=self._busy) for n in self.site.agents]
        for data in said:
            self.world.send(data)
        return said

    async def hello(self, meter: Meter) -> Traffic:
        """Each node says what it said before."""
        said = self._say()
        with meter:
            while self.world.head.sync.read():
                pass
        return self.world.answers(said)

    async def change(self, meter: Meter) -> Traffic:
        """Each node says that it is BUSY, or FREE again: it is noted, and written."""
        self._busy = "FREE" if self._busy == "BUSY" else "BUSY"
        said = self._say()
        with meter:
            while self.world.head.sync.read():
                pass
            self.world.head.engine.tick()
            await self.world.head.database.flush(self.world.head.store)
        return self.world.answers(said)

    async def apply(self, meter: Meter) -> Traffic:
        """An inventory in which each node has another kernel command line."""
        self._turn += 1
        line = f"defaults: {{kernel_args: turn={self._turn}}}\n"
        text = line + inventory(NODES, self._image)
        with meter:
            await self.world.ops.inventory.apply(text, "test.yaml", None, True)
        return self.world.answers([])

    async def roll(self, meter: Meter) -> Traffic:
        """All nodes to another image, in batches of a quarter."""
        self._turn += 1
        head, rolls = self.world.head, self.world.head.part(Rolls)
        self._image = ("two", "three")[self._turn % 2]
        with meter:
            roll = await self.site.start("@all", self._image, batch="25%", health_s=0.0)
        for _ in range(STEPS):
            if rolls.get(roll.id).over:
                break
            for agent in self.site.agents.values():
                agent.turn()
            with meter:
                while head.sync.read():
                    pass
                self.world.tick(1)
                rolls.tick()
                await rolls.advance()
                await head.database.flush(head.store)
        if self.site.roll(roll.id)["state"] != "done":
            raise SystemExit(f"the roll failed: {self.site.roll(roll.id)}")
        return self.world.answers([])


@contextlib.asynccontextmanager
async def head_paths(directory: Path) -> AsyncIterator[list[HotPath]]:
    """The paths, in the order in which they can be measured, of a head that has started here."""
    directory.mkdir()
    world = QuietWorld(directory)
    site = Site(world)
    try:
        world.open()
        await site.up(NODES)
        world.head.sync.read()
        rounds, client = Rounds(world, site), world.client.getsockname()
        yield [
            HotPath("hello", "HELLO", NODES, rounds.hello, (Sync, "receive"), (), client),
            HotPath("change", "change", NODES, rounds.change, (Engine, "discover"), (), client),
            HotPath("roll", "node", NODES, rounds.roll, (Transaction, "change"), (), client),
            HotPath("apply", "node", NODES, rounds.apply, (Transaction, "change"), (), client),
        ]
    finally:
        await world.close_head()
        world.client.close()
