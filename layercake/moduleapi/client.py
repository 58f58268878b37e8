"""A module's process: connects to the head, and calls its Service in the order the head says.

    python -m layercake.moduleapi.client --module pxe.module:MODULE --socket PATH --instance NAME

The process must never outlive its head: it asks the kernel for SIGKILL when its parent dies, and it
stops when the stream ends.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import importlib
import json
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

import grpc.aio
import msgspec

from layercake.base.logs import lines
from layercake.base.process import leave_no_core
from layercake.base.tcp_listener import raise_file_limit
from layercake.kraken.errors import (
    InputError,
    LayercakeError,
    NotFound,
    Refused,
    Stalled,
    Unreachable,
)
from layercake.kraken.events import EventKind, Severity
from layercake.moduleapi import module_pb2 as pb
from layercake.moduleapi.event_loop.sendfile import SendfileLoop
from layercake.moduleapi.event_loop.slices import in_slices
from layercake.moduleapi.event_loop.tasks import cancel_all
from layercake.moduleapi.module import Module, Site
from layercake.moduleapi.service import MutationRequest, Service

API_VERSION = 3
TOGETHER_SINCE = 3
"""The version since which a process is told several things in one message."""
METHOD = "/layercake.module.v1.ModuleHost/Attach"
COOKIE_VARIABLE = "LAYERCAKE_MODULE_COOKIE"
ERROR_KINDS: dict[str, type[LayercakeError]] = {
    "not-found": NotFound,
    "input": InputError,
    "refused": Refused,
    "unreachable": Unreachable,
}
"""How an answer says what kind of error it is; a kind that is not here is a failure of the
module."""
_PR_SET_PDEATHSIG = 1

log = logging.getLogger("layercake.module")


class _StreamLink:
    """The Link over the stream: queues messages, sends in order."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[pb.FromService | None] = asyncio.Queue()

    def discover(self, node: str, values: Mapping[str, str], why: str) -> None:
        self.queue.put_nowait(
            pb.FromService(discovery=pb.Discovery(node=node, values=dict(values), why=why))
        )

    def event(
        self,
        node: str,
        kind: EventKind,
        text: str,
        *,
        severity: Severity | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> None:
        level = str(severity or kind.severity)
        message = pb.Event(
            node=node,
            kind=kind.name,
            severity=level,
            text=text,
            data_json=json.dumps(dict(data or {})),
        )
        self.queue.put_nowait(pb.FromService(event=message))

    def health(self, text: str) -> None:
        self.queue.put_nowait(pb.FromService(health=text))

    async def messages(self) -> AsyncIterator[pb.FromService]:
        while (message := await self.queue.get()) is not None:
            yield message


class _Runner:
    """Carries one service through one attachment."""

    def __init__(self, service: Service, link: _StreamLink) -> None:
        self.service = service
        self.link = link
        self.tasks: dict[int, asyncio.Task[None]] = {}

    async def handle(self, message: pb.FromHead) -> bool:
        """Acts on one message of the head; False when the service is to stop."""
        kind = message.WhichOneof("kind")
        if kind == "several":
            return await self._handle_all(message.several.messages)
        if kind == "settings":
            await self._start(message.settings)
        elif kind == "node_changed":
            await self.service.node_changed(
                message.node_changed.node, json.loads(message.node_changed.json)
            )
        elif kind == "node_removed":
            await self.service.node_removed(message.node_removed.node)
        elif kind == "node_state":
            await self.service.node_state(message.node_state.node, dict(message.node_state.values))
        elif kind == "network_changed":
            await self.service.network_changed(
                message.network_changed.name, json.loads(message.network_changed.json)
            )
        elif kind == "network_removed":
            await self.service.network_removed(message.network_removed.name)
        elif kind == "ready":
            await self.service.ready()
            self.link.health("running")
        else:
            self._work(message)
        return bool(kind != "stop")

    async def _handle_all(self, messages: Iterable[pb.FromHead]) -> bool:
        """Acts on several; what the service has to do besides has its turn in between."""
        async for message in in_slices(messages):
            if not await self.handle(message):
                return False
        return True

    def _work(self, message: pb.FromHead) -> None:
        """Begins or ends what goes on beside the messages that come."""
        kind = message.WhichOneof("kind")
        if kind == "mutate":
            self._spawn(message.mutate.id, self._mutate(message.mutate))
        elif kind == "cancel":
            task = self.tasks.get(message.cancel.id)
            if task is not None:
                task.cancel()
        elif kind == "call":
            self._spawn(message.call.id, self._call(message.call))
        elif kind == "log_level":
            set_log_level(message.log_level, self.service.module)

    async def _start(self, told: pb.Settings) -> None:
        try:
            site = msgspec.json.decode(told.site_json, type=Site)
            await self.service.start(
                self.link, site, msgspec.json.decode(told.json, type=self.service.module.settings)
            )
        except (LayercakeError, OSError) as error:
            self.link.health(f"cannot start: {error}")
            await asyncio.sleep(0.2)  # lets the text reach the head before the process ends
            raise

    def _spawn(self, number: int, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self.tasks[number] = task
        task.add_done_callback(lambda _: self.tasks.pop(number, None))

    async def _mutate(self, m: pb.Mutate) -> None:
        request = MutationRequest(
            m.id, m.node, m.mutation, m.attempt, m.timeout_s, json.loads(m.params_json or b"{}")
        )
        result = pb.MutationResult(id=m.id)
        try:
            result.values.update(await self.service.mutate(request))
            result.ok = True
        except LayercakeError as error:
            result.error = error.message
            result.hint = error.hint
            result.after = error.after if isinstance(error, Stalled) else ""
        except asyncio.CancelledError:
            return
        except Exception as error:  # a bug in a handler must reach the operator as a failed attempt
            log.exception("mutation %s of %s failed unexpectedly", m.mutation, m.node)
            result.error = f"cannot {m.mutation}: internal error, {type(error).__name__}"
            result.hint = f"see the log of module {self.service.module.name}"
        self.link.queue.put_nowait(pb.FromService(result=result))

    async def _call(self, call: pb.Call) -> None:
        answer = pb.Answer(id=call.id)
        try:
            answer.json = json.dumps(
                await self.service.call(call.method, json.loads(call.json or b"{}"))
            ).encode()
            answer.ok = True
        except LayercakeError as error:
            answer.error = error.message
            answer.hint = error.hint
            answer.kind = next(
                (name for name, kind in ERROR_KINDS.items() if isinstance(error, kind)), ""
            )
        except asyncio.CancelledError:
            return
        except Exception as error:
            log.exception("call %s failed unexpectedly", call.method)
            answer.error = f"cannot call {call.method}: internal error, {type(error).__name__}"
        self.link.queue.put_nowait(pb.FromService(answer=answer))

    async def close(self) -> None:
        """Cancels what is under way and stops the service."""
        await cancel_all(self.tasks.values())
        await self.service.stop()


async def run(service: Service, socket_path: str, instance: str, cookie: str) -> None:
    """Attaches a service to the head and serves until the head says stop or goes away."""
    link = _StreamLink()
    hello = pb.Hello(
        version=API_VERSION, service=service.module.name, instance=instance, cookie=cookie
    )
    link.queue.put_nowait(pb.FromService(hello=hello))
    runner = _Runner(service, link)
    async with grpc.aio.insecure_channel(f"unix:{socket_path}") as channel:
        attach = channel.stream_stream(
            METHOD,
            request_serializer=pb.FromService.SerializeToString,
            response_deserializer=pb.FromHead.FromString,
        )
        try:
            async for message in attach(link.messages()):
                if not await runner.handle(message):
                    break
        except grpc.aio.AioRpcError as error:
            log.warning("the head went away: %s", error.details())
        finally:
            await runner.close()
            link.queue.put_nowait(None)


def die_with_parent() -> None:
    """Asks the kernel to kill this process when its parent dies (prctl(2), PR_SET_PDEATHSIG)."""
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the head died while this service was starting")


def set_log_level(level: str, module: Module) -> None:
    """Has the module's own code, and ours, log what is at least so grave; that of libraries stays
    as it was, as what those tell of what they send and get may be a secret. A level that this
    version does not know changes nothing."""
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is not None:
        for package in {"layercake", module.service.partition(".")[0]}:
            logging.getLogger(package).setLevel(number)


def load(reference: str) -> Module:
    """The module at "package.module:NAME"."""
    path, _, name = reference.partition(":")
    module = getattr(importlib.import_module(path), name)
    if not isinstance(module, Module):
        raise InputError(f"cannot run {reference}: it is not a Module")
    return module


def service_of(module: Module) -> Service:
    """The service of a module's process."""
    path, _, name = module.service.partition(":")
    service: Service = getattr(importlib.import_module(path), name)()
    return service


def main(arguments: Sequence[str] | None = None) -> None:
    """The main function of a module's process; started by the head."""
    parser = argparse.ArgumentParser(
        description="The process of a Layercake module. The head starts it; it is of no use alone."
    )
    parser.add_argument("--module", required=True, help="where the module is: package.module:NAME")
    parser.add_argument("--socket", required=True, help="the head's module socket")
    parser.add_argument("--instance", required=True)
    parser.add_argument(
        "--wait", action="store_true", help="attach when a line comes by standard input"
    )
    args = parser.parse_args(arguments)
    die_with_parent()
    leave_no_core()
    lines.start("%(levelname)s %(name)s: %(message)s")
    raise_file_limit()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    cookie = os.environ.pop(COOKIE_VARIABLE, "")
    try:
        service = service_of(load(args.module))
        if args.wait and not sys.stdin.readline():
            return  # the head has ended before it needed this process
        with asyncio.Runner(loop_factory=SendfileLoop) as runner:
            runner.run(run(service, args.socket, args.instance, cookie))
    except (LayercakeError, OSError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
