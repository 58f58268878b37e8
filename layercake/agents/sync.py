"""State sync with the nodes: one UDP socket, read until it is empty, no task per node.

A node's HELLO carries its packed discovered state; every HELLO is answered with DESIRED. Datagrams
of an earlier life of the head or of a node's earlier boot are refused (epoch, session, sequence).
So are those of nodes that follow another head by now, which has a higher epoch than this one. A
node that is silent for `dead_s` is lost; one that something else speaks against (its firmware asks
for a boot program, its BMC says it is off) is probed and is lost if it does not answer within
`probe_s`.
"""

from __future__ import annotations

import asyncio
import enum
import itertools
import logging
import math
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from layercake.agents.repeated_hello import RepeatedHello
from layercake.agents.settings import SyncSettings
from layercake.agents.throttle import PullThrottle
from layercake.base.clock import Clock
from layercake.base.datagrams import DatagramServer
from layercake.fleet import events
from layercake.fleet.engine import Engine
from layercake.fleet.site_heads import SiteHeads
from layercake.fleet.store import Record, Session, Store
from layercake.fleet.table import Table
from layercake.kraken.converge import Discovered, Released
from layercake.kraken.errors import WireError
from layercake.kraken.wire import (
    FRESH,
    NODE,
    Datagram,
    Kind,
    ReplayGuard,
    answer,
    decode,
    encode,
    genuine,
    heads_epoch,
    node_text,
    peek,
)

log = logging.getLogger("layercake.sync")
COUNTED = ("hello", "challenged", "refused", "layout", "deaf", "unsent")
"""What is counted of datagrams."""
_DRAIN = 32  # datagrams at a stretch: each may set off much
# at 2,000 HELLOs a second: half of the processor that a turn of the loop for each few takes
_GATHER_S = 0.008
# turns of reading that surely empty the socket of a busy head
_QUEUED = 1024
_CALLED = 50
_CALL_S = 0.02
"""Nodes that are called at a time, and seconds until the next: 10,000 in 4 s."""
_SURE = 2
"""HELLOs after which a node that was asked is known to speak: one may have been on its way
before."""


class Loss(enum.Enum):
    """Why a node is held for lost."""

    SILENT = "nothing came from it"
    FIRMWARE = "its firmware asked for a boot program"
    BMC_OFF = "its BMC says that it is off"


@dataclass(slots=True)
class _Asked:
    """A node that was asked whether it speaks, since when, how often it was heard since, and who
    wants to know."""

    since: float
    answer: Callable[[bool], None]
    heard: int = 0


def in_sync(record: Record, now: float) -> bool:
    """Whether a node's agent speaks, as far as that is known: of one that was not heard since this
    head began, how it was before, for as long as it is waited for."""
    values = record.values()
    if record.remembered is not None and record.machine.held_until > now:
        values = record.remembered.fill(values)
    return record.session is not None and values["run"] == "SYNC"


