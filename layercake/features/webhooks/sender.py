"""Tells webhooks what happens: in batches, each signed, in the order of the events, again and again
until it was taken.

A receiver that hangs or is away costs a queue that is bounded; the oldest events are left out then,
and it is told how many. How far each webhook was told is kept with the head's state, so that a head
that starts anew goes on there: what was told last may be told twice, by the same delivery number if
nothing was added.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import random
import ssl
import time
from collections import deque
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

import aiohttp
import msgspec

from layercake.base.secrets import SecretRef, Vault
from layercake.features.events.views import event_view
from layercake.features.webhooks.formats import ENDS, FORMATS, OF_EACH, alerts
from layercake.features.webhooks.settings import OF_WEBHOOKS, WebhookSettings, url
from layercake.fleet import events
from layercake.fleet.persistence.database import Database
from layercake.fleet.persistence.history import History, Wanted
from layercake.fleet.store import Event, Record, Store
from layercake.kraken.errors import InputError, LayercakeError, OperationFailed, Unreachable
from layercake.kraken.events import Severity
from layercake.moduleapi.fields import Mistake

log = logging.getLogger("layercake.webhooks")
DOCUMENTS = "webhooks/"
ANSWER_S = 10.0
"""How long a receiver has for its answer."""
GATHER_S = 0.5
"""How long events are gathered after the first."""
ALERTS_GATHER_S = 15.0
"""The same of those that are told as alerts: by then an outage is known to be one."""
FIRST_S = 1.0
"""The first wait before it is tried again."""
LONGEST_S = 300.0
"""The longest wait before it is tried again."""
MOST = 10_000
"""Events that wait for one webhook."""
AT_ONCE = 200
"""Events that are sent in one request."""
_OWN = "webhook."
_SEVERITIES = tuple(one.value for one in Severity)


def signature(secret: str, at: int, body: bytes) -> str:
    """What X-Layercake-Signature says: HMAC-SHA256 over "SECONDS.BODY" (RFC 2104), in hex."""
    return (
        "sha256=" + hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    )


Expected = Callable[[Record], bool]
"""Whether it is no news that something is wrong with a node: it is in maintenance, or in an
outage."""


class Webhook:
    """One of them."""

    def __init__(
        self,
        name: str,
        settings: WebhookSettings,
        store: Store,
        vault: Vault,
        head: str,
        expected: Expected,
    ) -> None:
        self.name = name
        self._expected = expected
        self._settings = settings
        self._store = store
        self._vault = vault
        self._head = head
        self._least = _SEVERITIES.index(settings.severity)
        self._waiting: deque[Event] = deque()
        self._some = asyncio.Event()
        self._left_out = 0
        self._failed_at: float | None = None

    def means(self, event: Event) -> bool:
        """Whether it is told of an event. What is told of webhooks themselves is not: that would
        never end."""
        kinds = (event.kind, ENDS.get(event.kind, event.kind))
        grave = _SEVERITIES.index(event.severity) >= self._least
        return (
            (grave or (self._alerts and event.kind in ENDS))
            and not event.kind.startswith(_OWN)
            and (
                not self._settings.kinds
                or any(kind.startswith(tuple(self._settings.kinds)) for kind in kinds)
            )
        )

    @property
    def _alerts(self) -> bool:
        return self._settings.format in FORMATS

    def hear(self, event: Event) -> None:
        """Something happened."""
        if self.means(event):
            self._waiting.append(event)
            if len(self._waiting) > MOST:
                self._waiting.popleft()
                self._left_out += 1
            self._some.set()

    async def run(self, history: History, told: int | None) -> None:
        """Tells it what happens, for as long as the head lives; first what it has missed since the
        event `told`, if it was ever told anything."""
        stop = self._store.listen(self.hear)
        try:
            if told is None:
                self._store_position(
                    max((e.id for e in (*self._store.events, *self._store.alarms)), default=0)
                )
            else:
                missed = await history.find(self._store, Wanted(after=told, limit=MOST), self.means)
                live = {event.id for event in self._waiting}
                self._waiting.extendleft(
                    event for event in reversed(missed) if event.id not in live
                )
                self._some.set()
            while True:
                await self._some.wait()
                await asyncio.sleep(ALERTS_GATHER_S if self._alerts else GATHER_S)
                await self._deliver()
        finally:
            stop()

    def _store_position(self, number: int) -> None:
        self._store.documents[DOCUMENTS + self.name] = str(number).encode

    async def _deliver(self) -> None:
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(AT_ONCE, len(self._waiting)))]
            left_out = self._left_out
            await self._until_taken(batch, left_out)
            self._left_out -= left_out
            self._store_position(batch[-1].id)
        self._some.clear()

    async def _bodies(self, batch: list[Event], left_out: int) -> list[bytes]:
        """What is sent of these events, one request after the other. Raises LayercakeError."""
        if (form := FORMATS.get(self._settings.format)) is not None:
            news = [event for event in batch if self._is_news(event)]
            secret = ""
            if self._settings.secret:
                secret = await asyncio.to_thread(self._secret, self._settings.secret)
            found = alerts(news, of_each=self._settings.format in OF_EACH)
            return [
                msgspec.json.encode(body)
                for body in (form(found, self._head, left_out, secret) if found or left_out else ())
            ]
        views = [event_view(event) for event in batch]
        whole = {"head": self._head, "left_out": left_out, "events": views}
        return [msgspec.json.encode(whole)]

    def _is_news(self, event: Event) -> bool:
        """Whether it is told of. What ends an alert always is: that may be of before it was
        expected, and would stay open."""
        if event.security or event.kind in ENDS:
            return True
        record = self._store.lookup(event.node)
        return record is None or not self._expected(record)

    async def _until_taken(self, batch: list[Event], left_out: int) -> None:
        delivery = f"{self._store.epoch:x}-{batch[0].id}-{batch[-1].id}"
        wait_s = FIRST_S
        while True:
            try:
                for body in await self._bodies(batch, left_out):
                    await self._post(body, delivery)
                break
            except LayercakeError as error:
                if self._failed_at is None:
                    self._failed_at = time.monotonic()
                    self._store.event(
                        None,
                        events.WEBHOOK_FAILED,
                        f"webhook {self.name}: {error}; it is tried again",
                    )
            await asyncio.sleep(wait_s * random.uniform(0.8, 1.2))  # noqa: S311 (no secret)
            wait_s = min(LONGEST_S, 2 * wait_s)
        if self._failed_at is not None:
            took = time.monotonic() - self._failed_at
            self._failed_at = None
            lost = f"; {left_out} events were left out" if left_out else ""
            self._store.event(
                None,
                events.WEBHOOK_WELL,
                f"webhook {self.name} takes events again, after {took:.0f} s{lost}",
            )

    async def _post(self, body: bytes, delivery: str) -> None:
        """One request. Raises LayercakeError, which names the host and nothing else of the URL."""
        target = await asyncio.to_thread(self._target)
        at = int(self._store.wall())
        host = urlsplit(target).hostname
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "layercake",
            "X-Layercake-Delivery": delivery,
            "X-Layercake-Time": str(at),
        }
        if self._settings.secret:
            headers["X-Layercake-Signature"] = signature(
                await asyncio.to_thread(self._secret, self._settings.secret), at, body
            )
        try:
            context = await self._trusted(target)
            timeout = aiohttp.ClientTimeout(total=ANSWER_S)
            async with (
                aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as client,
                client.post(
                    target, data=body, headers=headers, ssl=context, allow_redirects=False
                ) as answer,
            ):
                status = answer.status
        except TimeoutError:
            raise Unreachable(f"{host} does not answer in {ANSWER_S:.0f} s") from None
        except aiohttp.ClientError as error:
            raise Unreachable(f"{host} cannot be reached: {type(error).__name__}") from None
        except OSError as error:
            raise Unreachable(
                f"{host} cannot be reached: {error.strerror or type(error).__name__}"
            ) from None
        if not 200 <= status < 300:
            raise OperationFailed(f"{host} answers {status}")

    async def _trusted(self, target: str) -> ssl.SSLContext | bool:
        """Whom a receiver's certificate is checked by. To read all authorities takes long, and the
        head has other things to do. Raises OSError."""
        if not target.startswith("https:"):
            return True
        return await asyncio.to_thread(ssl.create_default_context, cafile=self._settings.ca or None)

    def _target(self) -> str:
        found = self._settings.url
        if self._settings.url_secret:
            try:
                found = url(self._secret(self._settings.url_secret))
            except Mistake as mistake:
                raise InputError(
                    f"the secret {self._settings.url_secret} holds no URL for it: {mistake.message}"
                ) from None
        if not found:
            raise InputError("it has no url", hint="url or url_secret in config.yaml")
        return found

    def _secret(self, name: str) -> str:
        return self._vault.open(SecretRef(file=f"{OF_WEBHOOKS}/{name}")).reveal()


class Webhooks:
    """All of a head's."""

    def __init__(
        self,
        settings: Mapping[str, WebhookSettings],
        store: Store,
        vault: Vault,
        head: str,
        expected: Expected = lambda record: False,
    ) -> None:
        self._all = [
            Webhook(name, one, store, vault, head, expected) for name, one in settings.items()
        ]

    async def run(self, database: Database) -> None:
        """Tells them what happens, until it is cancelled."""
        kept = database.documents(DOCUMENTS)
        told = {one: kept.get(DOCUMENTS + one.name, b"") for one in self._all}
        await asyncio.gather(
            *(
                one.run(database.history, int(last) if last.isdigit() else None)
                for one, last in told.items()
            )
        )
