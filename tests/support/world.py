"""A head without its services: the store, the engine, the sync socket on loopback, and a clock that
tests move."""

from __future__ import annotations

import contextlib
import select
import socket
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from aiohttp.typedefs import Handler

from layercake.agents.settings import SyncSettings
from layercake.features.guard.guard import Guard
from layercake.features.history.history import Repositories
from layercake.features.inventory.reading import Readers
from layercake.fleet.store import Event, Record, Session
from layercake.head.head import Head
from layercake.head.settings import Settings
from layercake.kraken.wire import Datagram, Kind, decode, encode
from tests.support.clock import FakeClock
from tests.support.operations import Operations

INVENTORY = """
defaults: {console: ttyS0, images: []}
nodes:
  n0: {mac: "52:54:00:00:00:10", ip: 10.1.0.10}
  n1: {mac: "52:54:00:00:00:11", ip: 10.1.0.11, firmware: uefi}
"""


Answer = Callable[[str, Any], Awaitable[Any]]


class World:
    """A head and what a test does around it."""

    def __init__(
        self, directory: Path, sections: Mapping[str, Any] | None = None, **settings: Any
    ) -> None:
        self.directory = directory
        self.clock = FakeClock()
        self.settings = Settings(
            interface="lo",
            address="127.0.0.1",
            sync=SyncSettings(port=0),
            api_port=0,
            sections={"files": {"directory": str(directory / "site")}, **(sections or {})},
            **settings,
        )
        self.head = Head(directory, self.settings, self.clock)
        self.head.nodes.intake.flood_s = 0.0
        self.ops = Operations(self.head)
        self.client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.client.bind(("127.0.0.1", 0))
        self.client.settimeout(2.0)
        self.sequence = 0

    def open(self) -> None:
        self.head.load()
        self.head.part(Guard).written = lambda node: True  # nothing is, unless a test flushes
        self.head.sync.open()

    async def restart(self) -> None:
        """The head ends (as by kill -9, after its last flush) and another starts over the same
        directory."""
        await self.head.database.flush(self.head.store)
        await self.close_head()
        self.head = Head(self.directory, self.settings, self.clock)
        self.head.nodes.intake.flood_s = 0.0
        self.ops = Operations(self.head)
        self.open()

    def answer_calls(self, monkeypatch: pytest.MonkeyPatch, answer: Answer) -> None:
        """Has `answer(call, params)` answer what is asked of modules, in their place."""

        async def call(module: str, name: str, params: Mapping[str, Any], timeout: float) -> Any:
            return await answer(name, params)

        monkeypatch.setattr(self.head.modules.host, "call", call)

    async def close_head(self) -> None:
        await self.head.part(Guard).stop()
        await self.head.part(Readers).close()
        await self.head.part(Repositories).close()
        self.head.sync.close()
        await self.head.database.close(self.head.store)

    @property
    def port(self) -> int:
        return self.head.sync.port

    def node(self, name: str) -> Record:
        return self.head.store.named(name)

    def tick(self, seconds: float) -> None:
        """Time passes, a second at a time, as the head's loops see it."""
        for _ in range(round(seconds)):
            self.clock.now += 1.0
            self.head.engine.tick()
            self.head.sync.scan()
            self.head.part(Guard).tick()
            self.head.listener.manual_power.tick()

    def attach(self, name: str) -> Session:
        """Gives a node a session, as a join would."""
        session = Session(7, b"k" * 32, "boot-1", self.clock())
        self.node(name).session = session
        return session

    def hello(
        self,
        name: str,
        epoch: int | None = None,
        sequence: int | None = None,
        key: bytes | None = None,
        **values: str,
    ) -> bytes:
        """A HELLO of a node that says it is in sync."""
        record = self.node(name)
        assert record.session is not None
        self.sequence += 1
        layout = record.planner.layout
        state = layout.pack(
            {"power": "ON", "run": "SYNC", "image": "IDLE", "busy": "FREE", **values}
        )
        return encode(
            Datagram(
                kind=Kind.HELLO,
                node=uuid.UUID(record.node.id).bytes,
                session=record.session.number,
                epoch=self.head.store.epoch if epoch is None else epoch,
                sequence=self.sequence if sequence is None else sequence,
                cfg_revision=record.cfg_revision,
                dsc_revision=1,
                layout=layout.digest,
                mask=0,
                state=state,
            ),
            key or record.session.key,
        )

    def send(self, data: bytes) -> None:
        """Sends a datagram to the head, which reads it."""
        self.client.sendto(data, ("127.0.0.1", self.port))
        self.head.sync.read()

    def received(self, name: str) -> Datagram:
        session = self.node(name).session
        assert session is not None
        return decode(self.client.recv(2048), session.key)

    def waiting(self) -> bool:
        """Whether the head has sent what nobody has received yet."""
        return bool(select.select([self.client], [], [], 0)[0])

    def kinds(self, name: str) -> list[str]:
        return [e.kind for e in self.events_of(name)]

    def events_of(self, name: str) -> list[Event]:
        """What was told of a node and is in memory."""
        return self.head.store.recent(name)


def node_client(world: World, address: str = "10.1.0.10") -> TestClient[Any, Any]:
    """What a node calls, as if it came from this address; n0's if none is given."""
    return client_of(world.head.nodes.routes(), address)


def client_of(
    routes: Iterable[web.AbstractRouteDef], address: str = "10.1.0.10"
) -> TestClient[Any, Any]:
    """Calls these routes, as if it came from this address."""

    @web.middleware
    async def comes_from(request: web.Request, handler: Handler) -> web.StreamResponse:
        return await handler(request.clone(remote=address))

    app = web.Application(middlewares=[comes_from])
    app.add_routes(routes)
    return TestClient(TestServer(app))


@contextlib.asynccontextmanager
async def opened(directory: Path, **settings: Any) -> AsyncIterator[World]:
    """A world over a directory, ready with two nodes; with these settings of the head."""
    found = World(directory, **settings)
    try:
        found.open()
        await found.ops.inventory.apply(INVENTORY, "test.yaml", None, False)
        yield found
    finally:
        await found.close_head()
        found.client.close()
