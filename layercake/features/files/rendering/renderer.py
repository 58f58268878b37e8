"""The head's side of the process that renders templates: it is started when it is needed, and again
when it hangs."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import signal
import struct
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from layercake.base.secrets import without_secrets
from layercake.features.files.rendering.template import SECONDS
from layercake.features.files.rendering.worker import MAX_FRAME, Answer, Job, Question, frame

MEMORY = 512 << 20
GRACE_S = 30.0
"""Seconds beyond what templates may take until the process is given up: it may have to be started,
and machines are busy."""
_LENGTH = struct.Struct("!I")


class Renderer:
    """Renders for one node at a time. A template that had to be ended from outside is not tried
    again."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._told: set[str] = set()
        self._site = ""
        self._hung: set[str] = set()

    @property
    def pid(self) -> int:
        """The process, 0 if there is none."""
        return self._process.pid if self._process is not None else 0

    async def render(
        self, texts: Sequence[str], node: Mapping[str, Any], site: Mapping[str, Any], mark: str
    ) -> list[tuple[str | None, str]]:
        """For each template (text, "") or (None, what is wrong). `mark` stands for `site`."""
        keys = [hashlib.blake2b(text.encode(), digest_size=16).hexdigest() for text in texts]
        found: dict[str, tuple[str | None, str]] = dict.fromkeys(
            self._hung & set(keys), (None, "it hung, and had to be ended")
        )
        left = [key for key in dict.fromkeys(keys) if key not in found]
        by_key = dict(zip(keys, texts, strict=True))
        async with self._turn:
            if left:
                try:
                    found |= await self.request(left, by_key, node, site, mark)
                except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
                    found |= await self._one_by_one(left, by_key, node, site, mark)
        return [found[key] for key in keys]

    async def _one_by_one(
        self,
        keys: Sequence[str],
        by_key: Mapping[str, str],
        node: Mapping[str, Any],
        site: Mapping[str, Any],
        mark: str,
    ) -> dict[str, tuple[str | None, str]]:
        """After the process was given up: who of them is to blame is found out, and left out from
        then on."""
        await self.ended()
        found: dict[str, tuple[str | None, str]] = {}
        for key in keys:
            try:
                found |= await self.request([key], by_key, node, site, mark)
            except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
                await self.ended()
                self._hung.add(key)
                found[key] = None, "it hung, or took too much memory, and had to be ended"
        return found

    async def request(
        self,
        keys: Sequence[str],
        by_key: Mapping[str, str],
        node: Mapping[str, Any],
        site: Mapping[str, Any],
        mark: str,
    ) -> dict[str, tuple[str | None, str]]:
        """Asks the process, within a turn. Raises TimeoutError, IncompleteReadError,
        ConnectionError."""
        process = self._process or await self._start()
        jobs = [Job(key, "" if key in self._told else by_key[key]) for key in keys]
        question = Question(jobs, dict(node), None if mark == self._site else dict(site))
        async with asyncio.timeout(GRACE_S + len(keys) * SECONDS):
            # For the type checker.
            assert process.stdin is not None and process.stdout is not None  # noqa: S101
            process.stdin.write(
                await asyncio.to_thread(frame, question) if question.site else frame(question)
            )
            await process.stdin.drain()
            size = _LENGTH.unpack(await process.stdout.readexactly(_LENGTH.size))[0]
            if size > MAX_FRAME:
                raise ConnectionError("the answer is too long")
            data = await process.stdout.readexactly(size)
        self._told.update(keys)
        self._site = mark
        answer = msgspec.msgpack.decode(data, type=Answer)
        return dict(zip(keys, zip(answer.texts, answer.errors, strict=True), strict=True))

    async def _start(self) -> asyncio.subprocess.Process:
        self._told = set()
        self._site = ""
        self._process = await asyncio.create_subprocess_exec(
            "setpriv",
            "--pdeathsig",
            "KILL",
            "--",
            "prlimit",
            f"--as={MEMORY}",
            "--core=0",
            "--",
            "nice",
            "-n",
            "5",
            sys.executable,
            "-m",
            "layercake.features.files.rendering.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            process_group=0,
            env=without_secrets(os.environ),
        )
        return self._process

    async def ended(self) -> None:
        """Ends the process. Within a turn."""
        process = self._process
        self._process = None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        if process.stdin is not None:
            process.stdin.transport.abort()
        await process.wait()

    async def close(self) -> None:
        """Ends the process."""
        async with self._turn:
            await self.ended()
