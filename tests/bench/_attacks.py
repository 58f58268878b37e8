"""The attackers of `abuse`, a process each, at the lowest priority that there is (SCHED_IDLE): they
get what nobody else wants of the processors, so what is measured is what the head spends on them,
and not what they spend.

    python -m tests.bench._attacks NAME FACTS         until it is killed; a line on standard output
    when it is under way

What each does is what was done to the running system; the numbers are those of the issue, at the
rates that are named here.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import json
import os
import random
import socket
import ssl
import sys
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from layercake.kraken.wire import bearer

IDLE = 999
STRANGERS = 32
DISCOVERS_PER_S = 2000
BOMB = 4 << 20


class Attacker:
    """One attacker, with what it knows of the head."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self.facts = facts
        self.address, self.port = facts["address"], facts["port"]
        self.tls = ssl.create_default_context(cafile=facts["ca"])
        net = "10.96" if self.address.startswith("10.") else "127.96"
        self.own, self.other = f"{net}.0.1", f"{net}.0.2"
        self.bomb = gzip.compress(bytes(256 << 20), 9)

    async def link(
        self, port: int, *, tls: bool = True, source: str = ""
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection from the attacker's address."""
        return await asyncio.wait_for(
            asyncio.open_connection(
                self.address,
                port,
                ssl=self.tls if tls else None,
                local_addr=(source or self.own, 0),
            ),
            20,
        )

    async def ask(
        self, line: str, body: bytes = b"", authorization: str = "", header: str = ""
    ) -> bytes:
        """One request on a connection of its own."""
        reader, writer = await self.link(self.port)
        try:
            header += f"Authorization: {authorization}\r\n" if authorization else ""
            writer.write(
                f"{line} HTTP/1.1\r\nHost: h\r\n{header}Content-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            await writer.drain()
            return await asyncio.wait_for(reader.read(4096), 30)
        finally:
            writer.transport.abort()

    # -- the attacks

    async def hostile_joins(self) -> None:
        """1: joins without a token, with half a surrogate pair in each text."""
        odd = {"token": "\ud800", "boot_id": "\ud800\udfff", "mac": "\ud800", "version": "x"}
        claim = {"node": self.facts["claims"][-1]["node"], **odd}
        await self.ask("POST /node/v1/join", json.dumps(claim).encode())

    async def idle(self) -> None:
        """5: so many connections that say nothing, opened again when they are closed."""
        with contextlib.suppress(OSError, TimeoutError):
            reader, writer = await self.link(self.port, tls=random.random() < 0.5)
            await reader.read(1)
            writer.transport.abort()

    async def flood(self) -> None:
        """7: events of 4 MB, and forged ones by the thousand, from a node that has joined."""
        rogue = self.facts["rogue"]
        said = bearer(
            base64.b64decode(rogue["key"]), uuid.UUID(rogue["node"]).bytes, rogue["session"]
        )
        big = [{"kind": "image.error", "text": "x" * BOMB, "data": {}}]
        forged = [
            {
                "kind": "node.exec",
                "text": "admin runs on the node: rm -rf /",
                "data": {"by": "admin"},
            }
        ] * 5000
        for events in (big, forged):
            await self.ask("POST /node/v1/events", json.dumps(events).encode(), said)

    async def bad_joins(self) -> None:
        """8: joins with a wrong token, for one node after the other."""
        claim = random.choice(self.facts["claims"]) | {
            "token": "wrong",
            "boot_id": "b",
            "version": "x",
        }
        await self.ask("POST /node/v1/join", json.dumps(claim).encode())

    async def discovers(self) -> None:
        """8: DHCPDISCOVERs from random MACs, onto the bridge."""
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        raw.bind(("atk1", 0))
        while True:
            for _ in range(DISCOVERS_PER_S // 100):
                raw.send(discover(b"\x02" + random.randbytes(5)))
            await asyncio.sleep(0.01)

    async def plans(self) -> None:
        """9: a viewer has a big inventory planned, and two images compared."""
        thousand = "  y[{0}000-{0}999]: {{mac: '52:54:01:0{0}:00:00+', ip: 10.10{0}.0.1+}}\n"
        yaml = "nodes:\n" + "".join(thousand.format(number) for number in range(1, 9))
        token = f"Bearer {self.facts['viewer']}"
        await asyncio.gather(
            self.ask("POST /v1/inventory/plan", json.dumps({"yaml": yaml}).encode(), token),
            self.ask("GET /v1/images/diff?a=one&b=two", b"", token),
            return_exceptions=True,
        )

    async def slow(self) -> None:
        """11: strangers that say a byte now and then, on every port; images by their digest; TFTP
        that never acknowledges."""
        port = random.choice(self.facts["ports"])
        with contextlib.suppress(OSError, TimeoutError):
            reader, writer = await self.link(port, tls=port == self.port, source=self.other)
            digest = self.facts["digest"].partition(":")[2]
            writer.write(f"GET /images/{digest} HTTP/1.1\r\nHost: h\r\nX: ".encode())
            while not reader.at_eof():
                writer.write(b"a")
                await writer.drain()
                await asyncio.sleep(0.5)
            writer.transport.abort()

    async def packed(self) -> None:
        """Second audit: bodies of 256 MB in 260 KB, for routes that need no credential."""
        packed = "Content-Encoding: gzip\r\nContent-Type: application/json\r\n"
        for path in ("/node/v1/join", "/node/v1/machine", "/dashboard/session"):
            await self.ask(f"POST {path}", self.bomb, header=packed)

    async def ranges(self) -> None:
        """Second audit: a range of a thousand operators, by a viewer."""
        words = "range=" + "!".join(["@all"] * 1000)
        viewer = f"Bearer {self.facts['viewer']}"
        await self.ask(f"GET /v1/nodes?{words}", authorization=viewer)

    async def thermal(self) -> None:
        """Second audit: 500 reports in a request, of kinds that alternate, from a node that has
        joined."""
        rogue = self.facts["rogue"]
        key = base64.b64decode(rogue["key"])
        said = bearer(key, uuid.UUID(rogue["node"]).bytes, rogue["session"])
        kinds = ("node.thermal", "agent.started", "image.error", "image.healthy")
        events = [{"kind": kinds[n % 4], "text": f"{n}", "data": {}} for n in range(500)]
        await self.ask("POST /node/v1/events", json.dumps(events).encode(), said)

    async def refused(self) -> None:
        """Second audit: requests without a token that holds, each of which is an event."""
        await self.ask("GET /v1/nodes", authorization=f"Bearer {random.random()}")

    async def bystander(self) -> None:
        """No attack: connections among its own, and a handshake's worth of work for each. What this
        costs the head is what any program does beside it: caches, turns of the processor."""
        server = await asyncio.start_server(lambda _, writer: writer.close(), self.own, 0)
        try:
            place = server.sockets[0].getsockname()
            for _ in range(100):
                reader, writer = await asyncio.open_connection(*place[:2])
                await reader.read(1)
                writer.transport.abort()
                json.loads(json.dumps(self.facts["claims"][:200]))
        finally:
            server.close()

    async def tftp(self) -> None:
        """11: eight requests with timeout=255, again and again."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.bind((self.own, 0))
            client.sendto(b"\0\1snponly.efi\0octet\0timeout\x00255\0", (self.address, 69))
            await asyncio.sleep(0.5)


def discover(mac: bytes) -> bytes:
    """A broadcast frame with a DHCPDISCOVER."""
    options = (
        b"\x63\x82\x53\x63\x35\x01\x01\x5d\x02\x00\x00\x3c\x20PXEClient:Arch:00000:UNDI:002001\xff"
    )
    bootp = b"\x01\x01\x06\x00" + mac[2:] + bytes(20) + mac + bytes(202) + options
    udp = (
        (68).to_bytes(2, "big")
        + (67).to_bytes(2, "big")
        + (8 + len(bootp)).to_bytes(2, "big")
        + b"\0\0"
        + bootp
    )
    head = (
        b"\x45\0"
        + (20 + len(udp)).to_bytes(2, "big")
        + b"\0\0\0\0\x40\x11\0\0"
        + bytes(4)
        + b"\xff\xff\xff\xff"
    )
    total = sum(int.from_bytes(head[i : i + 2], "big") for i in range(0, 20, 2))
    total = (total & 0xFFFF) + (total >> 16)
    head = head[:10] + (~total & 0xFFFF).to_bytes(2, "big") + head[12:]
    return b"\xff" * 6 + mac + b"\x08\0" + head + udp


Kinds = dict[str, tuple[Callable[[Attacker], Awaitable[None]], int]]
ATTACKS: dict[str, Kinds] = {
    "hostile-text": {"joins": (Attacker.hostile_joins, 8)},
    "idle": {"idle": (Attacker.idle, IDLE)},
    "events": {"flood": (Attacker.flood, 4)},
    "history": {"joins": (Attacker.bad_joins, 8), "discovers": (Attacker.discovers, 1)},
    "plans": {"plans": (Attacker.plans, 8)},
    "slow": {"slow": (Attacker.slow, STRANGERS * 4), "tftp": (Attacker.tftp, 8)},
    "packed": {"packed": (Attacker.packed, 8)},
    "ranges": {"ranges": (Attacker.ranges, 8)},
    "bystander": {"bystander": (Attacker.bystander, 8)},
    "own-events": {"thermal": (Attacker.thermal, 4), "refused": (Attacker.refused, 8)},
}
"""What goes on at once in each, and how many of it."""
CONTROL = "bystander"
"""What never speaks to the head: what all others are held against, and no attack itself."""
BARE = {"discovers", "tftp"}
"""What a head without services knows nothing of."""


async def attack(attacker: Attacker, name: str) -> None:
    """Until killed."""

    async def again(one: Callable[[Attacker], Awaitable[None]]) -> None:
        while True:
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                await one(attacker)
            await asyncio.sleep(0.05)  # one that is turned away knocks twenty times a second

    bare = not attacker.address.startswith("10.")
    kinds = [what for kind, what in ATTACKS[name].items() if not (bare and kind in BARE)]
    tasks = [asyncio.create_task(again(one)) for one, count in kinds for _ in range(count)]
    await asyncio.sleep(1.0)
    print("under way", flush=True)
    await asyncio.gather(*tasks)


def main() -> None:
    """Steps back behind all others first."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    facts = json.loads(Path(sys.argv[2]).read_text())
    asyncio.run(attack(Attacker(facts), sys.argv[1]))


if __name__ == "__main__":
    main()
