"""What is done on many nodes at once: commands, logs, copies of files. Each node is asked through
its agent, by a request in its desired state."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import secrets
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from layercake.agents.https.requests import NodeRequests, NotFetched, RequestLimits
from layercake.agents.node_commands import check_command
from layercake.base.text import count_of
from layercake.features.remote import orders
from layercake.features.remote.answers import Asked, NodeAnswer
from layercake.features.remote.fan_out import FanOut, Limits
from layercake.features.remote.orders import RangeCopy, RangeExec
from layercake.features.remote.settings import FanOutSettings
from layercake.fleet import events
from layercake.fleet.store import Record, Store
from layercake.inventory.ranges import fold
from layercake.kraken.errors import InputError, LayercakeError, OperationFailed
from layercake.kraken.events import EventKind

FETCH_S = 15.0
"""Seconds until a node has to have fetched what it is asked for; less if its time is shorter."""
GRACE_S = 2.0
"""Seconds that a node has for its answer after the time of its command."""
LOG_S = 15.0
MAX_LOG = 1 << 20
SMALL = 4096
"""Bytes of an answer beside the output in it."""
MAX_HELD = 64 << 20
"""Bytes of output that wait for whoever asked; what is beyond that is dropped, and counted."""
SHOWN = 200
_encode = msgspec.json.Encoder().encode
Work = Callable[[Record], Awaitable[NodeAnswer]]


@dataclass(frozen=True, slots=True)
class _Job:
    """What is done on which nodes, by whom; `what` in a few words. `began` and `ended` are the
    kinds of its events, None for what only reads."""

    records: Sequence[Record]
    who: str
    what: str
    container: str = ""
    began: EventKind | None = None
    ended: EventKind | None = None

    @property
    def where(self) -> str:
        """In words."""
        return f"in {self.container}" if self.container else "on the node"


class Remote:
    """Asks many nodes at once."""

    def __init__(self, store: Store, requests: NodeRequests, settings: FanOutSettings) -> None:
        self._store = store
        self._requests = requests
        self._settings = settings
        self._contents: dict[str, bytes] = {}
        self._allowed: Counter[tuple[str, str]] = Counter()

    def execute(self, order: RangeExec, who: str) -> AsyncGenerator[bytes, None]:
        """Runs a command on nodes: JSON lines as they come, Asked and then a NodeAnswer of each.
        Nodes' histories say who ran what, not what it said. Raises InputError."""
        command = check_command(order.command)
        records = self._store.select(orders.check_range(order.range))
        most = self._settings.output_kb * 1000
        request = {
            "kind": "exec",
            "command": command,
            "container": order.container,
            "timeout_s": order.timeout_s,
            "most": most,
        }
        wait = _limits(order.timeout_s, most * 4 // 3 + SMALL)

        async def work(record: Record) -> NodeAnswer:
            answer = await self._send(record, request, wait)
            return _of_command(record.name, answer, order.timeout_s, most)

        shown = " ".join(command)[:SHOWN]
        job = _Job(records, who, shown, order.container, events.NODE_EXEC, events.NODE_EXEC_ENDED)
        return self._lines(job, work, orders.limits(order, self._settings))

    async def copy(self, order: RangeCopy, who: str) -> AsyncGenerator[bytes, None]:
        """Copies a file to nodes; as `execute`."""
        path = orders.check_path(order.path)
        records = self._store.select(orders.check_range(order.range))
        data, digest = await asyncio.to_thread(orders.content_of, order.content)
        request = {
            "kind": "copy",
            "path": path,
            "digest": digest,
            "mode": order.mode,
            "owner": orders.check_owner(order.owner),
            "group": orders.check_owner(order.group),
            "container": order.container,
        }
        wait = _limits(order.timeout_s, SMALL)

        async def work(record: Record) -> NodeAnswer:
            with self._lent(record, digest, data):
                answer = await self._send(record, request, wait)
            return NodeAnswer(record.name, changed=answer.get("changed") is not False)

        what = f"{len(data)} bytes (blake2b {digest[:12]}) to {path}"[:SHOWN]
        job = _Job(records, who, what, order.container, events.NODE_COPY, events.NODE_COPIED)
        return self._lines(job, work, orders.limits(order, self._settings))

    def logs(self, nodes: str, container: str, lines: int) -> AsyncGenerator[bytes, None]:
        """The last lines of a container's log on nodes; of each node's first image if none is
        named. As `execute`."""
        records = self._store.select(orders.check_range(nodes))
        wait = RequestLimits(LOG_S, LOG_S, MAX_LOG)

        async def work(record: Record) -> NodeAnswer:
            name = container or (record.wanted[0].name if record.wanted else "")
            request = {"kind": "logs", "container": name, "lines": max(1, min(lines, 10_000))}
            answer = await self._send(record, request, wait)
            return NodeAnswer(record.name, text=str(answer.get("text", "")))

        return self._lines(_Job(records, "", ""), work, Limits(self._settings.at_once))

    def content(self, record: Record, digest: str) -> bytes | None:
        """What is being copied to a node; None if it is not."""
        return self._contents.get(digest) if self._allowed[(record.node.id, digest)] else None

    @contextlib.contextmanager
    def _lent(self, record: Record, digest: str, data: bytes) -> Iterator[None]:
        """A node may fetch a content meanwhile."""
        key = (record.node.id, digest)
        self._allowed[key] += 1
        self._contents[digest] = data
        try:
            yield
        finally:
            self._allowed[key] -= 1
            if not self._allowed[key]:
                del self._allowed[key]
            if not any(other == digest for _, other in self._allowed):
                self._contents.pop(digest, None)

    async def _send(
        self, record: Record, request: Mapping[str, Any], limits: RequestLimits
    ) -> Mapping[str, Any]:
        asked = {**request, "key": secrets.token_hex(8)}
        answer: Mapping[str, Any] = await self._requests.request_watched(record, asked, limits)
        return answer

    async def _lines(self, job: _Job, work: Work, limits: Limits) -> AsyncGenerator[bytes, None]:
        nodes = fold([record.name for record in job.records])
        if job.began is not None:
            where = f"{count_of(len(job.records), 'node')}, {job.where}"
            text = f"{job.who} on {where}: {job.what} ({nodes})"
            self._store.event(
                None,
                job.began,
                text[:1000],
                data={"by": job.who, "container": job.container, "nodes": nodes},
            )
        yield _encode(Asked(nodes, len(job.records))) + b"\n"
        held = 0

        async def one(record: Record) -> NodeAnswer:
            nonlocal held
            answer = await self._one(job, record, work)
            if held > MAX_HELD:
                _drop_output(answer)
            held += _size(answer)
            return answer

        def late(record: Record, begun: bool) -> NodeAnswer:
            why = "it was stopped: " if begun else "it was not begun: "
            return NodeAnswer(record.name, begun, error=why + "the time for all nodes is over")

        fan = FanOut(job.records, one, late, limits)
        async with contextlib.aclosing(fan.results()) as results:
            async for answer in results:
                yield _encode(answer) + b"\n"
                held -= _size(answer)

    async def _one(self, job: _Job, record: Record, work: Work) -> NodeAnswer:
        since = time.monotonic()
        try:
            answer = await work(record)
        except LayercakeError as error:
            begun = not isinstance(error, NotFetched)
            answer = NodeAnswer(record.name, begun, error=error.message, hint=error.hint)
        except BaseException:
            self._record_end(job, record, NodeAnswer(record.name, error="it was called off"))
            raise
        answer.seconds = round(time.monotonic() - since, 2)
        self._record_end(job, record, answer)
        return answer

    def _record_end(self, job: _Job, record: Record, answer: NodeAnswer) -> None:
        """The node's history says how it ended there; never what it said."""
        if job.ended is None or not answer.begun:
            return
        how = answer.error or ("done" if answer.exit is None else f"exit status {answer.exit}")
        self._store.event(
            record,
            job.ended,
            f"{job.who}, {job.where}: {how}: {job.what}"[:500],
            data={"by": job.who, "container": job.container, "seconds": answer.seconds},
        )


def _limits(timeout_s: float, most: int) -> RequestLimits:
    return RequestLimits(min(timeout_s, FETCH_S), timeout_s + GRACE_S, most)


def _of_command(node: str, answer: Mapping[str, Any], timeout_s: float, most: int) -> NodeAnswer:
    """What a node says of a command; it may be anybody's by now. Raises OperationFailed."""
    status = answer.get("exit")
    cut = answer.get("cut", 0)
    if type(cut) is not int or (status is not None and type(status) is not int):
        raise OperationFailed(f"cannot read the answer of {node}: it is not as agreed")
    texts = {}
    for name in ("out", "err"):
        text = answer.get(name, "")
        try:
            if not isinstance(text, str) or len(base64.b64decode(text, validate=True)) > most:
                raise InputError("it is not as agreed")
        except (InputError, binascii.Error, ValueError):
            raise OperationFailed(
                f"cannot read the answer of {node}: it is not as agreed"
            ) from None
        texts[name] = text
    error = "" if status is not None else f"it took longer than {timeout_s:g} s and was killed"
    answered = NodeAnswer(node, exit=status, cut=max(0, cut), error=error)
    answered.out = texts["out"]
    answered.err = texts["err"]
    return answered


def _size(answer: NodeAnswer) -> int:
    return len(answer.out) + len(answer.err) + len(answer.text)


def _drop_output(answer: NodeAnswer) -> None:
    """Whoever asked takes answers more slowly than nodes give them."""
    answer.cut += _size(answer) * 3 // 4
    answer.out = answer.err = answer.text = ""
