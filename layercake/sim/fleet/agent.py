"""The agent of one simulated node: its session, what it was told, and what it says of itself. No
sockets: those are the fleet's.

It does what an agent does in seconds that it only waits for: staging, switching images, stopping.
What it says is the protocol of a real one (minos.agent.head_link); its certificate it leaves
unused, so that connections can be shared (links.py).
"""

from __future__ import annotations

import base64
import functools
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from imageapi import events
from layercake.kraken.variables import Layout
from layercake.kraken.wire import bearer
from minos.agent.head_link.sync import Called, HelloTimer, NewEpoch, SyncCodec, TakeOver, Wanted

STAGE_S = (0.05, 0.3)
SWITCH_S = (0.05, 0.3)
EVENTS_S = 0.25


class World(Protocol):
    """What an agent does to the world. `played` is how a node carries a request out
    (commands.played)."""

    played: Callable[[str, Mapping[str, Any]], tuple[float, dict[str, Any]]]

    def send_datagram(self, agent: Agent, data: bytes, head: str = "") -> None:
        """Sends a datagram to the head that acts, or to the one with this address."""

    def send_request(self, agent: Agent, line: str, body: bytes = b"") -> None:
        """Makes a request by TLS; the answer to GET comes to `Agent.desired`."""

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        """Has something done later."""

    def now(self) -> float:
        """Seconds of the steady clock that HELLOs are timed by."""

    @property
    def several(self) -> bool:
        """Whether there are several heads."""

    def jitter(self) -> float:
        """Any number from [0, 1)."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a join gives: the session's number and key, the head's epoch, the layout, seconds
    between two HELLOs."""

    session: int
    key: bytes
    epoch: int
    layout: Layout
    hello_s: float

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Facts:
        """Out of the answer to a join."""
        return cls(
            int(answer["session"]),
            base64.b64decode(answer["key"]),
            int(answer["epoch"]),
            layout_of(json.dumps(answer["layout"])),
            float(answer["hello_s"]),
        )


@functools.lru_cache(maxsize=64)
def layout_of(wire: str) -> Layout:
    """The layout in a JSON text; most nodes have the same one."""
    return Layout.from_wire(json.loads(wire))


@functools.lru_cache(maxsize=1024)
def _packed(layout: Layout, run: str, image: str) -> int:
    return layout.pack({"run": run, "busy": "FREE", "image": image})


@functools.lru_cache(maxsize=64)
def _mask(layout: Layout) -> int:
    return layout.mask("run") | layout.mask("busy") | layout.mask("image")


