"""The head's side of the module API: a gRPC server on a Unix socket to which the modules' processes
attach.

Only a process that the manager started may attach: it shows the one-use cookie of its instance.
Messages to a module are sent in the order they were queued; one that is not attached gets a full
snapshot when it attaches.

No module can harm another, or the head: one that says much is read more slowly, one that does not
read is cut off, and what makes no sense, or is not its to say, is left out and told once in a
while.
"""

from __future__ import annotations

import asyncio
import hmac
import itertools
import json
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import grpc.aio

from layercake.base.text import parse_json
from layercake.kraken.errors import LayercakeError, OperationFailed, Refused, Unreachable
from layercake.moduleapi import module_pb2 as pb
from layercake.moduleapi.client import API_VERSION, ERROR_KINDS, TOGETHER_SINCE
from layercake.moduleapi.event_loop.slices import TimeSlice

log = logging.getLogger("layercake.modules")
HELLO_S = 10.0
"""Seconds that a process has to say Hello after it connected."""
RATE = 5000.0
"""Messages a second that one module may say in the long run."""
AT_ONCE = 200
"""Messages that are handled before others have their turn."""
BURST = 50_000.0
BACKLOG = 500_000
"""Messages to a module that does not read them, before it is cut off and started again."""
AHEAD = 2000
"""Messages to a process of which more wait than these: it is told of no more nodes until it has
read them. What is asked of it meanwhile waits no longer than they take."""
TOGETHER = 256
"""Messages at most that a module is told in one: each that is sent alone costs both sides 65 us."""
TOGETHER_BYTES = 1 << 20
"""What they may be together; gRPC takes 4 MiB."""
EVENT_DATA = 16_384
"""Characters of an event's data: each history keeps many."""
TELL_S = 60.0
_MUTATE_NUMBERS = 1 << 62  # calls are numbered from here, apart from mutations


class Listener(Protocol):
    """What the head does with what modules say."""

    async def attached(self, module: str) -> None:
        """A module's process attached and has its settings: send it the nodes, their states, and
        what is under way."""

    def detached(self, module: str) -> None:
        """Its stream ended."""

    def discovered(self, module: str, node: str, values: Mapping[str, str], why: str) -> None:
        """It found something out. Raises LayercakeError for what is not its to say."""

    def event(
        self, module: str, node: str, kind: str, severity: str, text: str, data: Mapping[str, Any]
    ) -> None:
        """It adds to a node's history."""

    def result(
        self,
        module: str,
        number: int,
        ok: bool,
        error: str,
        hint: str,
        values: Mapping[str, str],
        after: str = "",
    ) -> None:
        """An attempt at a mutation ended. Raises LayercakeError for what is not its to say."""

    def health(self, module: str, text: str) -> None:
        """It says how it is."""

    def refused(self, module: str, why: str) -> None:
        """It said something that was left out."""


def _tell_nobody(node: str) -> None:
    """What is told of a node before there are any."""


@dataclass(slots=True)
class _Attachment:
    """One attached process. `room` is how many messages it may say now, as of `at`; `untold` are
    the nodes that it will be told of by `tell`, and `told` is set when that was all of them."""

    module: str
    version: int
    queue: asyncio.Queue[pb.FromHead | None] = field(default_factory=asyncio.Queue)
    calls: dict[int, asyncio.Future[Any]] = field(default_factory=dict)
    room: float = BURST
    at: float = field(default_factory=time.monotonic)
    told_at: float = float("-inf")
    untold: dict[str, None] = field(default_factory=dict)
    tell: Callable[[str], None] = _tell_nobody
    told: asyncio.Event = field(default_factory=asyncio.Event)
    left: list[pb.FromHead | None] = field(default_factory=list)
    """What was taken from the queue, and had no room in the message before."""

    def tell_now(self, node: str) -> None:
        """It is told of a node."""
        del self.untold[node]
        self.tell(node)

    def minds(self, message: pb.FromHead) -> bool:
        """Whether a message is for it already. Of a node that it was not told of yet it will be
        told as the node is then; but if something is to be done to that one, it is told now."""
        kind = message.WhichOneof("kind")
        node = getattr(getattr(message, kind), "node", "")
        if node not in self.untold:
            return True
        if kind == "mutate":
            self.tell_now(node)
            return True
        if kind == "node_removed":
            del self.untold[node]
        return False

    def wait(self) -> float:
        """Takes room for AT_ONCE messages; seconds to wait until there is that much."""
        now = time.monotonic()
        self.room = min(BURST, self.room + (now - self.at) * RATE) - AT_ONCE
        self.at = now
        return max(0.0, -self.room / RATE)

    async def next_message(self) -> pb.FromHead | None:
        """What it is sent next, None for the end: what waits for it, together if it knows how."""
        first = await self._taken()
        if first is None or self.version < TOGETHER_SINCE or self.queue.empty():
            return first
        found = [first]
        size = first.ByteSize()
        while len(found) < TOGETHER and not self.queue.empty():
            message = await self._taken()
            size += 0 if message is None else message.ByteSize()
            if message is None or size > TOGETHER_BYTES:
                self.left.append(message)
                break
            found.append(message)
        return pb.FromHead(several=pb.Several(messages=found)) if found[1:] else first

    async def _taken(self) -> pb.FromHead | None:
        if self.left:
            return self.left.pop()
        message = await self.queue.get()
        self.queue.task_done()
        return message


