"""Debian's rsyslog, with doors of its own on loopback, and a collector of OpenTelemetry that takes
nothing but what is OTLP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web
from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from patience import patience

TEMPLATE = "%timestamp:::date-rfc3339%\\t%pri%\\t%hostname%\\t%app-name%\\t%msgid%\\t%structured-data%\\t%msg%\\n"


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """One that nobody has."""
    with socket.socket(type=kind) as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@dataclass(frozen=True)
class Syslog:
    """A server. `port` is that of its one door, of this kind."""

    kind: str
    port: int
    file: Path
    argv: list[str]

    @property
    def lines(self) -> list[list[str]]:
        """What it has written: (time, priority, host, app, id, data, text)."""
        return (
            [line.split("\t") for line in self.file.read_text().splitlines()]
            if self.file.exists()
            else []
        )

    @property
    def texts(self) -> list[str]:
        """The texts alone."""
        return [line[6].strip() for line in self.lines]

    def _listens(self) -> None:
        """Waits until it does."""
        until = time.monotonic() + patience(60)
        while not _bound(self.kind, self.port):
            assert time.monotonic() < until, "rsyslogd does not listen"
            time.sleep(0.02)

    @contextlib.contextmanager
    def running(self, inside: Sequence[str] = ()) -> Iterator[None]:
        """While it runs; `inside` is what a command for another namespace begins with."""
        process = subprocess.Popen(
            [*inside, *self.argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            if not inside:
                self._listens()
            yield
        finally:
            process.terminate()
            process.wait(30)


def _bound(kind: str, port: int) -> bool:
    """Whether somebody has the port, as proc(5) says."""
    table = Path("/proc/net/udp" if kind == "udp" else "/proc/net/tcp").read_text()
    return f"0100007F:{port:04X} 00000000:0000" in table


def syslog(folder: Path, kind: str, pki: Path | None = None, port: int = 0) -> Syslog:
    """A server that takes `udp`, `tcp` or `tls`; for that with server.pem, server.key and ca.pem of
    `pki`."""
    rsyslogd = shutil.which("rsyslogd", path="/usr/sbin:/usr/bin") or "rsyslogd"
    port = port or free_port(socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM)
    keys = (
        ""
        if pki is None
        else (
            f' defaultNetstreamDriverCAFile="{pki}/ca.pem" '
            f'defaultNetstreamDriverCertFile="{pki}/server.pem"'
            f' defaultNetstreamDriverKeyFile="{pki}/server.key"'
        )
    )
    lines = [
        f'global(workDirectory="{folder}"{keys})',
        f'template(name="fields" type="string" string="{TEMPLATE}")',
    ]
    if kind == "udp":
        lines += ['module(load="imudp")', f'input(type="imudp" address="127.0.0.1" port="{port}")']
    else:
        more = (
            ' streamDriver.name="gtls" streamDriver.mode="1" streamDriver.authMode="anon"'
            if kind == "tls"
            else ""
        )
        lines += [
            f'module(load="imtcp"{more})',
            f'input(type="imtcp" address="127.0.0.1" port="{port}")',
        ]
    lines += [
        f'*.* action(type="omfile" file="{folder / "out"}" template="fields" asyncWriting="off")'
    ]
    (folder / "conf").write_text("\n".join(lines) + "\n")
    return Syslog(
        kind,
        port,
        folder / "out",
        [rsyslogd, "-n", "-f", str(folder / "conf"), "-i", str(folder / "pid")],
    )


class Otlp:
    """A collector. `answers` are the status codes of the next requests, 200 when there are none
    left."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.asked = 0
        self.got: list[tuple[dict[str, str], ExportLogsServiceRequest]] = []
        self.headers: list[Any] = []
        self.hangs = asyncio.Event()
        self.hangs.set()

    async def handle(self, request: web.Request) -> web.Response:
        """Takes what is ExportLogsServiceRequest in JSON, by the published schema; unknown names
        are errors."""
        body = await request.read()
        self.asked += 1
        await self.hangs.wait()
        status = self.answers.pop(0) if self.answers else 200
        if status == 200:
            assert request.content_type == "application/json"
            found = json_format.Parse(body, ExportLogsServiceRequest(), ignore_unknown_fields=False)
            self.headers.append(request.headers)
            self.got.append(({}, found))
        return web.Response(status=status, text=json.dumps({}), content_type="application/json")

    @property
    def records(self) -> list[dict[str, Any]]:
        """Each with its resource's and its own attributes, text and severity."""
        return [
            {
                **_words(resource.resource.attributes),
                **_words(record.attributes),
                "text": record.body.string_value,
                "severity": record.severity_text,
                "at": record.time_unix_nano / 1e9,
            }
            for _, request in self.got
            for resource in request.resource_logs
            for scope in resource.scope_logs
            for record in scope.log_records
        ]


def _words(attributes: Any) -> dict[str, str]:
    return {one.key: one.value.string_value for one in attributes}


async def until(what: Callable[[], Any], limit_s: float = 60.0) -> None:
    """Waits for what must be seen."""
    async with asyncio.timeout(limit_s):
        while not what():
            await asyncio.sleep(0.02)
