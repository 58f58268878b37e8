"""A mail server in a process of its own: aiosmtpd, which speaks STARTTLS, TLS and AUTH. Each
message that it takes is a line of JSON on standard output; the first line is its port.

    python -m tests.support.smtpserver '{"tls": "start", "user": "u", "password": "p"}'
"""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

ROOT = Path(__file__).resolve().parents[2]


def encrypted(server: SMTP) -> bool:
    """Whether TLS is spoken, from the start or since STARTTLS."""
    assert server.transport is not None
    return server.transport.get_extra_info("ssl_object") is not None


class Handler:
    """Answers as it was told: `answers` are those of the next messages, `refused` the addresses
    that there are not."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._answers = list(options.get("answers", ()))

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        """Somebody is to get the message."""
        if address in self._options.get("refused", ()):
            return "550 5.1.1 there is no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        """The message."""
        answer = str(self._answers.pop(0)) if self._answers else "250 OK"
        if answer == "hang":
            await asyncio.Event().wait()
        content = envelope.content
        text = content.decode("ascii") if isinstance(content, bytes) else str(content)
        told = {
            "answer": answer,
            "from": envelope.mail_from,
            "to": envelope.rcpt_tos,
            "hello": session.host_name,
            "tls": encrypted(server),
            "user": getattr(session.auth_data, "login", b"").decode(),
            "data": text,
        }
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
        return answer


async def serve(options: Mapping[str, Any]) -> None:
    """Serves until it is ended."""
    handler = Handler(options)
    context = None
    if options.get("tls"):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(options["cert"], options["key"])

    def authenticated(
        server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any
    ) -> AuthResult:
        wanted = (options["user"].encode(), options["password"].encode())
        well = isinstance(data, LoginPassword) and (data.login, data.password) == wanted
        return AuthResult(success=well, handled=False, auth_data=data)

    start = options.get("tls") == "start"

    def made() -> SMTP:
        return SMTP(
            handler,
            hostname="mail.example",
            tls_context=context if start else None,
            require_starttls=start,
            authenticator=authenticated if options.get("user") else None,
            auth_required=bool(options.get("user")),
            auth_require_tls=bool(options.get("tls")) and start,
        )

    server = await asyncio.get_running_loop().create_server(
        made, "127.0.0.1", 0, ssl=context if options.get("tls") == "now" else None
    )
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


class MailServer:
    """One that runs, as tests see it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdout is not None
        self._lines = process.stdout
        self.port = int(self._lines.readline())

    async def next(self) -> dict[str, Any]:
        """The next message that it was sent."""
        async with asyncio.timeout(60):
            line = await asyncio.to_thread(self._lines.readline)
        found: dict[str, Any] = json.loads(line)
        return found


@contextmanager
def mail_server(**options: Any) -> Iterator[MailServer]:
    """A server for as long as it is needed."""
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tests.support.smtpserver", json.dumps(options)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield MailServer(process)
        finally:
            process.kill()


if __name__ == "__main__":
    asyncio.run(serve(json.loads(sys.argv[1])))
