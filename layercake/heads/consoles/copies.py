"""A follower's copies of the logs of consoles, never more than a second behind while it can ask the
leader. It asks; the leader keeps nothing for it, and waits for nobody."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import shutil
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import aiohttp
import msgspec

from layercake.base.clock import stamp
from layercake.heads.consoles.pieces import (
    ANSWER_BYTES,
    DIRECTORY,
    GONE,
    MOST_WANTS,
    Changed,
    CopyState,
    Piece,
    copy_state,
    files_of,
    node_of,
    nodes_in,
)
from layercake.heads.copying import HeadLink, content_of
from layercake.kraken.errors import LayercakeError, OperationFailed

log = logging.getLogger("layercake.heads")
CHANGED = "/head/v1/consoles"
PIECES = "/head/v1/consoles/pieces"
TURN_S = 0.4
"""After so long it is asked again what has changed, which comes first."""
QUIET_S = 0.8
"""The same while nothing changes."""
BUSY_S = 0.05
ASKED_S = 30.0
RETRY_S = 2.0
BYTES_PER_S = 8 << 20
"""A follower takes no more: one that was away must not keep the leader's network busy."""
SPARE = 256 << 20
"""Bytes of the file system that are never taken (powerman.console.logs)."""
RECENT_S = 3600.0
_LIST_BYTES = 32 << 20
_ROOM = 2 * ANSWER_BYTES


