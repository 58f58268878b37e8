"""Modules that do what no module should, and one that behaves beside them. Arguments: its name, a
directory, --socket, --instance.

A good one and one that floods go on until the file `enough` is in the directory.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio

from layercake.moduleapi import module_pb2 as pb
from layercake.moduleapi.client import COOKIE_VARIABLE, METHOD

BURST = 200
HUGE = "x" * 1_000_000


class Stub:
    """What they have in common: they attach, and learn of a node."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.enough = directory / "enough"
        self.count = directory / f"{name}.count"
        self.node = ""
        self.queue: asyncio.Queue[pb.FromService] = asyncio.Queue(BURST)

    async def attach(self, socket: str, instance: str) -> None:
        """Until the head says stop."""
        hello = pb.Hello(
            version=2,  # each thing by itself
            service=self.name,
            instance=instance,
            cookie=os.environ[COOKIE_VARIABLE],
        )
        await self.queue.put(pb.FromService(hello=hello))
        async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
            stream = channel.stream_stream(
                METHOD,
                request_serializer=pb.FromService.SerializeToString,
                response_deserializer=pb.FromHead.FromString,
            )
            work: asyncio.Task[None] | None = None
            async for message in stream(self.messages()):
                kind = message.WhichOneof("kind")
                if kind == "node_changed":
                    self.node = message.node_changed.node
                    if work is None and self.name in ("flood", "liar"):
                        work = asyncio.create_task(
                            self.flood() if self.name == "flood" else self.lie()
                        )
                elif kind == "ready":
                    await self.queue.put(pb.FromService(health="running"))
                elif kind == "stop":
                    break
                elif self.name == "good":
                    await self.behave(message)

    async def messages(self) -> AsyncIterator[pb.FromService]:
        """What goes to the head, as fast as it takes it."""
        while True:
            yield await self.queue.get()

    async def behave(self, message: pb.FromHead) -> None:
        """Carries out and answers."""
        if message.WhichOneof("kind") == "mutate":
            result = pb.MutationResult(id=message.mutate.id, ok=True, values={"good": "WELL"})
            await self.queue.put(pb.FromService(result=result))
        elif message.WhichOneof("kind") == "call":
            event = pb.Event(
                node=self.node, kind="good.asked", text=str(json.loads(message.call.json)["number"])
            )
            await self.queue.put(pb.FromService(event=event))
            await self.queue.put(
                pb.FromService(
                    answer=pb.Answer(id=message.call.id, ok=True, json=message.call.json)
                )
            )

    async def flood(self) -> None:
        """Declared events, changes of its own variable, and its health: all that it may say,
        without end."""
        for number in itertools.count():
            value = ("LOW", "HIGH")[number % 2]
            await self.queue.put(
                pb.FromService(
                    event=pb.Event(node=self.node, kind="flood.told", text=f"event {number}")
                )
            )
            text = HUGE if number % 500 == 0 else ""
            await self.queue.put(
                pb.FromService(event=pb.Event(node="nobody", kind="flood.told", text=text))
            )
            await self.queue.put(
                pb.FromService(
                    discovery=pb.Discovery(node=self.node, values={"flood": value}, why=str(number))
                )
            )
            await self.queue.put(pb.FromService(health=("running", f"unwell {number}")[number % 2]))
            if number % BURST == 0:
                self.count.write_text(str(4 * number))
                if self.enough.exists():
                    break
        await self.queue.put(
            pb.FromService(
                discovery=pb.Discovery(node=self.node, values={"flood": "HIGH"}, why="the last")
            )
        )
        await self.queue.put(pb.FromService(health="running"))

    async def lie(self) -> None:
        """What makes no sense, or is not its to say; then the health again, so that one sees that
        all was read."""
        node = self.node
        for values in (
            {"nothing": "ON"},
            {"power": "OFF"},
            {"good": "ILL"},
            {"liar": "NO_SUCH"},
            {HUGE: HUGE},
        ):
            await self.queue.put(
                pb.FromService(discovery=pb.Discovery(node=node, values=values, why=HUGE))
            )
        for kind in ("head.stopped", "good.asked", "no.such", HUGE):
            await self.queue.put(pb.FromService(event=pb.Event(node=node, kind=kind, text=HUGE)))
        for data in ("{", "[1, 2]", '"x"', "3", json.dumps({"x": HUGE})):
            await self.queue.put(
                pb.FromService(
                    event=pb.Event(node=node, kind="liar.told", text="bad data", data_json=data)
                )
            )
        for number in (*range(64), 1 << 62, (1 << 64) - 1):
            wrong = pb.MutationResult(id=number, ok=True, values={"good": "ILL", "power": "OFF"})
            await self.queue.put(pb.FromService(result=wrong))
            await self.queue.put(
                pb.FromService(result=pb.MutationResult(id=number, ok=False, error=HUGE))
            )
            await self.queue.put(pb.FromService(answer=pb.Answer(id=number, ok=True, json=b"{")))
        await self.queue.put(pb.FromService())
        await self.queue.put(pb.FromService(hello=pb.Hello(service="good")))
        await self.queue.put(
            pb.FromService(
                event=pb.Event(node=node, kind="liar.told", severity="NO_SUCH", text=HUGE)
            )
        )
        await self.queue.put(pb.FromService(health="lied"))


if __name__ == "__main__":
    if sys.argv[1] == "mute":
        time.sleep(600)
    stub = Stub(sys.argv[1], Path(sys.argv[2]))
    asyncio.run(
        stub.attach(
            sys.argv[sys.argv.index("--socket") + 1], sys.argv[sys.argv.index("--instance") + 1]
        )
    )
