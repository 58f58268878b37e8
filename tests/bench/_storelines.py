"""What is between a head and its surroundings in `chaos`: the lines to the members of its store,
which are cut, slow, or lose answers; and the one to its BMCs, where each command is noted."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from layercake.sim.fleet.etcd import free_ports

CHUNK = 65536


class Line(enum.Enum):
    """How a line is: whole, refused at once, silent both ways, silent towards the head (what it
    asks for is done, and it is not told), slow, or odd: half of what it asks for is done, and the
    answer is always the same error."""

    WHOLE = "whole"
    CUT = "cut"
    SILENT = "silent"
    DEAF = "deaf"
    SLOW = "slow"
    ODD = "odd"


ODD_ANSWER = (
    b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\n"
    b"Content-Length: 58\r\nConnection: close\r\n\r\n"
    b'{"error":"something that nobody knows","code":99,"odd":[]}'
)


class StoreLines:
    """One head's lines to all members."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        self._members = [urlsplit(one) for one in endpoints]
        self._ports = free_ports(len(endpoints))
        self.endpoints = [f"http://127.0.0.1:{port}" for port in self._ports]
        self._servers: list[asyncio.Server] = []
        self._open: set[asyncio.StreamWriter] = set()
        self.line = Line.WHOLE
        self._turns = itertools.count()

    async def start(self) -> None:
        """Begins to listen."""
        for port, member in zip(self._ports, self._members, strict=True):

            async def serve(
                reader: asyncio.StreamReader,
                writer: asyncio.StreamWriter,
                where: tuple[str | None, int | None] = (member.hostname, member.port),
            ) -> None:
                await self._serve(reader, writer, where)

            self._servers.append(await asyncio.start_server(serve, "127.0.0.1", port))

    def close(self) -> None:
        """Ends them."""
        for server in self._servers:
            server.close()
        for writer in self._open:
            writer.transport.abort()

    def become(self, line: Line) -> None:
        """All lines are so from now on; those that are open end where they are cut, and when they
        are whole again: what was kept back does not come late."""
        before, self.line = self.line, line
        if {Line.CUT, Line.ODD} & {before, line} or line is Line.WHOLE:
            for writer in self._open:
                writer.transport.abort()

    async def _serve(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        where: tuple[str | None, int | None],
    ) -> None:
        self._open.add(writer)
        other = None
        try:
            if self.line is Line.CUT:
                return
            if self.line is Line.ODD and next(self._turns) % 2:
                await reader.read(CHUNK)
                writer.write(ODD_ANSWER)
                await writer.drain()
                writer.close()
                return
            with contextlib.suppress(OSError):
                there, other = await asyncio.open_connection(*where)
                await asyncio.gather(
                    self._carry(reader, other, towards_head=False),
                    self._carry(there, writer, towards_head=True),
                )
        finally:
            self._open.discard(writer)
            for one in (writer, other):
                if one is not None and not one.is_closing():
                    one.transport.abort()

    async def _carry(
        self, source: asyncio.StreamReader, to: asyncio.StreamWriter, *, towards_head: bool
    ) -> None:
        try:
            while data := await source.read(CHUNK):
                if self.line is Line.SLOW:
                    await asyncio.sleep(0.3)
                if self.line is Line.ODD and towards_head:
                    to.write(ODD_ANSWER)
                    return
                if self.line is Line.SILENT or (self.line is Line.DEAF and towards_head):
                    continue
                to.write(data)
                await to.drain()
        finally:
            to.close()


class BmcLine:
    """One head's line to the simulated BMCs. `told` hears each command but those that only read."""

    def __init__(self, fleet: Path, told: Callable[[str, str], None]) -> None:
        self._fleet = fleet
        self._told = told

    async def start(self, path: Path) -> None:
        """Listens where the head's powerman looks."""
        path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, str(path))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, other = await asyncio.open_unix_connection(str(self._fleet))

        async def answers() -> None:
            while data := await there.read(CHUNK):
                writer.write(data)

        task = asyncio.create_task(answers())
        try:
            while line := await reader.readline():
                _, what, bmc = json.loads(line)
                self._told(what, bmc)
                other.write(line)
        except ConnectionError:
            pass
        finally:
            task.cancel()
            other.close()
            writer.close()