class Sync:
    """The sync socket and the liveness of the nodes."""

    def __init__(
        self,
        store: Store,
        heads: SiteHeads,
        engine: Engine,
        timers: SyncSettings,
        addresses: Sequence[str],
        table: Table,
        clock: Clock,
        on_lost: Callable[[Record, Loss, str], None],
        on_heard: Callable[[Record, str], None],
    ) -> None:
        self._store = store
        self._heads = heads
        self._engine = engine
        self.timers = timers
        self._addresses = addresses
        self._clock = clock
        self._on_lost = on_lost
        self._on_heard = on_heard
        self._scanned = clock()
        self._listening_since = float("-inf")
        self._alive = table.alive
        self._values = {v.name: v.values for v in table.variables}
        self._of_nodes = tuple(table.of_nodes - {"run"})
        self._servers = [
            DatagramServer(
                partial(self._datagram_received, number),
                at_once=_DRAIN,
                gather_s=_GATHER_S,
                failed=self._failed,
                clock=clock,
            )
            for number in range(len(addresses))
        ]
        self._heard_by: dict[int, int] = {}  # session -> which of them, where it is not the first
        self._guards: dict[int, ReplayGuard] = {}
        self._numbers = itertools.count(1)  # of DESIRED; a node's guard begins anew with each epoch
        self._suspects: dict[str, tuple[float, Loss]] = {}  # node id -> (since, why)
        self._asked: dict[str, _Asked] = {}
        self._ended: dict[str, Session] = {}  # node id -> its session before
        self._repeated: dict[bytes, RepeatedHello] = {}  # by the node's 16 bytes
        self._repeated_epoch = store.epoch
        self._due: dict[
            int, list[str]
        ] = {}  # second -> nodes that may have fallen silent by then; each node stands there once
        self._watched: set[str] = set()  # the nodes that stand there
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))
        self.coming = PullThrottle()

    def open(self) -> None:
        """Binds a socket to each of the head's addresses and reads them from the running event
        loop."""
        for server, address in zip(self._servers, self._addresses, strict=True):
            server.open((address, self.port or self.timers.port))

    def close(self) -> None:
        """Closes the sockets."""
        for server in self._servers:
            server.close()

    def read(self) -> bool:
        """Reads some of what has arrived. Says whether there may be more."""
        more = False
        for server in self._servers:
            more = server.read() or more
        return more

    @property
    def port(self) -> int:
        """The UDP port in use, 0 while the sockets are closed."""
        first = self._servers[0].socket
        return int(first.getsockname()[1]) if first is not None else 0

    @staticmethod
    def _failed(error: OSError) -> None:
        log.warning("cannot read the sync socket: %s", error)

    def _datagram_received(self, server: int, data: bytes, address: tuple[str, int]) -> None:
        try:
            self.receive(data, address[:2], server)  # of IPv6 there is more to it
        except WireError as error:
            self.counters["refused"] += 1
            log.debug("datagram from %s refused: %s", address[0], error)

    def receive(self, data: bytes, address: tuple[str, int], server: int = 0) -> None:
        """Handles one datagram, which came to that one of the head's addresses. Raises WireError if
        it is malformed, forged, replayed or of an unknown session."""
        if self._again(data, address, server):
            return
        node, number = peek(data)
        record = self._store.find(node_text(node))
        if record is not None and (record.session is None or record.session.number != number):
            self._stale(record, number, data, address)
        if record is None or record.session is None or record.session.number != number:
            raise WireError("cannot take a datagram: its node or session is not known")
        datagram = decode(data, record.session.key)
        if datagram.kind is not Kind.HELLO:
            raise WireError("cannot take a datagram: only HELLO comes from a node")
        if server != self._heard_by.get(number, 0):
            self._heard_by[number] = server
            self._repeated.pop(node, None)
        if datagram.epoch != self._store.epoch:
            self._challenge(record, datagram, address, server)
            return
        if not self._guards.setdefault(number, ReplayGuard()).accept(datagram.sequence):
            raise WireError("cannot take a datagram: its sequence number was used before")
        self._remember(record, data, server, self._hello(record, datagram, address))

    def _challenge(
        self, record: Record, datagram: Datagram, address: tuple[str, int], server: int
    ) -> None:
        """Has a node speak under the epoch of now. Raises WireError for one that follows another
        head by now."""
        if self._heads.outdated(heads_epoch(datagram.epoch)):
            raise WireError("cannot take a datagram: the node follows another head by now")
        self.counters["challenged"] += 1
        self._send(record, Kind.CHALLENGE, address, datagram.sequence, server=server)

    def _again(self, data: bytes, address: tuple[str, int], server: int) -> bool:
        """Takes a HELLO that says what the last one said, of a node of which nothing else has
        changed: 8 us where another one takes 28 (one node, in a tight loop). It checks the same,
        in the same order. Says whether it was one."""
        if self._repeated_epoch != self._store.epoch:  # this head has begun to act
            self._repeated.clear()
            self._repeated_epoch = self._store.epoch
        hello = self._repeated.get(data[NODE])
        if hello is None or not hello.says_the_same(data, server):
            return False
        record = hello.record
        key = record.node.id
        if key in self._asked or not hello.holds(self._store.find(key)):
            return False
        if not genuine(data, hello.session.key):
            raise WireError("cannot accept datagram: its tag is wrong")
        if not hello.guard.accept(int.from_bytes(data[FRESH], "big")):
            raise WireError("cannot take a datagram: its sequence number was used before")
        self.counters["hello"] += 1
        self._note_heard(record, address)
        if hello.busy is not None:
            self._on_heard(record, hello.busy)
        datagram = answer(data, next(self._numbers), hello.says, hello.session.key)
        self._send_to(record, datagram, server, address)
        return True

    def _note_heard(self, record: Record, address: tuple[str, int]) -> float:
        """A node was heard, from this address; the time."""
        now = record.last_seen = self._clock()
        self._suspects.pop(record.node.id, None)
        if address != record.address:
            record.address = address
            self._store.mark(record)
        return now

    def _remember(self, record: Record, data: bytes, server: int, values: dict[str, str]) -> None:
        """Keeps what a HELLO said that would change nothing if it was said again."""
        session = record.session
        known = record.values()
        if (
            session is None
            or record.machine.active is not None
            or record.machine.held_until
            or any(known.get(k) != v for k, v in values.items())
        ):
            self._repeated.pop(data[NODE], None)
            return
        guard = self._guards[session.number]
        self._repeated[data[NODE]] = RepeatedHello.of(record, session, data, guard, server)

    def _hello(
        self, record: Record, datagram: Datagram, address: tuple[str, int]
    ) -> dict[str, str]:
        """Takes what a HELLO says, and answers. Returns the values that it tells of variables."""
        state = self._unpacked(record, datagram)
        self.counters["hello"] += 1
        self._watch(record.node.id, self._note_heard(record, address))
        run = state["run"] if state["run"] in ("INIT", "SYNC") else "SYNC"
        values = {**self._alive, "run": run} | {
            k: state[k] for k in self._of_nodes if state.get(k) in self._values[k]
        }
        if record.value("run") != "SYNC" and run == "SYNC":
            self._store.event(record, events.SYNC_ATTACHED, f"the agent speaks (from {address[0]})")
        acked = record.acked
        record.acked = datagram.cfg_revision
        if run == "SYNC":
            self._on_heard(record, state["busy"])
        self._engine.discover(record, values, "the agent says so")
        if record.machine.held_until:  # what the head waited for after its start
            self._engine.post(record, Released())
        is_running = state["image"] == "ACTIVE" and self._runs_wanted(record)
        if is_running or acked != record.acked:
            self._store.mark(record)
        self._answer(record, address)
        return values

    def _unpacked(self, record: Record, datagram: Datagram) -> dict[str, str]:
        """The variables in a datagram. Raises WireError."""
        layout = (record.session and record.session.layout) or record.planner.layout
        if datagram.layout != layout.digest or not layout.valid(datagram.state):
            self.counters["layout"] += 1
            raise WireError("cannot take a datagram: its state is packed by another layout")
        return layout.unpack(datagram.state)

    @staticmethod
    def _runs_wanted(record: Record) -> bool:
        """The images of a node that has the newest desired state are active. Says whether they are
        others than were known to run."""
        if record.acked != record.cfg_revision or record.running == record.wanted:
            return False
        record.running = record.wanted
        return True

    def _answer(self, record: Record, address: tuple[str, int]) -> None:
        """Answers a HELLO, and whoever waits to hear that the node speaks."""
        asked = self._asked.get(record.node.id)
        self._send(record, Kind.DESIRED, address, probe=asked is not None)
        if asked is not None:
            asked.heard += 1
            if asked.heard >= _SURE:
                del self._asked[record.node.id]
                asked.answer(True)

    def push(self, record: Record) -> None:
        """Tells a node at once that its desired state has changed. A lost datagram is made good by
        its next HELLO."""
        if record.session is not None and record.address is not None:
            self._send(record, Kind.DESIRED, record.address)

    async def call_nodes(self) -> None:
        """Has the nodes speak that spoke before this head began, those first that are to do
        something. Each would speak by itself in `hello_s`."""
        expected = [record for record in self._store if self.expects(record)]
        expected.sort(key=lambda r: r.care.order is None and r.acked == r.cfg_revision)
        for number, record in enumerate(expected):
            if number % _CALLED == 0:
                await asyncio.sleep(_CALL_S)
            if record.last_seen is None:
                self.push(record)

    def suspect(self, record: Record, why: Loss) -> None:
        """Something speaks against a node being alive: asks it, and gives it `probe_s` to
        answer."""
        if record.node.id not in self._suspects:
            self._suspects[record.node.id] = (self._clock(), why)
            if record.address is not None:
                self._send(record, Kind.DESIRED, record.address, probe=True)

    def expects(self, record: Record) -> bool:
        """Whether a node's agent is in sync, as far as is known (`in_sync`)."""
        return in_sync(record, self._clock())

    def speaks(self, record: Record) -> bool:
        """Whether a node's agent was heard not long ago: its datagrams, or its join."""
        session = record.session
        joined = None if session is None else session.joined
        seen = joined if record.last_seen is None else record.last_seen
        return (
            record.value("run") in ("INIT", "SYNC")
            and seen is not None
            and self._clock() - seen <= self.timers.dead_s
        )

    def probe(self, record: Record, answer: Callable[[bool], None]) -> None:
        """Finds out whether a node speaks: calls `answer` with True when it does, with False when
        nothing comes in `probe_s`. What it said before it was asked, and a busy head has not read
        yet, is no answer."""
        for _ in range(_QUEUED):
            if not self.read():
                break
        self._asked[record.node.id] = _Asked(self._clock(), answer)
        if record.address is not None:
            self._send(record, Kind.DESIRED, record.address, probe=True)

    def end(self, record: Record) -> None:
        """A node's session is about to end: what goes on to speak with it is told of, once, and not
        listened to."""
        if record.session is not None:
            self._ended[record.node.id] = record.session
        self.forget(record)

    def _stale(self, record: Record, number: int, data: bytes, address: tuple[str, int]) -> None:
        session = self._ended.get(record.node.id)
        if session is None or session.number != number:
            return
        decode(data, session.key)
        del self._ended[record.node.id]
        self._store.event(
            record,
            events.SESSION_STALE,
            f"{address[0]} still speaks with the session that ended when the node was "
            "switched off or booted anew: the BMC did not do what it said, or somebody has taken "
            "the session",
            data={"address": address[0]},
        )

    def forget(self, record: Record) -> None:
        """Drops what is kept of a node that is gone or has joined anew."""
        self._repeated.pop(uuid.UUID(record.node.id).bytes, None)
        self._asked.pop(record.node.id, None)
        self._suspects.pop(record.node.id, None)
        if record.session is not None:
            self._guards.pop(record.session.number, None)
            self._heard_by.pop(record.session.number, None)

    def scan(self) -> None:
        """Finds the nodes that have fallen silent; called once a second.

        A head that did not listen itself (a busy or suspended machine) has nobody to blame: it
        listens for `dead_s` first. Nor has one that does not keep up with what it hears: a node
        that is said to be silent may have spoken long ago.
        """
        now = self._clock()
        timers = self.timers
        deaf = now - self._scanned
        self._scanned = now
        if max(deaf, *(server.behind_s for server in self._servers)) > timers.dead_s / 3:
            self._listening_since = now
            self.counters["deaf"] += 1
        if now - self._listening_since < timers.dead_s:
            return
        for key in [k for k, asked in self._asked.items() if now - asked.since > timers.probe_s]:
            self._asked.pop(key).answer(False)
        due = [
            key for second in [s for s in self._due if s <= now] for key in self._due.pop(second)
        ]
        self._watched.difference_update(due)
        for key in dict.fromkeys((*self._suspects, *due)):
            record = self._store.find(key)
            if record is not None and record.last_seen is not None:
                self._judge(record, record.last_seen, now)

    def _watch(self, key: str, seen: float) -> None:
        """Has a node looked at when it was silent for `dead_s`. Nothing is done at each HELLO: who
        was heard is put back."""
        if key not in self._watched:
            self._watched.add(key)
            self._due.setdefault(math.floor(seen + self.timers.dead_s), []).append(key)

    def _judge(self, record: Record, seen: float, now: float) -> None:
        """Whether a node is lost that was last heard at `seen`."""
        timers = self.timers
        suspect = self._suspects.get(record.node.id)
        if suspect is not None and now - suspect[0] > timers.probe_s:
            self._lost(
                record,
                suspect[1],
                f"{suspect[1].value}, and it did not answer in {timers.probe_s:.0f} s",
            )
        elif now - seen > timers.dead_s and (suspect is not None or record.value("run") == "SYNC"):
            self._lost(record, Loss.SILENT, f"{Loss.SILENT.value} for {timers.dead_s:.0f} s")
        self._watch(record.node.id, seen if now - seen <= timers.dead_s else now)

    def _lost(self, record: Record, loss: Loss, why: str) -> None:
        self._suspects.pop(record.node.id, None)
        self._store.event(record, events.SYNC_LOST, f"lost: {why}")
        self._engine.post(record, Discovered({"run": "ERROR"}, why))
        self._on_lost(record, loss, why)

    def _send(
        self,
        record: Record,
        kind: Kind,
        address: tuple[str, int],
        sequence: int | None = None,
        *,
        probe: bool = False,
        server: int | None = None,
    ) -> None:
        if record.session is None:
            return
        goal = record.machine.goal
        layout = record.planner.layout
        datagram = Datagram(
            kind=kind,
            node=uuid.UUID(record.node.id).bytes,
            session=record.session.number,
            epoch=self._store.epoch,
            sequence=next(self._numbers) if sequence is None else sequence,
            cfg_revision=record.cfg_revision,
            dsc_revision=0 if probe else record.dsc_revision,
            layout=layout.digest,
            mask=goal.mask,
            state=goal.value,
        )
        if server is None and record.last_seen is None:
            server = self._facing(record)
        elif server is None:
            server = self._heard_by.get(record.session.number, 0)
        self._send_to(record, encode(datagram, record.session.key), server, address)

    def _facing(self, record: Record) -> int:
        """Which of the head's addresses a node speaks to that was not heard yet."""
        own = self._heads.own_address(record).strip("[]")
        return self._addresses.index(own) if own in self._addresses else 0

    def _send_to(self, record: Record, data: bytes, server: int, address: tuple[str, int]) -> None:
        sock = self._servers[server].socket
        if sock is None:
            return
        try:
            sock.sendto(data, address)
        except OSError as error:  # the node's next HELLO brings the next chance
            self.counters["unsent"] += 1
            log.debug("cannot send to %s: %s", record.name, error)