class Agent:
    """One session. `due` is when its next HELLO is, on the world's clock; `owner` is whose it
    is. One that is `hung` says HELLO, and answers no request."""

    __slots__ = (
        "_answered",
        "_changes",
        "_codec",
        "_facts",
        "_gathered",
        "_newest",
        "_pulling",
        "_staged",
        "_take_over",
        "_timer",
        "_wanted",
        "_world",
        "authorization",
        "hung",
        "image",
        "owner",
        "revision",
        "run",
        "running",
        "told_at",
    )

    def __init__(self, world: World, owner: Any, node: bytes, facts: Facts) -> None:
        self._world = world
        self.owner = owner
        self._facts = facts
        self._codec = SyncCodec(node, facts.session, facts.key, facts.epoch, facts.layout.digest)
        self._timer = HelloTimer(facts.hello_s, lambda: world.several)
        self._take_over = TakeOver(facts.hello_s, lambda: world.several)
        self.authorization = bearer(facts.key, node, facts.session)
        self.revision = self._newest = self._changes = 0
        self._pulling = False
        self.running: list[str] | None = None
        self._wanted: list[str] | None = None
        self.run = "SYNC"
        self.image = "IDLE"
        self._staged: set[str] = set()
        self._answered: set[int] = set()
        self.hung = False
        self._gathered: list[Mapping[str, Any]] = []
        self.told_at = 0.0  # when the fleet looks at it again

    @property
    def due(self) -> float:
        """When the next HELLO is due."""
        return self._timer.due

    @property
    def searching(self) -> bool:
        """Whether it asks all heads, as its own does not answer."""
        return self._timer.searching(self._world.now())

    def hello(self) -> None:
        """Says HELLO."""
        self._world.send_datagram(self, self._hello_data())
        self._timer.hello_sent(self._world.now(), self._world.jitter())

    def _hello_data(self) -> bytes:
        layout = self._facts.layout
        return self._codec.hello(
            time.clock_gettime_ns(time.CLOCK_BOOTTIME),
            revision=self.revision,
            changes=self._changes,
            mask=_mask(layout),
            state=_packed(layout, self.run, self.image),
        )

    def datagram_received(self, data: bytes, caller: str) -> None:
        """Applies a datagram of the head with this address. Raises WireError."""
        try:
            message = self._codec.receive(data)
        except Called:
            self._world.send_datagram(self, self._hello_data(), caller)
            return
        now = self._world.now()
        self._timer.answered(now, self._world.jitter())
        if isinstance(message, NewEpoch):
            self._take_over.begins(message, self._newest, now, self._world.jitter())
            self.hello()
        elif isinstance(message, Wanted):
            if message.probe:
                self.hello()
            if message.revision > self._newest:
                self._newest = message.revision
                self._take_over.news(now)
                self._pull()
        if self._take_over.is_due(now):
            self._newest = 0
            self._pull()

    def _takes(self, span: tuple[float, float]) -> float:
        return span[0] + (span[1] - span[0]) * self._world.jitter()

    def _pull(self) -> None:
        if not self._pulling:
            self._pulling = True
            self._world.send_request(self, "GET /node/v1/desired")

    def broke(self) -> None:
        """A request of it found no head: the next datagram begins it anew."""
        self._pulling = False
        self._newest = self.revision

    def _send_events(self, *told: Mapping[str, Any]) -> None:
        """Tells the head of events, and of those that were gathered before them."""
        told = (*self._gathered, *told)
        if told:
            self._take_over.news(self._world.now())
            self._gathered = []
            self._world.send_request(self, "POST /node/v1/events", json.dumps(told).encode())

    def _gather(self, *told: Mapping[str, Any]) -> None:
        """The same of events that nobody waits for: with what comes soon after."""
        if not self._gathered:
            self._world.later(EVENTS_S, self._send_events)
        self._gathered += told

    def desired(self, document: Mapping[str, Any]) -> None:
        """Takes a desired state over."""
        self._pulling = False
        self.revision = int(document["revision"])
        if self._newest > self.revision:
            self._pull()
        self._newest = max(self._newest, self.revision)
        stage = {i["digest"]: i for i in document["stage"]}
        for digest in stage.keys() - self._staged:
            event = {
                "kind": events.STAGED.name,
                "text": "ready",
                "data": {"digest": digest, "name": stage[digest]["name"]},
            }
            if digest in (self.running or ()):
                self._gather(event)
            else:
                self._world.later(self._takes(STAGE_S), functools.partial(self._send_events, event))
        self._staged = set(stage)
        for request in document["requests"]:
            if request["id"] not in self._answered:
                self._answered.add(request["id"])
                self._carry_out(request)
        self._work_towards(
            []
            if document["goal"].get("power") == "OFF"
            else [i["digest"] for i in document["images"]],
            down=document["goal"].get("power") == "OFF",
        )
        self.hello()

    def _carry_out(self, request: Mapping[str, Any]) -> None:
        """Answers a request of the head, unless the node hangs."""
        if self.hung:
            return
        self._take_over.news(self._world.now())
        seconds, answer = self._world.played(self.owner.identity.name, request)
        line = f"POST /node/v1/answers/{request['id']}"
        send = functools.partial(self._world.send_request, self, line, json.dumps(answer).encode())
        if seconds:
            self._world.later(seconds, send)
        else:
            send()

    def _work_towards(self, images: list[str], *, down: bool) -> None:
        if down:
            self._wanted = images
            self._world.later(self._takes(SWITCH_S), self._stop)
        elif images != self._wanted or self.run != "SYNC":
            self.run = "SYNC"
            self._wanted = images
            self._changes = self._changes + 1
            self.image = "UPDATE" if self.running else "IDLE"
            self._world.later(self._takes(SWITCH_S), functools.partial(self._switch, images))

    def _stop(self) -> None:
        """Nothing runs any more, and the machine may be switched off."""
        if not self._wanted and self.run == "SYNC":
            self.running = None
            self.image = "IDLE"
            self.run = "INIT"
            self._changes = self._changes + 1
            self.hello()

    def _switch(self, images: list[str]) -> None:
        if self._wanted != images or self.run != "SYNC":
            return
        anew = self.running != images
        self.running = images
        self.image = "ACTIVE" if images else "IDLE"
        self._changes = self._changes + 1
        self.hello()
        if images and anew:
            self._gather(
                *(
                    {"kind": kind, "text": kind, "data": {"gap_ms": 40.0, "total_s": 0.2}}
                    for kind in (events.PREPARED.name, events.STARTED.name, events.ROLLED.name)
                )
            )
