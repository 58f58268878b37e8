"""A module's process as it was when the protocol had version 1: its client of that time, reduced to
what is needed.

It knows nothing of Layercake's own code, only of module_v1_pb2 beside it. Arguments: the file to
write to when it is told to stop, --socket PATH, --instance NAME.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import module_v1_pb2 as pb

METHOD = "/layercake.module.v1.ModuleHost/Attach"


class Stub:
    """Keeps what it is told, in its order; does what it is asked."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Any] = asyncio.Queue()
        self.told: list[Any] = []

    def say(self, **message: Any) -> None:
        """Queues a message to the head."""
        self.queue.put_nowait(pb.FromService(**message))

    async def messages(self) -> AsyncIterator[Any]:
        """What goes to the head."""
        while (message := await self.queue.get()) is not None:
            yield message

    def handle(self, message: Any) -> bool:
        """Acts on one message of the head; False when it is to stop."""
        kind = message.WhichOneof("kind")
        if kind == "settings":
            self.told.append([kind, json.loads(message.settings.json)])
        elif kind == "node_changed":
            self.told.append(
                [kind, message.node_changed.node, json.loads(message.node_changed.json)]
            )
        elif kind == "node_state":
            self.told.append([kind, message.node_state.node, dict(message.node_state.values)])
        elif kind == "mutate":
            m = message.mutate
            self.told.append(
                [
                    kind,
                    m.node,
                    m.mutation,
                    m.attempt,
                    m.timeout_s,
                    json.loads(m.params_json or b"{}"),
                ]
            )
            self.mutate(m)
        elif kind == "call":
            self.told.append([kind, message.call.method, json.loads(message.call.json or b"{}")])
            self.answer(message.call)
        else:
            self.told.append([kind])
            if kind == "ready":
                self.say(health="running")
        return bool(kind != "stop")

    def mutate(self, m: Any) -> None:
        """The first attempt fails."""
        if m.mutation == "old-discover":
            self.say(result=pb.MutationResult(id=m.id, ok=True, values={"old": "BAD"}))
        elif m.attempt == 1:
            self.say(
                result=pb.MutationResult(
                    id=m.id, ok=False, error="cannot do it: told to fail", hint="ask again"
                )
            )
        else:
            self.say(
                event=pb.Event(
                    node=m.node,
                    kind="old.done",
                    severity="warning",
                    text="done",
                    data_json='{"attempt": 2}',
                )
            )
            self.say(discovery=pb.Discovery(node=m.node, values={"old": "GOOD"}, why="it was seen"))
            self.say(result=pb.MutationResult(id=m.id, ok=True))

    def answer(self, call: Any) -> None:
        """The call old.fail fails, any other is answered by all that it was told."""
        if call.method == "old.fail":
            self.say(
                answer=pb.Answer(
                    id=call.id,
                    ok=False,
                    error="cannot answer: told to fail",
                    hint="ask for something else",
                )
            )
        else:
            self.say(answer=pb.Answer(id=call.id, ok=True, json=json.dumps(self.told).encode()))


async def main(file: str, socket: str, instance: str) -> None:
    """Until the head says stop."""
    stub = Stub()
    stub.say(
        hello=pb.Hello(
            version=1,
            service="old",
            instance=instance,
            cookie=os.environ.pop("LAYERCAKE_MODULE_COOKIE"),
        )
    )
    async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
        attach = channel.stream_stream(
            METHOD,
            request_serializer=pb.FromService.SerializeToString,
            response_deserializer=pb.FromHead.FromString,
        )
        async for message in attach(stub.messages()):
            if not stub.handle(message):
                Path(file).write_text(json.dumps(stub.told[-1]))
                break


if __name__ == "__main__":
    asyncio.run(
        main(
            sys.argv[1],
            sys.argv[sys.argv.index("--socket") + 1],
            sys.argv[sys.argv.index("--instance") + 1],
        )
    )
