"""Sends lines to collectors: in batches, in their order, again until they were taken. One that
hangs or is away costs a queue that is bounded; the oldest lines are left out then, and a line in
their place says how many."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Protocol
from urllib.parse import urlsplit

import aiohttp

from layercake.base.secrets import SecretRef, Vault
from layercake.base.text import count_of
from layercake.features.logs.entry import Entry, Waiting
from layercake.features.logs.otlp import Collector, Unusable
from layercake.features.logs.settings import OF_LOGS, LogSettings
from layercake.features.logs.syslog import Datagrams, Stream
from layercake.fleet import events
from layercake.fleet.store import Store
from layercake.kernel.delivery import Delivery
from layercake.kraken.errors import LayercakeError, OperationFailed

log = logging.getLogger("layercake.logs")
GATHER_S = 0.5
"""How long lines are gathered."""
ANSWER_S = 10.0
"""How long a collector has to take a batch of lines."""
LONGEST_S = 60.0
"""The longest wait before it is tried again."""
AT_ONCE = 500
LAST_S = 2.0
"""How long a head that stops tries to be rid of its last lines."""


class Transport(Protocol):
    """A way to a collector."""

    async def send(self, entries: Sequence[Entry]) -> None:
        """Sends them; raises why it could not."""

    def close(self) -> None:
        """Ends what is open."""


def transport(settings: LogSettings, authorization: Callable[[], str]) -> Transport:
    """The way that the settings say. Raises OSError for an authority that cannot be read."""
    address = urlsplit(settings.to)
    head = socket.gethostname()
    context = (
        ssl.create_default_context(cafile=settings.ca or None)
        if address.scheme in ("tls", "https")
        else None
    )
    if address.scheme == "udp":
        return Datagrams(address, head)
    if address.scheme in ("tcp", "tls"):
        return Stream(address, head, context)
    return Collector(settings.to, head, context, authorization)


class Sender:
    """One collector's. `name` is that of the settings."""

    def __init__(self, name: str, settings: LogSettings, store: Store, vault: Vault) -> None:
        self.name = name
        self.settings = settings
        self.waiting = Waiting()
        self._store = store
        self._vault = vault
        self._host = urlsplit(settings.to).hostname
        self._batch: list[Entry] = []
        self._lost = 0
        self._delivery = Delivery(LONGEST_S, self._failed)
        self._transport: Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(GATHER_S)
            while self._batch or len(self.waiting):
                await self._delivery.until_taken(self._next)

    async def _next(self) -> None:
        """Sends a batch, if what was to be sent was not given up. Raises LayercakeError."""
        async with self._turn:
            if self._batch or len(self.waiting):
                await self._some()

    def start(self) -> None:
        """Begins to send what comes."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Ends, after what waits, if that goes at once."""
        if self._task is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_S), self._turn:  # what is under way is not sent twice
                self._task.cancel()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        try:
            async with asyncio.timeout(LAST_S):
                while self._batch or len(self.waiting):
                    await self._some()
        except (LayercakeError, TimeoutError):
            pass  # it was told, or is told when the next head starts
        if self._transport is not None:
            self._transport.close()

    async def _some(self) -> None:
        """Sends one batch; one that was not taken is kept for the next try. Raises
        LayercakeError."""
        if not self._batch:
            self._batch, left_out = self.waiting.next_batch(AT_ONCE)
            if left_out:
                self._lost += left_out
                self._batch.insert(
                    0,
                    Entry(
                        self._batch[0].at if self._batch else time.time(),
                        4,
                        f"{count_of(left_out, 'line')} left out here, as they could not be sent",
                    ),
                )
        try:
            if self._transport is None:
                self._transport = await asyncio.to_thread(
                    transport, self.settings, self._authorization
                )
            async with asyncio.timeout(ANSWER_S):
                await self._transport.send(self._batch)
        except Unusable:
            self._lost += len(self._batch)
            self._batch = []
            raise
        except LayercakeError:
            raise
        except Exception as error:
            raise OperationFailed(self._why(error)) from error
        self._batch = []
        after_s = self._delivery.taken()
        if after_s is not None:
            lost = self._lost
            self._lost = 0
            self._store.event(
                None,
                events.LOGS_WELL,
                f"logs to {self.name} are taken again, after {after_s:.0f} s"
                + (f"; {count_of(lost, 'line')} left out" if lost else ""),
            )

    def _failed(self, why: str) -> None:
        self._store.event(
            None,
            events.LOGS_FAILED,
            f"logs to {self.name}: {self._host}: {why}; they wait, and it is tried again",
        )

    def _why(self, error: Exception) -> str:
        """What a person is told of an error; a bug, and a header that is none, ends nothing."""
        if isinstance(error, TimeoutError):
            return f"it takes nothing in {ANSWER_S:.0f} s"
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"its certificate is not good: {error.verify_message}"
        if not isinstance(error, OSError | aiohttp.ClientError):
            log.error("logs to %s cannot be sent", self.name, exc_info=error)
        return str(getattr(error, "strerror", "") or type(error).__name__)

    def _authorization(self) -> str:
        name = self.settings.authorization
        return self._vault.open(SecretRef(file=f"{OF_LOGS}/{name}")).reveal() if name else ""
