"""Shared by the DNS tests: three nodes and their names, a server on loopback, and clients for
it."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from dnslib import DNSRecord

from layercake.moduleapi.service import FakeLink
from pxe.dns.forwarder import Forwarder
from pxe.dns.names import Names
from pxe.dns.server import DnsServer
from pxe.dns_settings import DnsSettings
from pxe.nodes import from_record
from pxe.notes import Recorder
from pxe.settings import Settings
from pxe.windows import Windows
from tests.support.clock import FakeClock
from tests.support.site import boot_settings

FAR = {
    "name": "far",
    "subnet": "10.120.0.0/24",
    "gateway": "10.120.0.1",
    "domain": "far.example.org",
    "ntp": ["10.1.0.123"],
}
RECORDS: tuple[dict[str, Any], ...] = (
    {
        "name": "n1",
        "macs": ["52:54:00:00:01:01"],
        "ip": "127.0.1.1",
        "bmc": "10.98.0.1",
        "aliases": ["db", "git.example.org"],
    },
    {"name": "login.rack1", "macs": ["52:54:00:00:01:02"], "ip": "127.0.1.2", "bmc": "fd98::2"},
    {"name": "n3", "macs": ["52:54:00:00:01:03"], "ip": "10.120.0.3", "network": FAR},
)


def settings_of(**dns: Any) -> Settings:
    """A head on loopback that answers DNS."""
    return boot_settings(
        address="127.0.0.1",
        prefix=16,
        boot={"dns": DnsSettings(serve=True, **dns), "ra_prefix": "fd99::/64"},
    )


def names_of(settings: Settings) -> Names:
    """The names of the three nodes."""
    made = Names(settings, 1000)
    for record in RECORDS:
        made.update_node(from_record(record["name"], record, settings))
    return made


@pytest.fixture
def names() -> Names:
    return names_of(settings_of())


class Served:
    """A server with its names, and how it is asked."""

    def __init__(
        self,
        port: int,
        upstream: tuple[str, ...] = (),
        upstream_port: int = 53,
        clock: Callable[[], float] = time.monotonic,
        **dns: Any,
    ) -> None:
        self.settings = settings_of(port=port, **dns)
        self.names = names_of(self.settings)
        self.recorder = Recorder(FakeLink(), Windows(), clock)
        self.forwarder = Forwarder(upstream, "127.0.0.1", clock, port=upstream_port)
        self.server = DnsServer(self.settings, self.names, self.forwarder, self.recorder, clock)
        self.port = port

    async def many(self, *messages: bytes, source: str = "127.0.0.1") -> list[bytes]:
        """The answers to datagrams of one client, up to that of the last: they come in their
        order."""
        loop, found = asyncio.get_running_loop(), list[bytes]()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:
            sock.bind((source, 0))
            sock.connect(("127.0.0.1", self.port))
            for message in messages:
                await loop.sock_sendall(sock, message)
            async with asyncio.timeout(10):
                while not found or found[-1][:2] != messages[-1][:2]:
                    found.append(await loop.sock_recv(sock, 65535))
        return found

    async def asks(self, data: bytes, *, source: str = "127.0.0.1") -> DNSRecord:
        """What dnslib makes of the answer to a datagram."""
        return DNSRecord.parse((await self.many(data, source=source))[-1])

    async def answer(self, name: str, kind: str = "A") -> DNSRecord:
        """What dnslib makes of the answer to a question by UDP."""
        return await self.asks(bytes(DNSRecord.question(name, kind).pack()))

    async def by_tcp(self, *messages: bytes) -> list[bytes]:
        """The answers to messages that are sent at a stretch on one connection, which ends after
        that."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(b"".join(len(m).to_bytes(2, "big") + m for m in messages))
        writer.write_eof()
        async with asyncio.timeout(10):
            data = await reader.read()
        writer.close()
        found = []
        while data:
            size = int.from_bytes(data[:2], "big")
            found.append(data[2 : 2 + size])
            data = data[2 + size :]
        return found

    async def run(self, *words: str) -> str:
        """What a program prints."""
        made = await asyncio.create_subprocess_exec(
            *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        out, _ = await made.communicate()
        return out.decode()


Serve = Callable[..., Served]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Makes servers, which end with the test."""
    there: list[Served] = []

    def make(**options: Any) -> Served:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        made = Served(port, **options)
        made.server.open()
        there.append(made)
        return made

    yield make
    for made in there:
        made.server.close()
    await asyncio.sleep(0)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1000.0)