class ConsoleCopies:
    """Copies the logs of consoles from the head that leads; runs in the store's loop. `wall` is in
    seconds since the epoch."""

    def __init__(
        self, data_dir: Path, link: HeadLink, wall: Callable[[], float] = time.time
    ) -> None:
        self._directory = data_dir / DIRECTORY
        self._link = link
        self._wall = wall
        self._since = ""
        self._pending: dict[str, bool] = {}
        self._recent: dict[str, float] = {}
        self._rests_s = TURN_S
        self.complete_at = 0.0
        """When this head had all that the leader had written by then."""
        self.trouble = ""

    async def copy_from(self, leader: Callable[[], str]) -> None:
        """Copies from the head at the URL that `leader` gives, "" for none, until it is
        cancelled."""
        while True:
            try:
                if url := leader():
                    self._since = ""
                    await self._follow(url, leader)
                self.trouble = ""
            except LayercakeError as error:
                if error.message != self.trouble:
                    log.warning("the logs of consoles are not copied: %s", error.message)
                self.trouble = error.message
            except Exception as error:  # a fault of ours: it is tried again
                if not self.trouble:
                    log.exception("the logs of consoles are not copied")
                self.trouble = f"{type(error).__name__}: {error}"
            await asyncio.sleep(RETRY_S if self.trouble else TURN_S)

    async def _follow(self, url: str, leader: Callable[[], str]) -> None:
        """Raises OperationFailed."""
        async with self._link.connected(url) as (client, tls):
            while leader() == url:
                await self._turn(client, tls, url)
                self.trouble = ""
                await asyncio.sleep(self._rests_s)

    async def _turn(self, client: aiohttp.ClientSession, tls: ssl.SSLContext, url: str) -> None:
        """Asks what has changed, and takes that first; then what else there is to take."""
        began = self._wall()
        asked = client.get(
            url + CHANGED, params={"since": self._since}, ssl=tls, allow_redirects=False
        )
        async with asyncio.timeout(ASKED_S), asked as answer:
            found = msgspec.msgpack.decode(await content_of(answer, _LIST_BYTES), type=Changed)
        names = [name for name in found.names if node_of(files_of(name)[0])]
        self._rests_s = TURN_S if names else QUIET_S
        if found.all and names:
            await asyncio.to_thread(self._remove_others, names)
        changed = {name: found.all or self._pending.get(name, False) for name in names}
        self._pending = {**changed, **{k: v for k, v in self._pending.items() if k not in changed}}
        self._since = found.now
        clock = asyncio.get_running_loop().time
        ends = clock() + TURN_S
        while self._pending and clock() < ends:
            await self._take_some(client, tls, url)
        if self._pending:
            self._rests_s = BUSY_S
        else:
            self.complete_at = began

    async def _take_some(
        self, client: aiohttp.ClientSession, tls: ssl.SSLContext, url: str
    ) -> None:
        some = dict(itertools.islice(self._pending.items(), MOST_WANTS // 2))
        wants = await asyncio.to_thread(self._wants, some)
        body = msgspec.msgpack.encode([*wants.values()])
        asked = client.post(url + PIECES, data=body, ssl=tls, allow_redirects=False)
        async with asyncio.timeout(ASKED_S), asked as answer:
            data = await content_of(answer, _ROOM)
        found = msgspec.msgpack.decode(data, type=list[Piece])
        again = await asyncio.to_thread(self._write, found, wants)
        for node in {node_of(one.name) for one in found} - again.keys():
            del self._pending[node]
            self._recent[node] = self._wall()
        self._pending |= again
        await asyncio.sleep(sum(len(one.data) for one in found) / BYTES_PER_S)

    # -- the files: these block

    def _wants(self, nodes: Mapping[str, bool]) -> dict[str, CopyState]:
        """What this head has of the logs of some nodes, and whether the ones before count."""
        self._directory.mkdir(mode=0o700, exist_ok=True)
        if shutil.disk_usage(self._directory).free < SPARE:
            raise OperationFailed(f"cannot write them: less than {SPARE >> 20} MiB are free")
        return {
            name: copy_state(self._directory, name)
            for node, both in nodes.items()
            for name in files_of(node)[: 2 if both else 1]
        }

    def _write(self, found: list[Piece], wants: Mapping[str, CopyState]) -> dict[str, bool]:
        """The nodes that more is to be asked for, and whether of the log before, too. Raises
        OperationFailed for what was not asked for."""
        again: dict[str, bool] = {}
        answered = {one.name for one in found}
        for one in found:
            asked = wants.get(one.name)
            if asked is None or one.at not in (GONE, 0, asked.size):
                raise OperationFailed("cannot use what the leader sends: it was not asked for")
            node = node_of(one.name)
            newest, before = files_of(node)
            if one.name == before and again.get(node):
                continue  # it is another file by now
            if one.name == newest and asked.size and one.at != asked.size:
                # It has become the one before, or was never the leader's: that is looked at then.
                (self._directory / newest).replace(self._directory / before)
                again[node] = True
            self._apply(one)
            if one.more or not wants.keys() & {newest, before} <= answered:
                again.setdefault(node, before in wants)
        return again

    def _apply(self, one: Piece) -> None:
        path = self._directory / one.name
        if one.at == GONE:
            path.unlink(missing_ok=True)
            return
        how = os.O_APPEND if one.at else os.O_TRUNC
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | how
        if not one.data and one.at:
            return
        handle = os.open(path, flags, 0o600)
        with os.fdopen(handle, "wb", buffering=0) as file:
            view = memoryview(one.data)
            while view:
                view = view[file.write(view) or 0 :]

    def _remove_others(self, names: Iterable[str]) -> None:
        """Removes the logs of nodes that have none on the leader."""
        for node in {*nodes_in(self._directory)} - {*names}:
            for name in files_of(node):
                (self._directory / name).unlink(missing_ok=True)

    def note_takeover(self, head: str) -> None:
        """This head leads: says so in the logs of the last hour, and since when something may be
        missing there."""
        now = self._wall()
        missing = f"what was said after {stamp(self.complete_at)} may be missing here"
        line = f"{stamp(now)} --- {head} leads from here on; {missing}\n".encode()
        for node, at in self._recent.items():
            if now - at <= RECENT_S:
                with contextlib.suppress(OSError):  # the next writing tells of it
                    self._append(self._directory / files_of(node)[0], line)

    @staticmethod
    def _append(path: Path, line: bytes) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(path, flags), "wb", buffering=0) as file:
            file.write(line)
