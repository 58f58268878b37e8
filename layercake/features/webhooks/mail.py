"""Tells somebody by mail: alerts, many in one message, as plain text.

Nothing that a node calls itself, or says, becomes a header of its own or ends the message: what is
no printable character is escaped, and the standard library's policy refuses line ends in headers.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from urllib.parse import SplitResult, urlsplit

from layercake.base.clock import Clock
from layercake.base.secrets import SecretRef, Vault
from layercake.base.text import printable
from layercake.features.webhooks import formats
from layercake.features.webhooks.formats import Alert, alerts
from layercake.features.webhooks.settings import OF_MAIL, MailSettings, is_here
from layercake.features.webhooks.smtp import Answer, Submission
from layercake.fleet.store import Event
from layercake.kraken.errors import InputError, OperationFailed, Unreachable

GATHER_S = 15.0
"""How long events are gathered after the first: by then an outage is known to be one."""
PAUSE_S = 60.0
"""Seconds between two messages, at least."""
TOTAL_S = 60.0
"""For how long a mail server has all of one message's dialogue."""
AT_ONCE = 2000
"""Events that are told in one message."""
SUBJECT = 150
"""Characters of a subject."""
LINE = 4000
"""And of a line."""
_GRAVE = ("debug", "info", "warning", "error")
_PORTS = {"smtp": 587, "smtps": 465}
_LOCAL_PORT = 25


class Mail:
    """The messages to one list of people (Transport). `url` is where people reach the head, `wall`
    gives seconds since the epoch, `timer` those of a steady clock."""

    alerts = True
    at_once = AT_ONCE

    def __init__(
        self,
        settings: MailSettings,
        vault: Vault,
        head: str,
        url: str,
        wall: Clock,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._vault = vault
        self._head = head
        self._url = url
        self._wall = wall
        self._timer = timer
        self._sent = float("-inf")
        self._submission: Submission | None = None

    @property
    def gather_s(self) -> float:
        """For how long events are gathered: longer after a message."""
        return max(GATHER_S, self._sent + PAUSE_S - self._timer())

    async def send(self, batch: Sequence[Event], left_out: int, number: str) -> str:
        """See Transport."""
        found = alerts(batch)
        if not found and not left_out:
            return ""
        text = message(self._settings, found, left_out, self._head, self._url, number, self._wall())
        password = ""
        if self._settings.password:
            password = await asyncio.to_thread(self._secret, self._settings.password)
        why = await self._submit(text, password)
        self._sent = self._timer()
        return why

    async def _submit(self, text: EmailMessage, password: str) -> str:
        if self._submission is not None and not self._submission.ended:
            raise Unreachable("the last attempt to send mail has not ended yet")
        settings = self._settings
        server = urlsplit(settings.server)
        host = server.hostname or ""
        if not host or not settings.to or not settings.sender:
            raise InputError("it has no server, sender or recipients", hint="`mail` in config.yaml")
        self._submission = Submission(
            (host, port_of(server)),
            self._context(server),
            at_once=server.scheme == "smtps",
            login=(settings.username, password),
            name=_literal(self._head),
        )
        try:
            async with asyncio.timeout(TOTAL_S):
                answer = await self._submission.send(text, settings.sender, settings.to)
        except TimeoutError:
            raise Unreachable(f"{host} does not take a message in {TOTAL_S:.0f} s") from None
        finally:
            self._submission.abort()
        return _why(host, answer)

    def _context(self, server: SplitResult) -> ssl.SSLContext | None:
        """What TLS is spoken by; None to this machine in the clear. Raises InputError."""
        if server.scheme == "smtp" and is_here(server.hostname or ""):
            return None
        try:
            return ssl.create_default_context(cafile=self._settings.ca or None)
        except OSError as error:
            raise InputError(f"cannot read {self._settings.ca}: {error.strerror}") from None

    def _secret(self, name: str) -> str:
        return self._vault.open(SecretRef(file=f"{OF_MAIL}/{name}")).reveal()


def port_of(server: SplitResult) -> int:
    """The port of a mail server."""
    if server.port:
        return server.port
    here = server.scheme == "smtp" and is_here(server.hostname or "")
    return _LOCAL_PORT if here else _PORTS[server.scheme]


def _why(host: str, answer: Answer) -> str:
    """Why a message is refused for good, "" if it was taken. Raises OperationFailed where it may be
    tried again."""
    if answer.taken and not answer.refused:
        return ""
    text = f"{host} refuses {answer.what}: {answer.code} {printable(answer.text, 200)}"
    if answer.final or answer.taken:
        return text
    raise OperationFailed(text)


def message(
    settings: MailSettings,
    found: Sequence[Alert],
    left_out: int,
    head: str,
    url: str,
    number: str,
    at: float,
) -> EmailMessage:
    """The message about some alerts. Pure."""
    told = EmailMessage(policy=SMTP)
    told["From"] = _address(settings.sender)
    told["To"] = [_address(one) for one in settings.to]
    told["Subject"] = subject(found, head)
    told["Date"] = format_datetime(datetime.fromtimestamp(at, UTC))
    told["Message-ID"] = f"<{number}@{settings.sender.partition('@')[2]}>"
    told["Auto-Submitted"] = "auto-generated"
    told["X-Auto-Response-Suppress"] = "All"
    lines = [printable(line, LINE) for line in formats.lines(found, head, left_out)]
    text = "\n".join((*lines, "", f"What is wrong now: layercake explain, or {url}", ""))
    told.set_content(text, charset="utf-8", cte="quoted-printable")
    return told


def subject(found: Sequence[Alert], head: str) -> str:
    """What a message is about: the gravest of it, what is not over first."""
    first = max(found, key=lambda a: (not a.over, _GRAVE.index(a.severity)), default=None)
    about = "events were left out" if first is None else first.line
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    room = SUBJECT - len(more)
    shown = printable(f"[Layercake {head}] {about}", SUBJECT)
    return (shown if len(shown) <= room else shown[: room - 3] + "...") + more


def _literal(address: str) -> str:
    """What a machine without a name of its own calls itself (RFC 5321 section 4.1.3)."""
    return f"[IPv6:{address}]" if ":" in address else f"[{address}]"


def _address(text: str) -> Address:
    user, _, domain = text.partition("@")
    return Address(username=user, domain=domain)
