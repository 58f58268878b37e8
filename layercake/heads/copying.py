"""Shared files on their way: the leader says which there are now, and the others fetch what they
do not have, over TLS with certificates of the site's authority on both sides.

What `now/files` in the store names are the files of a leader that had all of them. A head with
others is behind: it does not lead while one that has them is there, and if it has to lead, nobody
takes over what it has not.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import aiohttp
import msgspec

from layercake.base.files import write_atomic
from layercake.heads.files import (
    COPYING,
    FileEntry,
    Manifest,
    SharedFiles,
    check,
    in_order,
    is_later,
)
from layercake.heads.log import SharedLog, Term
from layercake.heads.standby import HeadSays, heads_of
from layercake.kraken.errors import LayercakeError, OperationFailed, Refused
from layercake.moduleapi.tls_client import OutgoingConnections

log = logging.getLogger("layercake.heads")
FILES = "/head/v1/files"
HAD = "heads/files"
"""The marks of the newest files that this head has all of."""
LOOK_S = 1.0
WAIT_S = 30.0
"""So long a change waits for the other heads to have the files that are new with it."""
ASK_S = 0.1
MANIFEST_BYTES = 64 << 20
CHUNK = 1 << 20
CONNECT_S = 5.0
SILENT_S = 30.0
"""A leader that sends nothing for so long is asked again later."""


class HeadLink:
    """Asks another head of the site. `context` makes what TLS is asked with: the site's authority,
    and this head's own certificate."""

    def __init__(self, context: Callable[[], ssl.SSLContext]) -> None:
        self._context = context

    async def copy(
        self, url: str, data_dir: Path, files: SharedFiles, *, only: str = ""
    ) -> tuple[Manifest, list[str]]:
        """Has all the files of the head at `url`; what they are, and the paths of those that
        changed here. What changes by itself may have changed on its way: there is no mark of it
        then. `only`: those whose paths begin so, and removes none. Raises OperationFailed; what was
        copied by then is there."""
        async with self.connected(url) as (client, tls):
            return await self._copy(client, tls, url, data_dir, files, only)

    @contextlib.asynccontextmanager
    async def connected(
        self, url: str
    ) -> AsyncIterator[tuple[aiohttp.ClientSession, ssl.SSLContext]]:
        """What the head at `url` is asked with. What fails meanwhile is an OperationFailed."""
        connections = OutgoingConnections()
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=SILENT_S)
        try:
            async with (
                contextlib.aclosing(connections),
                connections.session(timeout=timeout, auto_decompress=False) as client,
            ):
                yield client, self._context()
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            why = str(error) or type(error).__name__
            raise OperationFailed(f"cannot copy files from {url}: {why}") from None

    async def _copy(
        self,
        client: aiohttp.ClientSession,
        tls: ssl.SSLContext,
        url: str,
        data_dir: Path,
        files: SharedFiles,
        only: str,
    ) -> tuple[Manifest, list[str]]:
        async with client.get(url + FILES, ssl=tls, allow_redirects=False) as answer:
            data = await content_of(answer, MANIFEST_BYTES)
        wanted = msgspec.json.decode(data, type=Manifest)
        check(wanted)
        own = {one.path: one for one in (await asyncio.to_thread(files.manifest)).files}
        changed = [one for one in in_order(wanted.files) if own.get(one.path) != one]
        some = [one for one in changed if one.path.startswith(only)]
        whole = await _fetch_all(client, url, tls, data_dir, some)
        if not whole:  # what names others is as it was, so these stay
            wanted = msgspec.structs.replace(wanted, later="")
        remove = partial(files.remove_others, wanted, later=whole)
        gone = [] if only else await asyncio.to_thread(remove)
        return wanted, [one.path for one in changed] + gone


async def content_of(answer: aiohttp.ClientResponse, most: int) -> bytes:
    """The whole content of an answer, of which one byte more than `most` is read. Raises
    OperationFailed for any other status than 200."""
    _check_status(answer)
    data = bytearray()
    while len(data) <= most and (piece := await answer.content.read(most + 1 - len(data))):
        data += piece
    return bytes(data)


def _check_status(answer: aiohttp.ClientResponse) -> None:
    if answer.status != 200:
        raise OperationFailed(f"cannot copy files from {answer.url}: it answers {answer.status}")


