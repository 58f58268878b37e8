"""Ten thousand agents in one process: real datagrams, real pulls and events over TLS with each node's own credentials.

They share one UDP socket and a pool of TLS connections that are open before the roll, as each agent's own is; the head tells
agents apart by their sessions, not by their addresses. Staging takes them STAGE_S and a switch SWITCH_S; both are waited for,
not worked for.

    python -m tests.bench._simagents DIRECTORY
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import heapq
import itertools
import json
import random
import signal
import socket
import ssl
import sys
import time
import uuid
from collections import deque
from pathlib import Path
from typing import Any

from layercake.kraken.errors import WireError
from layercake.kraken.variables import Layout
from layercake.kraken.wire import bearer, node_text, peek
from minos.agent.bond.sync import HelloTimer, SyncCodec, Wanted
from tests.bench._simhead import ADDRESS

CONNECTIONS = 256
STAGE_S, SWITCH_S = (0.05, 0.3), (0.05, 0.3)
EVENTS_S = 0.25
HELLO_S = 5.0
SILENT_SHARE = 0.3  # of the agents fall silent at SIGUSR1, until SIGUSR2 (guard.py)


class SimAgent:
    """One node."""

    def __init__(self, facts: dict[str, Any], epoch: int, layout: Layout) -> None:
        key, node = base64.b64decode(facts["key"]), uuid.UUID(facts["node"]).bytes
        self.codec = SyncCodec(node, facts["session"], key, epoch, layout.digest)
        self.authorization = bearer(key, node, facts["session"])
        self.timer = HelloTimer(HELLO_S)
        self.revision = self.newest = self.changes = 0
        self.pulling = False
        self.running: Any = None
        self.wanted: Any = None
        self.state = "IDLE"
        self.staged: set[str] = set()


class Swarm:
    """All of them, their timers in one heap, and the pool of connections."""

    def __init__(self, directory: Path) -> None:
        data = json.loads((directory / "agents.json").read_text())
        self.layout = Layout.from_wire(data["layout"])
        self.agents = {a["node"]: SimAgent(a, data["epoch"], self.layout) for a in data["agents"]}
        self.mask = self.layout.mask("image") | self.layout.mask("busy") | self.layout.mask("run")
        self.packed = {s: self.layout.pack({"run": "SYNC", "busy": "FREE", "image": s}) for s in ("IDLE", "ACTIVE", "UPDATE")}
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)
        self.socket.setblocking(False)
        self.socket.connect((ADDRESS, 31415))
        self.work: deque[tuple[SimAgent, str, bytes]] = deque()
        self.more = asyncio.Event()
        self.timers: list[tuple[float, int, Any]] = []
        self.count = 0
        self.silent: set[SimAgent] = set()
        self.turns, self.firsts = asyncio.Semaphore(16), itertools.cycle(list(self.agents.values()))
        self.tls = ssl.create_default_context(cafile=str(directory / "pki/ca.pem"))

    # -- datagrams

    def silence(self) -> None:
        """A share of the agents says nothing from now on."""
        self.silent = set(list(self.agents.values())[:round(len(self.agents) * SILENT_SHARE)])

    def speak(self) -> None:
        """They are back, and say HELLO."""
        back, self.silent = self.silent, set()
        for agent in back:
            self.later(random.uniform(0.0, 5.0), lambda agent=agent: self.hello(agent))

    def hello(self, agent: SimAgent) -> None:
        if agent in self.silent:
            agent.timer.due = time.monotonic() + HELLO_S
            return
        data = agent.codec.hello(time.clock_gettime_ns(time.CLOCK_BOOTTIME), revision=agent.revision, changes=agent.changes,
                                 mask=self.mask, state=self.packed[agent.state])
        with contextlib.suppress(BlockingIOError):
            self.socket.send(data)
        agent.timer.said(time.monotonic(), random.random())

    def readable(self) -> None:
        for _ in range(256):
            try:
                data = self.socket.recv(2048)
            except (BlockingIOError, ConnectionError):
                return
            try:
                agent = self.agents[node_text(peek(data)[0])]
                said = agent.codec.receive(data)
            except (WireError, KeyError):
                continue
            agent.timer.answered(time.monotonic(), random.random())
            if isinstance(said, Wanted) and said.revision > agent.newest:
                agent.newest = said.revision
                self.pull(agent)

    # -- what an agent does

    def pull(self, agent: SimAgent) -> None:
        if not agent.pulling:
            agent.pulling = True
            self.send(agent, "GET /node/v1/desired", b"")

    def send(self, agent: SimAgent, line: str, body: bytes) -> None:
        self.work.append((agent, line, body))
        self.more.set()

    def tell(self, agent: SimAgent, *events: dict[str, Any]) -> None:
        self.send(agent, "POST /node/v1/events", json.dumps(events).encode())

    def later(self, seconds: float, what: Any) -> None:
        self.count += 1
        heapq.heappush(self.timers, (time.monotonic() + seconds, self.count, what))

    def desired(self, agent: SimAgent, document: dict[str, Any]) -> None:
        """Takes a desired state over."""
        agent.pulling = False
        agent.revision = document["revision"]
        if agent.newest > agent.revision:
            self.pull(agent)
        stage = {i["digest"]: i for i in document["stage"]}
        for digest in stage.keys() - agent.staged:
            data = {"digest": digest, "name": stage[digest]["name"]}
            event = {"kind": "image.staged", "text": "ready", "data": data}
            self.later(random.uniform(*STAGE_S), lambda event=event: self.tell(agent, event))
        agent.staged = set(stage)
        images = [i["digest"] for i in document["images"]]
        if images != agent.wanted:
            agent.wanted = images
            agent.state, agent.changes = "UPDATE" if agent.running is not None else "IDLE", agent.changes + 1
            self.later(random.uniform(*SWITCH_S), lambda: self.switched(agent, images))
        self.hello(agent)

    def switched(self, agent: SimAgent, images: list[str]) -> None:
        if agent.wanted == images and agent.running != images:
            agent.running, agent.state, agent.changes = images, "ACTIVE", agent.changes + 1
            self.hello(agent)
            events = [{"kind": kind, "text": kind, "data": {"gap_ms": 40.0, "total_s": 0.2}}
                      for kind in ("image.prepared", "image.started", "image.rolled")]
            self.later(EVENTS_S, lambda: self.tell(agent, *events))

    # -- loops

    async def clockwork(self) -> None:
        """Timers and HELLOs that are due."""
        order, at = list(self.agents.values()), 0
        while True:
            now = time.monotonic()
            while self.timers and self.timers[0][0] <= now:
                heapq.heappop(self.timers)[2]()
            for agent in order[at:at + 500]:
                if agent.timer.due <= now:
                    self.hello(agent)
            at = at + 500 if at + 500 < len(order) else 0
            await asyncio.sleep(0.01)

    async def connection(self, opened: asyncio.Semaphore) -> None:
        """One of the pool: carries out requests one after the other."""
        async with self.turns:
            reader, writer = await asyncio.open_connection(ADDRESS, 8443, ssl=self.tls)
            first = next(self.firsts)  # who has not said who it is has few places at the head's door
            writer.write(f"GET /node/v1/desired HTTP/1.1\r\nHost: head\r\nAuthorization: {first.authorization}\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))
        opened.release()
        while True:
            while not self.work:
                self.more.clear()
                await self.more.wait()
            agent, line, body = self.work.popleft()
            method, path = line.split()
            length = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
            header = f"{method} {path} HTTP/1.1\r\nHost: head\r\nAuthorization: {agent.authorization}\r\n{length}\r\n"
            writer.write(header.encode() + body)
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            answer = await reader.readexactly(size)
            if not head.startswith(b"HTTP/1.1 200"):
                raise SystemExit(f"{line}: {head!r} {answer!r}")
            if method == "GET":
                self.desired(agent, json.loads(answer))

    async def run(self) -> None:
        """Until killed."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self.socket.fileno(), self.readable)
        loop.add_signal_handler(signal.SIGUSR1, self.silence)
        loop.add_signal_handler(signal.SIGUSR2, self.speak)
        opened = asyncio.Semaphore(0)
        async with asyncio.TaskGroup() as group:
            for _ in range(CONNECTIONS):
                group.create_task(self.connection(opened))
            for _ in range(CONNECTIONS):
                await opened.acquire()
            for agent in self.agents.values():
                self.later(random.uniform(0.0, 5.0), lambda agent=agent: self.hello(agent))
                agent.timer.due = float("inf")
            group.create_task(self.clockwork())


if __name__ == "__main__":
    asyncio.run(Swarm(Path(sys.argv[1])).run())
