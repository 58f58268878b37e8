"""Consoles: how they are, what was kept of them, and who reads and writes. The module that has them
holds the one session of each; who attaches here shares it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

from layercake.features.calls.operations import Calls
from layercake.fleet import events
from layercake.fleet.store import Record, Store
from layercake.kraken.errors import InputError, LayercakeError, NotFound
from layercake.modules.calls import AskModule

STATE = "console.state"
TROUBLES = "console.troubles"
LOG = "console.log"
SEARCH = "console.search"
ATTACH = "console.attach"
FOLLOW = "console.follow"
WRITE = "console.write"
DETACH = "console.detach"
_LAST_S = 2.0  # what `node explain` waits for the last lines
_AGAIN_S = 1.0
_END = 1 << 62  # behind all that a console may ever say
_WHOLE_S = 0.05  # between two tries to have the rest of a long paste taken


class Attached:
    """One that reads a console of a node, and may write. Goes on over a restart of the module."""

    def __init__(self, ask: AskModule, store: Store, record: Record, who: str, write: bool) -> None:
        self._ask = ask
        self._store = store
        self._node = record.node.id
        self._who = who
        self._write = write
        self._reader = ""
        self._position = 0

    async def attach(self, take: bool) -> None:
        """Begins. Raises LayercakeError."""
        asked = {"node": self._node, "who": self._who, "write": self._write, "take": take}
        answer = await self._ask(ATTACH, asked)
        self._reader = str(answer["reader"])
        self._position = int(answer["position"])

    def to_end(self) -> None:
        """What was said before is not wanted."""
        self._position = _END

    async def follow(self) -> tuple[bytes, dict[str, Any]]:
        """(what came, how it is: state, why, writer, readers, writes, lost), as soon as there is
        news, and now and then."""
        try:
            found = await self._ask(
                FOLLOW, {"node": self._node, "reader": self._reader, "position": self._position}
            )
        except LayercakeError as error:
            await asyncio.sleep(_AGAIN_S)
            with contextlib.suppress(LayercakeError):  # the next time again
                await self.attach(False)
            return b"", {
                "state": "failed",
                "why": error.message,
                "writer": "",
                "readers": [],
                "writes": False,
                "lost": 0,
            }
        self._position = int(found["position"])
        data = base64.b64decode(found["data"])
        return data, {
            key: found[key] for key in ("state", "why", "writer", "readers", "writes", "lost")
        }

    async def write(self, data: bytes) -> None:
        """Types all of it. Raises LayercakeError: without the keyboard, or while the console is not
        open."""
        while data:
            asked = {
                "node": self._node,
                "reader": self._reader,
                "data": base64.b64encode(data[:4096]).decode(),
            }
            taken = int((await self._ask(WRITE, asked))["taken"])
            data = data[taken:]
            if data:
                await asyncio.sleep(_WHOLE_S)

    async def send_break(self) -> None:
        """Sends a break. Raises as `write`."""
        await self._ask(WRITE, {"node": self._node, "reader": self._reader, "send_break": True})

    async def take_over(self) -> None:
        """Takes the keyboard, and the console from another session. Raises LayercakeError."""
        await self._ask(WRITE, {"node": self._node, "reader": self._reader, "take": True})

    async def detach(self) -> None:
        """Leaves. A reader that cannot say so is forgotten after a while."""
        with contextlib.suppress(LayercakeError):
            await self._ask(DETACH, {"node": self._node, "reader": self._reader})


class Consoles:
    """Operations on consoles."""

    def __init__(self, store: Store, ask: AskModule, calls: Calls) -> None:
        self._store = store
        self._ask = ask
        self._calls = calls

    async def states(self, text: str) -> list[dict[str, Any]]:
        """How the consoles of a range are; one that cannot be asked for has an error in its row."""
        return [
            {"node": one["node"], **(one["answer"] or {"state": "unknown"}), "error": one["error"]}
            for one in await self._calls.call(STATE, text, {})
        ]

    async def troubles(self) -> tuple[str, dict[str, str]]:
        """(why what consoles say is not written, {the id of a node whose console cannot be had:
        why}). Nothing, if the module with the consoles does not answer: of that others tell."""
        try:
            found = await self._ask(TROUBLES, {}, _LAST_S)
        except LayercakeError:
            return "", {}
        return str(found["logs"]), {str(node): str(why) for node, why in found["lost"]}

    async def log(self, name: str, lines: int) -> list[dict[str, Any]]:
        """The last lines that a node's console has said: {"at", "text"}. Raises LayercakeError."""
        record = self._store.named(name)
        found: list[dict[str, Any]] = await self._ask(
            LOG, {"node": record.node.id, "lines": max(1, min(lines, 5000))}
        )
        return found

    async def last(self, record: Record, lines: int) -> list[str]:
        """The last lines for `node explain`, with their times; why there are none, if they cannot
        be read."""
        try:
            async with asyncio.timeout(_LAST_S):
                found = await self._ask(LOG, {"node": record.node.id, "lines": lines})
        except NotFound:
            return []  # no module has consoles
        except TimeoutError:
            return [f"it cannot be read: no answer in {_LAST_S:.0f} s"]
        except LayercakeError as error:
            return [f"it cannot be read: {error.message}"]
        return [
            f"{time.strftime('%H:%M:%S', time.localtime(one['at']))} {one['text'][:200]}"
            for one in found
        ]

    async def search(
        self, text: str, pattern: str, *, regex: bool, ignore_case: bool, limit: int
    ) -> dict[str, Any]:
        """Looks for a pattern in the logs of the nodes of a range: {"matches", "more"}. Raises
        LayercakeError."""
        if not text:
            raise InputError(
                "cannot search the consoles' logs: of which nodes?",
                hint="name them; @all is every node",
            )
        names = [record.name for record in self._store.select(text)]
        asked = {
            "names": names,
            "pattern": pattern,
            "regex": regex,
            "ignore_case": ignore_case,
            "limit": limit,
        }
        found: dict[str, Any] = await self._ask(SEARCH, asked, timeout=60.0)
        return found

    @contextlib.asynccontextmanager
    async def attached(
        self, name: str, who: str, *, write: bool, take: bool
    ) -> AsyncIterator[Attached]:
        """Attaches for the length of a block; the node's history says who had the keyboard. Raises
        LayercakeError."""
        record = self._store.named(name)
        reader = Attached(self._ask, self._store, record, who, write)
        await reader.attach(take)
        since = time.monotonic()
        if write:
            what = "takes the console" if take else "opens the console"
            self._store.event(
                record, events.NODE_CONSOLE, f"{who} {what}, to write to it", data={"by": who}
            )
        try:
            yield reader
        finally:
            await reader.detach()
            if write and self._store.find(record.node.id) is record:
                seconds = round(time.monotonic() - since, 1)
                self._store.event(
                    record,
                    events.NODE_CONSOLE_LEFT,
                    f"{who} leaves the console after {seconds:.0f} s",
                    data={"by": who, "seconds": seconds},
                )
