"""One message, handed to a mail server (RFC 6409) by the standard library, in a thread of its own
that can be ended from outside: a server that is slow, or never ends its answer, costs its time
limit."""

from __future__ import annotations

import asyncio
import contextlib
import smtplib
import socket
import ssl
import threading
from collections.abc import Sequence
from email.message import EmailMessage
from typing import Any, NamedTuple

from layercake.base.text import printable
from layercake.kraken.errors import OperationFailed, Unreachable

STEP_S = 20.0
"""How long a server may be silent."""
_MOST_LINES = 100
"""Lines of one answer."""
_LONGEST_LINE = 2048


class Answer(NamedTuple):
    """What a server says to a message: whether it took it, for some at least, and whether it
    `refused` it, for somebody at least: `what`, with which code and words, and whether that is
    `final` (5xx), or may be another answer later (4xx)."""

    taken: bool
    refused: bool = False
    what: str = ""
    code: int = 0
    text: str = ""

    @property
    def final(self) -> bool:
        """Whether the same would be refused again."""
        return self.code >= 500


class _Bounded(smtplib.SMTP):
    """A client whose server cannot fill the memory: smtplib takes answers of any number of
    lines. `host` is what its certificate has to be for."""

    def __init__(self, host: str, **more: Any) -> None:
        super().__init__(**more)
        self._host = host

    def getreply(self) -> tuple[int, bytes]:
        """One answer. Raises SMTPServerDisconnected."""
        if self.file is None and self.sock is not None:
            self.file = self.sock.makefile("rb")
        lines = []
        for _ in range(_MOST_LINES):
            line = self._line()
            lines.append(line[4:].strip(b" \t\r\n"))
            if line[3:4] != b"-":
                code = int(line[:3]) if line[:3].isdigit() else -1
                return code, b"\n".join(lines)
        self.close()
        raise smtplib.SMTPServerDisconnected("its answer has no end")

    def _line(self) -> bytes:
        try:
            line = self.file.readline(_LONGEST_LINE) if self.file is not None else b""
        except OSError as error:
            self.close()
            raise smtplib.SMTPServerDisconnected(str(error)) from None
        if not line.endswith(b"\n"):
            self.close()
            raise smtplib.SMTPServerDisconnected("it ended the connection")
        return bytes(line)


class _BoundedTls(_Bounded, smtplib.SMTP_SSL):
    """The same over TLS from the start."""


class Submission:
    """One attempt. `context` None: without TLS; `at_once`: TLS from the start, and not by STARTTLS.
    `login` is the user and the password, both "" for none; `name` is what the head calls itself."""

    def __init__(
        self,
        server: tuple[str, int],
        context: ssl.SSLContext | None,
        *,
        at_once: bool,
        login: tuple[str, str],
        name: str,
    ) -> None:
        self._server = server
        self._name = name
        self._context = context
        self._at_once = at_once
        self._login = login
        self._client: smtplib.SMTP | None = None
        self._aborted = False
        self.ended = False
        """Whether its thread is done."""

    async def send(self, message: EmailMessage, sender: str, to: Sequence[str]) -> Answer:
        """Hands a message in. Raises Unreachable and OperationFailed."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Answer] = loop.create_future()

        def resolve(answer: Answer | None, error: Exception | None) -> None:
            if done.done():
                return
            if error is not None:
                done.set_exception(error)
            elif answer is not None:
                done.set_result(answer)

        def work() -> None:
            answer = failed = None
            try:
                answer = self._dialogue(message, sender, list(to))
            except Exception as error:  # noqa: BLE001 (it is raised by who waits)
                failed = error
            self.ended = True
            if not loop.is_closed():
                loop.call_soon_threadsafe(resolve, answer, failed)

        # Not of a pool: the head's end would wait for it.
        threading.Thread(target=work, name="mail", daemon=True).start()
        return await done

    def abort(self) -> None:
        """Ends the attempt, if it is still under way."""
        self._aborted = True
        sock = self._client.sock if self._client is not None else None
        if not self.ended and sock is not None:
            with contextlib.suppress(OSError):  # it is closed already
                sock.shutdown(socket.SHUT_RDWR)

    def _dialogue(self, message: EmailMessage, sender: str, to: list[str]) -> Answer:
        host, port = self._server
        try:
            return self._submit(message, sender, to)
        except smtplib.SMTPRecipientsRefused as error:
            return _refused(error.recipients, taken=False)
        except smtplib.SMTPAuthenticationError as error:
            raise OperationFailed(f"{host} refuses the login: {error.smtp_code}") from None
        except smtplib.SMTPNotSupportedError as error:
            raise OperationFailed(f"{host} cannot be used: {error}") from None
        except smtplib.SMTPResponseException as error:
            what = "the sender" if isinstance(error, smtplib.SMTPSenderRefused) else "the message"
            return Answer(False, True, what, error.smtp_code, _text(error.smtp_error))
        except smtplib.SMTPException as error:
            raise Unreachable(f"{host} cannot be used: {printable(str(error), 200)}") from None
        except ssl.SSLError as error:
            why = error.reason or type(error).__name__
            raise Unreachable(
                f"{host} port {port} speaks no TLS that can be trusted: {why}"
            ) from None
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise Unreachable(f"{host} port {port} cannot be reached: {why}") from None

    def _submit(self, message: EmailMessage, sender: str, to: list[str]) -> Answer:
        host, port = self._server
        client: smtplib.SMTP
        if self._at_once:
            client = _BoundedTls(
                host, local_hostname=self._name, timeout=STEP_S, context=self._context
            )
        else:
            client = _Bounded(host, local_hostname=self._name, timeout=STEP_S)
        self._client = client
        try:
            code, text = client.connect(host, port)
            if self._aborted:
                raise Unreachable(f"{host} was too slow")
            if code != 220:
                return Answer(False, True, "the connection", code, _text(text))
            if self._context is not None and not self._at_once:
                client.starttls(context=self._context)
            if self._login[0]:
                client.login(*self._login)
            refused = client.send_message(message, sender, to)
            return _refused(refused, taken=True)
        finally:
            with contextlib.suppress(smtplib.SMTPException, OSError):  # it is over in any case
                client.quit()
            client.close()


def _refused(recipients: dict[str, tuple[int, bytes]], *, taken: bool) -> Answer:
    if not recipients:
        return Answer(taken)
    # one that may be taken later makes all worth another try
    code, text = min(recipients.values(), key=lambda one: one[0])
    some = f"{len(recipients)} recipient{'s' if len(recipients) > 1 else ''}"
    return Answer(taken, True, some, code, _text(text))


def _text(words: bytes | str) -> str:
    return words if isinstance(words, str) else words.decode("utf-8", "backslashreplace")