async def _fetch_all(
    client: aiohttp.ClientSession,
    url: str,
    tls: ssl.SSLContext,
    data_dir: Path,
    files: Iterable[FileEntry],
) -> bool:
    """Fetches files in their order. Whether all came: of those that change by themselves one may
    have changed since they were listed, and comes the next time with what follows it. Raises
    OperationFailed and OSError."""
    whole = True
    for one in files:
        if is_later(one.path) and not whole:
            continue
        try:
            await _fetch(client, url, tls, data_dir, one)
        except OperationFailed:
            if not is_later(one.path):
                raise
            whole = False
    return whole


async def _fetch(
    client: aiohttp.ClientSession, url: str, tls: ssl.SSLContext, data_dir: Path, one: FileEntry
) -> None:
    """Fetches one file; it is there whole or not at all. Raises OperationFailed and OSError."""
    place = data_dir / one.path
    for folder in reversed(place.relative_to(data_dir).parents):
        if (data_dir / folder).is_symlink():
            raise OperationFailed(f"cannot copy {one.path}: {folder} is a symbolic link here")
        (data_dir / folder).mkdir(mode=0o700, exist_ok=True)
    copying = place.with_name(f"{place.name[:200]}{COPYING}")
    copying.unlink(missing_ok=True)
    digest = hashlib.sha256()
    left = one.size
    query = {"path": one.path, "sha256": one.sha256}
    mode = 0o644 if one.readable else 0o600
    opened = os.open(copying, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(opened, "wb") as file:
            async with client.get(
                f"{url}{FILES}/one", params=query, ssl=tls, allow_redirects=False
            ) as answer:
                _check_status(answer)
                async for piece in answer.content.iter_chunked(CHUNK):
                    left -= len(piece)
                    if left < 0:
                        break
                    digest.update(piece)
                    await asyncio.to_thread(_write, file.fileno(), piece)
            if left or digest.hexdigest() != one.sha256:
                raise OperationFailed(f"cannot copy {one.path}: it changed on its way")
            os.fchmod(file.fileno(), mode)
            await asyncio.to_thread(os.fsync, file.fileno())
        copying.replace(place)
    finally:
        copying.unlink(missing_ok=True)


def _write(descriptor: int, piece: bytes) -> None:
    view = memoryview(piece)
    while view:
        view = view[os.write(descriptor, view) :]


class FileCopies:
    """Keeps this head's files as the leader's are; runs in the store's loop. `changed` is called
    there with the paths of those that were copied or removed."""

    def __init__(
        self,
        data_dir: Path,
        name: str,
        shared: SharedLog,
        link: HeadLink,
        changed: Callable[[Sequence[str]], None],
    ) -> None:
        self._data_dir = data_dir
        self._name = name
        self._shared = shared
        self._link = link
        self._changed = changed
        self._files = SharedFiles(data_dir)
        self._turn = asyncio.Lock()
        self._had_file = data_dir / HAD
        self._had = _read_lines(self._had_file)
        self._compared = False
        self._judged = False
        self._everywhere = ""
        self._entries: dict[str, FileEntry] = {}
        self.manifest: Manifest | None = None
        """The files of a head that leads, as it saw them last."""
        self.trouble = ""
        self.lacks = False
        """It leads without all the files that a leader before it had."""

    @property
    def mark(self) -> str:
        """The mark of the newest files that this head has all of, "" for none."""
        return self._had[0].partition(" ")[0]

    @property
    def newest(self) -> str:
        """How the store names them."""
        return self._had[0]

    def check(self) -> None:
        """Raises Refused on a head that leads without all files: what is changed there would be
        lost as soon as a head with all of them is back."""
        if self.lacks:
            raise Refused(
                "cannot change files: this head leads without all files of the site",
                hint="bring a head back that has them, see `layercake heads`; where there is none "
                "any more, `layercake heads remove HEAD` those that had them",
            )

    def _note_complete(self, *marks: str) -> None:
        """This head has all files of these marks, the newest first. Raises OperationFailed."""
        if list(marks) == self._had:
            return
        try:
            write_atomic(self._had_file, "\n".join(marks), durable=True)
        except OSError as error:
            raise OperationFailed(
                f"cannot write {self._had_file}: {error.strerror}",
                hint="look at its disk: `df`, `dmesg`",
            ) from None
        self._had = list(marks)

    # -- a follower

    async def follow(self, url: str) -> None:
        """Has the files that the leader has, as the store names them. Raises LayercakeError."""
        wanted = await self._shared.files()
        if not wanted or not url or (self._compared and wanted == self._had[0]):
            return
        async with self._turn:
            found, changed = await self._link.copy(url, self._data_dir, self._files)
            self._compared = True
            self._note_complete(f"{found.mark} {found.later}")
            if changed:
                log.info("%d files are as the leader has them", len(changed))
                self._changed(changed)
                await asyncio.to_thread(self._files.manifest)  # to lead takes no time then

    async def may_lead(self, others: Iterable[HeadSays]) -> bool:
        """Whether it has what it needs to lead, or nobody has more. Raises StoreAway and
        StoreRefused."""
        return not await self._is_behind() or not await self.with_all(others)

    async def with_all(self, others: Iterable[HeadSays]) -> str:
        """A head, other than this one, that has all files; "" if there is none now. Raises
        StoreAway and StoreRefused."""
        wanted = (await self._shared.files()).partition(" ")[0]
        having = (
            one.head
            for one in others
            if one.files == wanted and not one.trouble and one.head != self._name
        )
        return next(having, "")

    async def _is_behind(self) -> bool:
        wanted = (await self._shared.files()).partition(" ")[0]
        return wanted not in ("", *(one.partition(" ")[0] for one in self._had))

    # -- the leader

    async def _judge(self) -> None:
        """Once, as it leads: has it all files?"""
        if not self._judged:
            self.lacks = await self._is_behind()
            self._judged = True
            if self.lacks:
                log.error("this head leads without all files of the site: see `layercake heads`")

    async def accept(self, term: Term) -> None:
        """What it has is all that there is from now on: a head that has more does not come back.
        Raises LayercakeError."""
        self._judged = True
        self.lacks = False
        await self.publish(term)

    def entry(self, path: str, sha256: str) -> FileEntry | None:
        """A file of the manifest that others were given last; None for any other."""
        found = self._entries.get(path)
        return found if found is not None and found.sha256 == sha256 else None

    async def publish(self, term: Term) -> None:
        """Names the files that there are in the store. Raises LayercakeError."""
        await self._judge()
        async with self._turn:
            found = await asyncio.to_thread(self._files.manifest)
            if found != self.manifest:
                self._entries = {one.path: one for one in found.files}
                self.manifest = found
            now = f"{found.mark} {found.later}"
            if not self.lacks and now != self._had[0]:
                self._note_complete(now, self._had[0])
                if await self._shared.keep_files(term, now):
                    self._note_complete(now)

    async def wait_until_copied(self, term: Term) -> None:
        """Returns when each head that is there has the files that this one has now, or after
        WAIT_S: it is behind then, and nobody waits for these files again. Raises
        LayercakeError."""
        behind: list[str] = []
        mark = ""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAIT_S):
                await self.publish(term)
                mark = self.mark
                if self.lacks or mark == self._everywhere:
                    return
                while True:
                    behind = await self._behind(mark)
                    if not behind:
                        break
                    await asyncio.sleep(ASK_S)
        self._everywhere = mark or self._everywhere  # others waited beside this one until now
        if behind:
            log.warning("%s has not all files yet", ", ".join(behind))

    async def _behind(self, mark: str) -> list[str]:
        heads = await heads_of(self._shared)
        return [one.head for one in heads if one.head != self._name and one.files != mark]


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text().split("\n")
    except (OSError, UnicodeDecodeError):
        return [""]


async def keep_files(copies: FileCopies, turn: Callable[[], Awaitable[None]]) -> None:
    """Looks after the files again and again, until it is cancelled."""
    while True:
        try:
            await turn()
            copies.trouble = ""
        except (LayercakeError, OSError) as error:
            why = error.message if isinstance(error, LayercakeError) else f"cannot copy: {error}"
            if why != copies.trouble:
                log.error("%s", error)
            copies.trouble = why
        except Exception as error:  # a fault of ours: the files are looked after all the same
            if not copies.trouble:
                log.exception("the files of the heads cannot be looked after")
            copies.trouble = f"cannot copy: {type(error).__name__}: {error}"
        await asyncio.sleep(LOOK_S)
