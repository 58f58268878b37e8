"""The head's side of the module API: a gRPC server on a Unix socket to which service processes attach.

Only a process that the service manager started may attach: it shows the one-use cookie of its instance. Messages to a
service are sent in the order they were queued; a service that is not attached gets a full snapshot when it attaches.
"""

from __future__ import annotations

import asyncio
import hmac
import itertools
import json
import logging
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import grpc.aio

from layercake.kraken.errors import LayercakeError, OperationFailed, Unreachable
from layercake.moduleapi import module_pb2 as pb
from layercake.moduleapi.client import API_VERSION

log = logging.getLogger("layercake.modules")


class Listener(Protocol):
    """What the head does with what services say."""

    def attached(self, service: str) -> None:
        """A service attached and has its settings: send it the nodes, their states, and what is under way."""

    def detached(self, service: str) -> None:
        """A service's stream ended."""

    def discovered(self, service: str, node: str, values: Mapping[str, str], why: str) -> None:
        """A service found something out."""

    def event(self, service: str, node: str, kind: str, severity: str, text: str, data: Mapping[str, Any]) -> None:
        """A service adds to a node's history."""

    def result(self, number: int, ok: bool, error: str, hint: str, values: Mapping[str, str]) -> None:
        """An attempt at a mutation ended."""

    def health(self, service: str, text: str) -> None:
        """A service says how it is."""


class _Attachment:
    """One attached service process."""

    def __init__(self, service: str, instance: str) -> None:
        self.service = service
        self.instance = instance
        self.queue: asyncio.Queue[pb.FromHead | None] = asyncio.Queue()
        self.calls: dict[int, asyncio.Future[Any]] = {}


class ModuleHost:
    """Keeps the attached services; sends to them by name."""

    def __init__(self, socket_path: Path, listener: Listener) -> None:
        self._path = socket_path
        self._listener = listener
        self._cookies: dict[str, tuple[str, str]] = {}  # instance -> (service, cookie)
        self._settings: dict[str, bytes] = {}
        self._attached: dict[str, _Attachment] = {}
        self._numbers = itertools.count(1)
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Listens on the socket, which only this user may open."""
        self._path.unlink(missing_ok=True)
        self._server = grpc.aio.server()
        handler = grpc.stream_stream_rpc_method_handler(
            self._attach, request_deserializer=pb.FromService.FromString, response_serializer=pb.FromHead.SerializeToString
        )
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("layercake.module.v1.ModuleHost", {"Attach": handler}),)
        )
        self._server.add_insecure_port(f"unix:{self._path}")
        await self._server.start()
        self._path.chmod(0o600)

    async def stop(self) -> None:
        """Tells the services to stop and closes the socket."""
        for attachment in self._attached.values():
            attachment.queue.put_nowait(pb.FromHead(stop=True))
            attachment.queue.put_nowait(None)
        if self._server is not None:
            await self._server.stop(grace=2.0)

    def expect(self, service: str, instance: str, cookie: str, settings: Mapping[str, Any]) -> None:
        """Lets an instance attach once, with this cookie; the service manager calls it before each start."""
        self._cookies[instance] = (service, cookie)
        self._settings[service] = json.dumps(dict(settings)).encode()

    def send(self, service: str, message: pb.FromHead) -> bool:
        """Queues a message; False if the service is not attached (it will get a snapshot when it attaches)."""
        attachment = self._attached.get(service)
        if attachment is None:
            return False
        attachment.queue.put_nowait(message)
        return True

    async def call(self, service: str, method: str, params: Mapping[str, Any], timeout: float = 20.0) -> Any:
        """Asks a service for something. Raises Unreachable if it is not attached or silent, OperationFailed if it says no."""
        attachment = self._attached.get(service)
        if attachment is None:
            raise Unreachable(f"cannot ask service {service}: it is not running", hint="see `layercake status`")
        number = next(self._numbers) | 1 << 62  # apart from the numbers of mutations
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        attachment.calls[number] = future
        attachment.queue.put_nowait(pb.FromHead(call=pb.Call(id=number, method=method, json=json.dumps(dict(params)).encode())))
        try:
            return await asyncio.wait_for(future, timeout)
        except TimeoutError:
            raise Unreachable(f"cannot ask service {service}: no answer to {method} in {timeout:.0f} s") from None
        finally:
            attachment.calls.pop(number, None)

    async def _attach(self, requests: AsyncIterator[pb.FromService], context: Any) -> AsyncIterator[pb.FromHead]:
        attachment = await self._hello(requests, context)
        reader = asyncio.create_task(self._read(attachment, requests))
        self._attached[attachment.service] = attachment
        try:
            yield pb.FromHead(settings=pb.Settings(json=self._settings[attachment.service]))
            self._listener.attached(attachment.service)
            attachment.queue.put_nowait(pb.FromHead(ready=True))
            while (message := await attachment.queue.get()) is not None:
                yield message
        finally:
            reader.cancel()
            self._gone(attachment)

    async def _hello(self, requests: AsyncIterator[pb.FromService], context: Any) -> _Attachment:
        first = await anext(aiter(requests), None)
        if first is None or first.WhichOneof("kind") != "hello":
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "say Hello first")
        hello = first.hello if first is not None else pb.Hello()
        if not 1 <= hello.version <= API_VERSION:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"module API version {hello.version} is not served")
        service, cookie = self._cookies.pop(hello.instance, ("", ""))
        if not cookie or service != hello.service or not hmac.compare_digest(cookie, hello.cookie):
            log.warning("refused a service that attached as %r", hello.service)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "not an instance that the head started")
        return _Attachment(service, hello.instance)

    async def _read(self, attachment: _Attachment, requests: AsyncIterator[pb.FromService]) -> None:
        try:
            async for message in requests:
                try:
                    self._handle(attachment, message)
                except (LayercakeError, ValueError) as error:
                    log.error("service %s sent something unusable: %s", attachment.service, error)
        finally:
            attachment.queue.put_nowait(None)  # ends the sending half when the service closes its half

    def _handle(self, attachment: _Attachment, message: pb.FromService) -> None:
        kind, service = message.WhichOneof("kind"), attachment.service
        if kind == "discovery":
            d = message.discovery
            self._listener.discovered(service, d.node, dict(d.values), d.why)
        elif kind == "event":
            e = message.event
            self._listener.event(service, e.node, e.kind, e.severity, e.text, json.loads(e.data_json or "{}"))
        elif kind == "result":
            r = message.result
            self._listener.result(r.id, r.ok, r.error, r.hint, dict(r.values))
        elif kind == "health":
            self._listener.health(service, message.health)
        elif kind == "answer":
            future = attachment.calls.get(message.answer.id)
            if future is not None and not future.done():
                if message.answer.ok:
                    future.set_result(json.loads(message.answer.json))
                else:
                    future.set_exception(OperationFailed(message.answer.error, hint=message.answer.hint))

    def _gone(self, attachment: _Attachment) -> None:
        if self._attached.get(attachment.service) is attachment:
            del self._attached[attachment.service]
            self._listener.detached(attachment.service)
        for future in attachment.calls.values():
            if not future.done():
                future.set_exception(Unreachable(f"cannot ask service {attachment.service}: it went away"))
