"""A head with nodes of two groups, whose agents are played: what they are asked is carried out by
what a real node has for it."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from imageapi.events import unheard
from imageapi.node.container.runtime import Runtime
from imageapi.node.imageset.imageset import ImageSet
from layercake.features.remote.operations import Remote
from layercake.kraken.errors import OperationFailed
from layercake.kraken.wire import node_text, peek
from layercake.node.commands import Commands
from layercake.node.wiring import open_url
from tests.support.world import World, opened

NODES = ("n0", "n1", "n2", "n3")
INVENTORY = """
groups: {even: {}, odd: {}}
nodes:
""" + "".join(
    f'  n{i}: {{mac: "52:54:00:00:00:1{i}", ip: 10.1.0.1{i}, groups: [{"odd" if i % 2 else "even"}]}}\n'
    for i in range(4)
)


class PlayedNode:
    """The agent of a node: it is told by a datagram, and fetches what is wanted of it. One that is
    `deaf` does neither, one that is `mute` fetches and answers nothing. `says` are its answers
    where it does not carry out what it is asked."""

    def __init__(self, world: World, name: str, directory: Path) -> None:
        self.record = world.node(name)
        self.root = directory / "root"
        self.root.mkdir(parents=True)
        run = directory / "run"
        run.mkdir()
        images = ImageSet(run, Runtime(run), open_url, unheard)
        self.world = world
        self.deaf = self.mute = False
        self.says: dict[str, Any] | None = None
        self.asked: list[Mapping[str, Any]] = []
        self.commands = Commands(images, run, self._content, self.root)
        self._loop = asyncio.get_running_loop()

    def _content(self, digest: str) -> bytes:
        data = self.world.head.part(Remote).content(self.record, digest)
        if data is None:
            raise OperationFailed("cannot fetch the file: the head answers 404")
        return data

    def fetch(self) -> None:
        """Fetches its desired state, and does what it is asked."""
        if self.deaf:
            return
        requests = self.world.head.kernel.requests.document(self.record)["requests"]
        if self.mute:
            return
        known = {request["key"] for request in self.asked}
        for request in requests:
            if request["key"] not in known:
                self.asked.append(request)
                self._begin(request)
        self.commands.cancel_others({request["key"] for request in requests})

    def _begin(self, request: Mapping[str, Any]) -> None:
        def answer(body: Mapping[str, Any]) -> None:
            self._loop.call_soon_threadsafe(self.resolve, request["id"], dict(body))

        if self.says is None:
            self.commands.begin(request, answer)
        else:
            answer(self.says)

    def resolve(self, number: int, body: dict[str, Any]) -> None:
        self.world.head.kernel.requests.resolve(self.record, number, body)


class Fleet:
    """The nodes, by name."""

    def __init__(self, world: World, directory: Path) -> None:
        self.world = world
        for number, name in enumerate(NODES):
            session = world.attach(name)
            world.node(name).session = dataclasses.replace(session, number=100 + number)
            world.send(world.hello(name))
        self.nodes = {name: PlayedNode(world, name, directory / name) for name in NODES}
        world.client.setblocking(False)
        asyncio.get_running_loop().add_reader(world.client, self._readable)

    def __getitem__(self, name: str) -> PlayedNode:
        return self.nodes[name]

    def _readable(self) -> None:
        data = self.world.client.recv(2048)
        node = self.world.head.store.find(node_text(peek(data)[0]))
        assert node is not None
        self.nodes[node.name].fetch()

    def close(self) -> None:
        """Tells the nodes of nothing more."""
        asyncio.get_running_loop().remove_reader(self.world.client)
        for node in self.nodes.values():
            node.commands.cancel_others(set())


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with opened(tmp_path) as found:
        await found.ops.inventory.apply(INVENTORY, "rack.yaml", None, True)
        yield found


@pytest.fixture
async def fleet(world: World, tmp_path: Path) -> AsyncIterator[Fleet]:
    found = Fleet(world, tmp_path / "nodes")
    yield found
    found.close()
