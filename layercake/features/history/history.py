"""Follows the database: each change that is accepted becomes a commit, one after the other, outside
of the request.

What is to be committed is written with the change itself, in the database, and stays there until
it is in the repository: a head that is killed goes on where it was. A repository that cannot be
used stops no change; it is said once, and caught up when it can be.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from layercake.base.clock import Clock
from layercake.features.history.messages import HEAD, Told
from layercake.features.history.normal import PartLayout
from layercake.features.history.worker import Answer, Change, Question
from layercake.fleet import events
from layercake.fleet.networks import DOCUMENTS as NETWORKS
from layercake.fleet.networks import SiteNetworks
from layercake.fleet.store import Store
from layercake.fleet.transaction import EntryChange, Origin, Transaction
from layercake.inventory.schema import Node
from layercake.kraken.errors import LayercakeError, NotFound, OperationFailed
from layercake.moduleapi.event_loop.slices import slowly
from layercake.moduleapi.network import Network
from layercake.moduleapi.sandboxed_job import Bounds, SandboxedJob

log = logging.getLogger("layercake.history")
DOCUMENTS = "history/"
BOUNDS = Bounds(seconds=120.0, memory=4 << 30, answer=256 << 20, waiting=20)
VIEWING = Bounds(seconds=30.0, memory=2 << 30, answer=64 << 20, waiting=10)
_MODULE = "layercake.features.history.worker"
KEPT_WHOLE = 100
"""A change of more nodes is in the database without its content: after a kill that is part of the
commit which catches up."""
MOST_WAITING = 1000
"""So many changes wait for the repository; of more only the last state is committed."""
MOST_NODES = 50_000
"""And so many nodes of these changes, all together: they are held as they were before."""
AGAIN_S = 15.0
"""Seconds until a repository that could not be written is tried again."""
PACKED_EVERY = 200
"""Commits between two packings."""
MEND = "`layercake inventory rebuild`"
CAUGHT_UP = "catch up with the database"
Networks = Mapping[str, Network]
_Wanted = tuple[str, Node | None, bool]
_AT_ONCE = 250
"""Nodes that are encoded together: 0.5 ms."""


@dataclass(slots=True)
class _Waiting:
    """A change that is not committed yet. `nodes` are those that changed; None: not known any more,
    all are compared then. `networks` are all before and after, None if they stay. `change` is what
    the database has of one that was accepted before the head has started (`again`)."""

    told: Told
    nodes: Mapping[str, EntryChange] | None = None
    networks: tuple[Networks, Networks] | None = None
    change: Change | None = None
    again: bool = False


@dataclass(slots=True)
class Repositories:
    """The processes that work on the repository at `path`: one writes, one reads for those who may
    change something, and one for those who may only look: these keep the others waiting for
    nothing."""

    path: Path
    writer: SandboxedJob = field(
        default_factory=lambda: SandboxedJob(
            "write the inventory's history", BOUNDS, urgent=True, rests=0.0
        )
    )
    reader: SandboxedJob = field(
        default_factory=lambda: SandboxedJob(
            "read the inventory's history", BOUNDS, urgent=True, rests=0.2
        )
    )

    viewers: SandboxedJob = field(
        default_factory=lambda: SandboxedJob("read the inventory's history", VIEWING, rests=0.2)
    )

    async def request(self, question: Question, job: SandboxedJob) -> Any:
        """What comes of a question that one of them is asked. Raises NotFound for a revision that
        there is not, Refused, OperationFailed."""
        data = await asyncio.to_thread(msgspec.msgpack.encode, question)
        async with job.turn():
            raw = await job.request(_MODULE, data)
        found = await asyncio.to_thread(msgspec.msgpack.decode, raw, type=Answer)
        if found.missing:
            raise NotFound(
                f"cannot find the revision: {found.error or 'the history has none such'}",
                hint="`layercake inventory log` lists them",
            )
        if found.error:
            raise OperationFailed(
                f"cannot use the inventory's history: {found.error}", hint=f"{MEND} mends it"
            )
        return found.found

    async def close(self) -> None:
        """Ends the processes."""
        await self.writer.close()
        await self.reader.close()
        await self.viewers.close()


class History:
    """Keeps the repository as the database is."""

    def __init__(
        self,
        store: Store,
        networks: SiteNetworks,
        layouts: Mapping[str, PartLayout],
        repositories: Repositories,
        clock: Clock,
    ) -> None:
        self._store = store
        self._networks = networks
        self._layouts = dict(layouts)
        self._repositories = repositories
        self._clock = clock
        self._waiting: deque[_Waiting] = deque()
        self._number = 0
        self._opened = False
        self._known = False
        self._since = 0.0
        self._until_packed = PACKED_EVERY
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()
        self.trouble = ""

    # ----- what is accepted

    def load(self, documents: Mapping[str, bytes]) -> None:
        """Takes over what was accepted and is not committed yet."""
        for key in sorted(documents):
            try:
                change = msgspec.msgpack.decode(documents[key], type=Change)
            except msgspec.MsgspecError:  # of another version: its content is in the nodes
                self._store.documents[key] = lambda: b""
                continue
            self._number = max(self._number, change.told.number)
            kept = None if change.whole else change
            self._waiting.append(_Waiting(change.told, change=kept, again=True))
        # Nobody knows how far a repository is that cannot be read: not as far as the time, in ms.
        self._number = max(self._number, int(self._store.wall() * 1000))
        self._waiting.append(_Waiting(self._own()))
        self._wake.set()

    def accept(self, transaction: Transaction) -> None:
        """Notes a change that is about to be written, if it is one of the inventory."""
        nodes = transaction.entries()
        networks = any(key.startswith(NETWORKS) for key in transaction.documents)
        if not (nodes or networks or transaction.what):
            return
        self._number += 1
        origin = transaction.origin or Origin(HEAD)
        told = Told(
            self._number,
            self._store.wall(),
            origin.by or HEAD,
            origin.why,
            origin.how,
            origin.token,
            origin.address,
            "; ".join(filter(None, (origin.doing, transaction.what))),
        )
        small = len(nodes) <= KEPT_WHOLE and not networks
        wanted = [(name, c.after, c.held) for name, c in nodes.items()] if small else []
        kept = Change(told, [_raw(wanted)], whole=not small, always=True)
        data = msgspec.msgpack.encode(kept)
        transaction.documents[_key(self._number)] = lambda: data
        before = self._networks.by_name if networks else None
        transaction.after(self._accepted, _Waiting(told, nodes), before)

    def _accepted(self, waiting: _Waiting, networks: Networks | None) -> None:
        if networks is not None:
            waiting.networks = networks, self._networks.by_name
        nodes = sum(len(one.nodes or ()) for one in (*self._waiting, waiting))
        if self._waiting and (len(self._waiting) >= MOST_WAITING or nodes > MOST_NODES):
            for one in self._waiting:
                self._forget(one)
            self._waiting.clear()
            self._waiting.append(_Waiting(self._own()))
        self._waiting.append(waiting)
        self._wake.set()

    def _own(self) -> Told:
        """A commit of the head's own."""
        return Told(0, self._store.wall(), why=CAUGHT_UP)

    # ----- what is committed

    async def run(self) -> None:
        """Commits what is accepted, until it is cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not await self.follow():
                asyncio.get_running_loop().call_later(AGAIN_S, self._wake.set)

    async def follow(self) -> bool:
        """Commits all that waits; whether that could be done."""
        try:
            async with self._turn:
                await self._open()
                while self._waiting:
                    waiting = self._waiting[0]
                    await self._commit(waiting)
                    if self._waiting and self._waiting[0] is waiting:
                        self._waiting.popleft()
                    self._forget(waiting)
        except LayercakeError as error:
            self._unwell(error.message)
            return False
        except Exception as error:  # it is tried again: no process could be started, or a bug
            log.exception("the inventory's history cannot be written")
            self._unwell(str(error) or type(error).__name__)
            return False
        self._well()
        return True

    def _forget(self, waiting: _Waiting) -> None:
        """It is committed: the database need not keep it."""
        if waiting.told.number:
            self._store.documents[_key(waiting.told.number)] = lambda: b""

    async def caught_up(self) -> None:
        """Returns when all that was accepted is committed. Raises OperationFailed if that cannot
        be."""
        if self._waiting and not await self.follow():
            raise OperationFailed(
                f"cannot use the inventory's history: {self.trouble}", hint=f"{MEND} mends it"
            )

    async def _open(self) -> None:
        """Looks how far the repository is. The first time, nobody but a git that was killed with
        the head can have left a lock, and what the head could not note any more as committed is
        left out."""
        if self._opened:
            return
        found = await self._request("open", options={"unlock": not self._known})
        if not self._known:
            for one in list(self._waiting):
                if one.again and one.told.number <= found["number"]:
                    self._waiting.remove(one)
                    self._forget(one)
        self._known = self._opened = True
        self._number = max(self._number, found["number"])
        if not found["head"] and self._waiting and self._waiting[0].nodes is not None:
            self._waiting.appendleft(_Waiting(self._own()))

    async def _commit(self, waiting: _Waiting) -> None:
        change = waiting.change or await self._change(waiting)
        made = await self._request("commit", change)
        if made:
            self._until_packed -= 1
            if self._until_packed <= 0:
                self._until_packed = PACKED_EVERY
                await self._request("maintain")

    async def _change(self, waiting: _Waiting) -> Change:
        """What is to be committed, a little of it at a time."""
        if waiting.nodes is None:
            return await self._whole(waiting)
        nodes = await _encoded([(n, c.after, c.held) for n, c in waiting.nodes.items()])
        networks = waiting.networks and _plain(waiting.networks[1])
        return Change(waiting.told, nodes, networks)

    async def _whole(self, waiting: _Waiting) -> Change:
        """All nodes and networks as they were before what waits behind it."""
        now = {record.name: (record.node, record.held is not None) for record in self._store}
        networks = self._networks.by_name
        for later in reversed(list(self._waiting)[1:]):
            for name, change in (later.nodes or {}).items():
                if change.before is None:
                    now.pop(name, None)
                else:
                    now[name] = change.before, change.was_held
            networks = networks if later.networks is None else later.networks[0]
        nodes = await _encoded([(name, node, held) for name, (node, held) in now.items()])
        return Change(waiting.told, nodes, _plain(networks), whole=True, always=waiting.again)

    async def _request(
        self, ask: str, change: Change | None = None, options: Mapping[str, Any] | None = None
    ) -> Any:
        question = Question(
            str(self._repositories.path), ask, change, self._layouts, dict(options or {})
        )
        return await self._repositories.request(question, self._repositories.writer)

    async def rebuild(self) -> dict[str, Any]:
        """Mends the repository, or begins another, and catches up. Raises OperationFailed."""
        found: dict[str, Any] = await self._request("rebuild")
        self._opened = False
        self._waiting.append(_Waiting(self._own()))
        if not await self.follow():
            raise OperationFailed(f"cannot rebuild the inventory's history: {self.trouble}")
        return found

    # ----- how it is

    def _unwell(self, why: str) -> None:
        why = why.removeprefix("cannot use the inventory's history: ")
        self._opened = False
        if not self.trouble:
            self._since = self._clock()
            self._store.event(
                None,
                events.HISTORY_BEHIND,
                f"the inventory's history cannot be written: {why}; changes are accepted all the "
                f"same, and committed once it can; {MEND} mends it",
            )
        self.trouble = why

    def _well(self) -> None:
        if self.trouble:
            self.trouble = ""
            self._store.event(
                None, events.HISTORY_CAUGHT_UP, "the inventory's history has caught up"
            )

    def view(self) -> dict[str, Any]:
        """What `layercake status` shows: {"well", "trouble", "waiting": changes to be committed,
        "since_s"}."""
        return {
            "well": not self.trouble,
            "trouble": self.trouble,
            "waiting": len(self._waiting),
            "since_s": round(self._clock() - self._since, 1) if self.trouble else None,
        }


def _plain(networks: Networks) -> dict[str, dict[str, Any]]:
    return {name: msgspec.to_builtins(network) for name, network in networks.items()}


def _key(number: int) -> str:
    return f"{DOCUMENTS}{number:012}"


def _raw(some: Sequence[_Wanted]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(some))


async def _encoded(nodes: Sequence[_Wanted]) -> list[msgspec.Raw]:
    """The nodes in MessagePack, a few at a time."""
    parts = (nodes[at : at + _AT_ONCE] for at in range(0, len(nodes), _AT_ONCE))
    return [_raw(part) async for part in slowly(parts)]