@dataclass(frozen=True, slots=True)
class Start:
    """What a module's process is started with: its settings, and what all are told of the head."""

    settings: Mapping[str, Any]
    site: Mapping[str, Any] = field(default_factory=dict)

    def message(self, version: int) -> pb.FromHead:
        """As the version of the API that the process speaks has it."""
        if version == 1:
            return pb.FromHead(
                settings=pb.Settings(json=json.dumps({**self.site, **self.settings}).encode())
            )
        settings = json.dumps(dict(self.settings))
        site = json.dumps(dict(self.site))
        return pb.FromHead(settings=pb.Settings(json=settings.encode(), site_json=site.encode()))


class ModuleHost:
    """Keeps the attached processes; sends to them by their module's name."""

    def __init__(self, socket_path: Path) -> None:
        self._path = socket_path
        self.reports_to: Listener | None = None
        self._cookies: dict[str, tuple[str, str]] = {}  # instance -> (module, cookie)
        self._starts: dict[str, Start] = {}
        self._attached: dict[str, _Attachment] = {}
        self._numbers = itertools.count(1)
        self._telling = asyncio.Lock()
        self._server: grpc.aio.Server | None = None

    @property
    def _listener(self) -> Listener:
        if self.reports_to is None:
            raise OperationFailed("cannot serve modules: nobody listens to them yet")
        return self.reports_to

    async def start(self, listener: Listener) -> None:
        """Listens on the socket, which only this user may open; what modules say goes to
        `listener`."""
        self.reports_to = listener
        self._path.unlink(missing_ok=True)
        self._server = grpc.aio.server()
        handler = grpc.stream_stream_rpc_method_handler(
            self.attach,
            request_deserializer=pb.FromService.FromString,
            response_serializer=pb.FromHead.SerializeToString,
        )
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(
                    "layercake.module.v1.ModuleHost", {"Attach": handler}
                ),
            )
        )
        self._server.add_insecure_port(f"unix:{self._path}")
        await self._server.start()
        self._path.chmod(0o600)

    async def stop(self) -> None:
        """Tells the modules to stop and closes the socket."""
        for attachment in self._attached.values():
            attachment.queue.put_nowait(pb.FromHead(stop=True))
            attachment.queue.put_nowait(None)
        if self._server is not None:
            await self._server.stop(grace=2.0)

    def expect(self, module: str, instance: str, cookie: str, start: Start) -> None:
        """Lets an instance attach once, with this cookie; the manager calls it before each
        start."""
        self._cookies[instance] = (module, cookie)
        self._starts[module] = start

    def send(self, module: str, message: pb.FromHead) -> bool:
        """Queues a message; False if the module is not attached (it will get a snapshot when it
        attaches)."""
        attachment = self._attached.get(module)
        if attachment is None:
            return False
        if attachment.queue.qsize() >= BACKLOG:
            self._listener.refused(module, "it does not read what it is told, and is cut off")
            self._disconnected(attachment)
            attachment.queue = asyncio.Queue()
            attachment.queue.put_nowait(None)
            return False
        if not attachment.untold or attachment.minds(message):
            attachment.queue.put_nowait(message)
            log.debug("%s is told: %s", module, message.WhichOneof("kind"))
        return True

    async def snapshot(
        self, module: str, nodes: Iterable[str], tell: Callable[[str], None]
    ) -> None:
        """Has a process that has just attached told of nodes by `tell`, no faster than it reads;
        the rest of the head has its turn in between. Of several processes one is told at a time, a
        slice each: whatever else the head does waits for one of them, and not for all."""
        attachment = self._attached[module]
        attachment.untold = dict.fromkeys(nodes)
        attachment.tell = tell
        left = deque(attachment.untold)
        turn = TimeSlice()
        while left:
            async with self._telling:
                turn.start()
                while left and not turn.used() and attachment.queue.qsize() <= AHEAD:
                    node = left.popleft()
                    if node in attachment.untold:  # else its turn has come before, or it is gone
                        attachment.tell_now(node)
                await turn.pause()
            if attachment.queue.qsize() > AHEAD:
                await attachment.queue.join()

    def awaits(self, instance: str) -> bool:
        """Whether an instance has not attached yet."""
        return instance in self._cookies

    async def call(
        self, module: str, method: str, params: Mapping[str, Any], timeout: float = 20.0
    ) -> Any:
        """Asks a module for something. Raises Unreachable if it is not attached or silent, or the
        error that it answers with."""
        attachment = self._attached.get(module)
        if attachment is None:
            raise Unreachable(
                f"cannot ask module {module}: it is not running", hint="see `layercake status`"
            )
        number = next(self._numbers) | _MUTATE_NUMBERS
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        attachment.calls[number] = future
        try:
            async with asyncio.timeout(timeout):
                await attachment.told.wait()  # of what it was not told it knows nothing
                attachment.queue.put_nowait(
                    pb.FromHead(
                        call=pb.Call(
                            id=number, method=method, json=json.dumps(dict(params)).encode()
                        )
                    )
                )
                return await future
        except TimeoutError:
            raise Unreachable(
                f"cannot ask module {module}: no answer to {method} in {timeout:.0f} s"
            ) from None
        finally:
            attachment.calls.pop(number, None)

    async def attach(
        self, requests: AsyncIterator[pb.FromService], context: Any
    ) -> AsyncIterator[pb.FromHead]:
        """What a module's process is told, as long as it is attached; `requests` is what it
        says."""
        attachment = await self._hello(requests, context)
        tasks = [asyncio.create_task(self._read(attachment, requests))]
        try:
            yield self._starts[attachment.module].message(attachment.version)
            tasks.append(asyncio.create_task(self._tell_all(attachment)))
            while (message := await attachment.next_message()) is not None:
                yield message
        finally:
            for task in tasks:
                task.cancel()
            self._disconnected(attachment)

    async def _tell_all(self, attachment: _Attachment) -> None:
        """Has the process told of everything, and then that this was all."""
        # Not before: what began meanwhile would be told twice, and before its node.
        self._attached[attachment.module] = attachment
        try:
            await self._listener.attached(attachment.module)
        except Exception:
            log.exception("module %s cannot be told of all nodes", attachment.module)
            attachment.queue.put_nowait(None)  # it is started again
            return
        attachment.queue.put_nowait(pb.FromHead(ready=True))
        attachment.told.set()

    async def _hello(self, requests: AsyncIterator[pb.FromService], context: Any) -> _Attachment:
        first = None
        try:
            async with asyncio.timeout(HELLO_S):
                first = await anext(aiter(requests), None)
        except TimeoutError:
            log.warning("a process attached and said nothing for %.0f s", HELLO_S)
        if first is None or first.WhichOneof("kind") != "hello":
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "say Hello first")
        hello = first.hello if first is not None else pb.Hello()
        if not 1 <= hello.version <= API_VERSION:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"module API version {hello.version} is not served",
            )
        module, cookie = self._cookies.pop(hello.instance, ("", ""))
        if (
            not cookie
            or module != hello.service
            or not hmac.compare_digest(cookie.encode(), hello.cookie.encode())
        ):
            log.warning("refused a process that attached as %r", hello.service[:80])
            await context.abort(
                grpc.StatusCode.PERMISSION_DENIED, "not an instance that the head started"
            )
        return _Attachment(module, hello.version)

    async def _read(self, attachment: _Attachment, requests: AsyncIterator[pb.FromService]) -> None:
        count = 0
        try:
            async for message in requests:
                self._receive(attachment, message)
                count += 1
                if (
                    count % AT_ONCE == 0
                ):  # gRPC's flow control holds a module back that is read slowly
                    await asyncio.sleep(attachment.wait())
        finally:
            attachment.queue.put_nowait(
                None
            )  # ends the sending half when the process closes its half

    def _receive(self, attachment: _Attachment, message: pb.FromService) -> None:
        try:
            self._handle(attachment, message)
        except (LayercakeError, ValueError, TypeError, AttributeError) as error:
            now = time.monotonic()
            if now - attachment.told_at >= TELL_S:
                attachment.told_at = now
                self._listener.refused(attachment.module, str(error)[:500])

    def _handle(self, attachment: _Attachment, message: pb.FromService) -> None:
        kind = message.WhichOneof("kind")
        module = attachment.module
        log.debug("%s says: %s", module, kind)
        if kind == "discovery":
            d = message.discovery
            self._listener.discovered(module, d.node, dict(d.values), d.why[:500])
        elif kind == "event":
            e = message.event
            if len(e.data_json) > EVENT_DATA:
                raise Refused(
                    f"the data of an event of kind {e.kind[:60]!r} are longer than {EVENT_DATA} "
                    "characters"
                )
            self._listener.event(
                module, e.node, e.kind, e.severity, e.text, dict(parse_json(e.data_json or "{}"))
            )
        elif kind == "result":
            r = message.result
            self._listener.result(
                module, r.id, r.ok, r.error[:2000], r.hint[:500], dict(r.values), r.after[:200]
            )
        elif kind == "health":
            self._listener.health(module, message.health[:500])
        elif kind == "answer":
            _answer(attachment.calls.get(message.answer.id), message.answer)

    def _disconnected(self, attachment: _Attachment) -> None:
        if self._attached.get(attachment.module) is attachment:
            del self._attached[attachment.module]
            self._listener.detached(attachment.module)
        for future in attachment.calls.values():
            if not future.done():
                future.set_exception(
                    Unreachable(f"cannot ask module {attachment.module}: it went away")
                )
        attachment.told.set()  # nobody waits for it any more


def _answer(future: asyncio.Future[Any] | None, answer: pb.Answer) -> None:
    if future is None or future.done():
        return
    if answer.ok:
        future.set_result(parse_json(answer.json))
    else:
        future.set_exception(
            ERROR_KINDS.get(answer.kind, OperationFailed)(
                answer.error[:2000], hint=answer.hint[:500]
            )
        )
