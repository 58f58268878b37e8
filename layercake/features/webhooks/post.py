"""Tells somebody by POST requests, each signed."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ssl
from collections.abc import Sequence
from urllib.parse import urlsplit

import aiohttp
import msgspec

from layercake.base.clock import Clock
from layercake.base.secrets import SecretRef, Vault
from layercake.features.events.views import event_view
from layercake.features.webhooks.formats import FORMATS, OF_EACH, alerts
from layercake.features.webhooks.settings import OF_WEBHOOKS, WebhookSettings, url
from layercake.fleet.store import Event
from layercake.kraken.errors import InputError, OperationFailed, Unreachable
from layercake.moduleapi.fields import Mistake

ANSWER_S = 10.0
"""How long a receiver has for its answer."""
GATHER_S = 0.5
"""How long events are gathered after the first."""
ALERTS_GATHER_S = 15.0
"""The same of those that are told as alerts: by then an outage is known to be one."""
AT_ONCE = 200
"""Events that are sent in one request."""
LATER = frozenset({408, 425, 429})
"""Answers of the client's fault that may be another one later: too slow, too early, too many."""


def signature(secret: str, at: int, body: bytes) -> str:
    """What X-Layercake-Signature says: HMAC-SHA256 over "SECONDS.BODY" (RFC 2104), in hex."""
    return (
        "sha256=" + hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    )


class Post:
    """The requests of one webhook (Transport). `wall` gives seconds since the epoch."""

    def __init__(self, settings: WebhookSettings, vault: Vault, head: str, wall: Clock) -> None:
        self._settings = settings
        self._vault = vault
        self._head = head
        self._wall = wall

    @property
    def alerts(self) -> bool:
        """Whether its receiver is told of alerts."""
        return self._settings.format in FORMATS

    @property
    def gather_s(self) -> float:
        """For how long events are gathered."""
        return ALERTS_GATHER_S if self.alerts else GATHER_S

    @property
    def at_once(self) -> int:
        """How many events there are in a request."""
        return AT_ONCE

    async def send(self, batch: Sequence[Event], left_out: int, number: str) -> str:
        """See Transport. What one request is refused for is not held against the others."""
        refused = ""
        for body in await self._bodies(batch, left_out):
            refused = await self._post(body, number) or refused
        return refused

    async def _bodies(self, batch: Sequence[Event], left_out: int) -> list[bytes]:
        """What is sent of these events, one request after the other. Raises LayercakeError."""
        if (form := FORMATS.get(self._settings.format)) is not None:
            secret = ""
            if self._settings.secret:
                secret = await asyncio.to_thread(self._secret, self._settings.secret)
            found = alerts(batch, of_each=self._settings.format in OF_EACH)
            return [
                msgspec.json.encode(body)
                for body in (form(found, self._head, left_out, secret) if found or left_out else ())
            ]
        views = [event_view(event) for event in batch]
        whole = {"head": self._head, "left_out": left_out, "events": views}
        return [msgspec.json.encode(whole)]

    async def _post(self, body: bytes, delivery: str) -> str:
        """One request; why it is refused for good, "" if it was taken. Raises LayercakeError. Both
        name the host, and nothing else of the URL."""
        target = await asyncio.to_thread(self._target)
        at = int(self._wall())
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
        if 400 <= status < 500 and status not in LATER:
            return f"{host} answers {status}"
        if not 200 <= status < 300:
            raise OperationFailed(f"{host} answers {status}")
        return ""

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
