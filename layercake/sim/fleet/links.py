"""The connections of a simulated fleet: each node's own for its boot script and its join, and then
a pool that all share.

A real node keeps a TLS connection of its own. A hundred thousand of them do not fit into one
process, so requests after the join go over some that are open, each with its own node's
credentials; the head tells nodes apart by those.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

from layercake.kraken.errors import OperationFailed, Refused
from layercake.moduleapi.event_loop.tasks import cancel_all
from layercake.sim.fleet.agent import Agent

CONNECTIONS = 64
_OPENING = 16
_JOINING = 32
_LIMIT_S = 60.0
_AGAIN_S = 0.5


async def exchange(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    line: str,
    host: str,
    headers: str = "",
    body: bytes = b"",
) -> tuple[int, bytes]:
    """One HTTP request and its answer: status and body. Raises OSError, EOFError and
    TimeoutError."""
    length = (
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        if body or line.startswith("POST")
        else ""
    )
    writer.write(f"{line} HTTP/1.1\r\nHost: {host}\r\n{headers}{length}\r\n".encode() + body)
    async with asyncio.timeout(_LIMIT_S):
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        return int(head[9:12]), await reader.readexactly(size)


class Links:
    """All connections. `head` is its address and TLS port, `host` the address of the one that acts
    now; `cut` says whether nothing gets through to the owner of an agent."""

    def __init__(
        self,
        authority: Path,
        head: tuple[str, int],
        cut: Callable[[Any], bool],
        *,
        connections: int = CONNECTIONS,
        own: bool = True,
    ) -> None:
        self._tls = ssl.create_default_context(cafile=str(authority))
        self.host, self._port = head
        self._cut = cut
        self._count = connections
        self._own = own
        self._work: asyncio.Queue[tuple[Agent, str, bytes]] = asyncio.Queue()
        self._opening = asyncio.Semaphore(_OPENING)
        self._joining = asyncio.Semaphore(_JOINING)
        self._tasks: list[asyncio.Task[None]] = []
        self.joins = self.requests = self.troubles = 0

    def start(self) -> None:
        """Opens the pool as it is needed."""
        self._tasks = [asyncio.create_task(self._serve()) for _ in range(self._count)]

    async def close(self) -> None:
        """Ends everything."""
        await cancel_all(self._tasks)

    def queue_request(self, agent: Agent, line: str, body: bytes) -> None:
        """Has a request made."""
        self._work.put_nowait((agent, line, body))

    async def script(self, url: str, address: str) -> tuple[int, str]:
        """Fetches a boot script as iPXE does, from a node's own address: status and text. Raises
        OSError, EOFError."""
        host, _, path = url.removeprefix("http://").partition("/")
        name, _, port = host.partition(":")
        reader, writer = await asyncio.open_connection(
            name, int(port or 80), local_addr=(address, 0)
        )
        try:
            status, body = await exchange(reader, writer, f"GET /{path}", host)
        finally:
            writer.close()
        return status, body.decode(errors="replace")

    async def join(self, address: str, claim: dict[str, str]) -> dict[str, Any]:
        """Joins from a node's own address. Raises Refused, and OSError, EOFError if the head is not
        there."""
        async with self._joining:
            reader, writer = await self._open(address)
            try:
                status, body = await exchange(
                    reader, writer, "POST /node/v1/join", self.host, body=json.dumps(claim).encode()
                )
            finally:
                writer.close()
        if status != 200:
            raise Refused(f"cannot join: {status} {body[:300].decode(errors='replace')}")
        self.joins += 1
        answer: dict[str, Any] = json.loads(body)
        return answer

    async def _open(self, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(
            self.host, self._port, ssl=self._tls, local_addr=(address, 0) if self._own else None
        )

    async def _serve(self) -> None:
        """One of the pool: carries out requests one after the other, on a connection that is opened
        again when it was lost: at once if it was an idle one, as a real agent does."""
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        while True:
            agent, line, body = await self._next()
            was_idle = streams is not None
            try:
                if streams is None:
                    async with self._opening:
                        streams = await self._open(agent.owner.identity.ip)
                await self._carry_out(streams, agent, line, body)
            except (OSError, EOFError, OperationFailed) as error:
                self.troubles += 1
                if streams is not None:
                    streams[1].close()
                streams = None
                if not was_idle or isinstance(error, OperationFailed):
                    await asyncio.sleep(_AGAIN_S)
                self.queue_request(agent, line, body)
            except asyncio.CancelledError:
                if streams is not None:
                    streams[1].close()
                raise

    async def _next(self) -> tuple[Agent, str, bytes]:
        """The next request of a node that is still in the session that it is of."""
        while True:
            agent, line, body = await self._work.get()
            if agent.owner.agent is not agent:
                continue
            if not self._cut(agent.owner):
                return agent, line, body
            asyncio.get_running_loop().call_later(_AGAIN_S, self.queue_request, agent, line, body)

    async def _carry_out(
        self,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        agent: Agent,
        line: str,
        body: bytes,
    ) -> None:
        status, answer = await exchange(
            *streams, line, self.host, f"Authorization: {agent.authorization}\r\n", body
        )
        self.requests += 1
        if status >= 500:
            raise OperationFailed(f"{line}: {status}")
        if agent.owner.agent is not agent:
            return
        if status != 200:  # the session is over, or the head will not have it
            agent.broke()
        elif line.startswith("GET"):
            agent.desired(json.loads(answer))
