"""A pretended node: its firmware fetches the boot script, its agent joins and says HELLO. No
machine and no process of its own.

What it plans and says is the agent's own code (minos.agent.machine, minos.agent.head_link.sync); its
images are none.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import ssl
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp

from layercake.kraken.errors import WireError
from layercake.kraken.events import EventKind, Severity
from layercake.kraken.wire import bearer
from minos.agent.head_link.sync import HelloTimer, NewEpoch, SyncCodec
from minos.agent.machine import ALIVE, VOUCHES, Machine
from minos.agent.state import Session, parse_join
from pxe.packets import dhcp

_AGAIN_S = 0.25
_FOUND: Mapping[str, Mapping[str, str]] = {
    "image-discover": {"image": "IDLE"},
    "busy-discover": {"busy": "FREE"},
    "detach": {"run": "INIT"},
}


class PretendedNode(asyncio.DatagramProtocol):
    """One boot of one node, from the firmware on. `run` goes on until it is cancelled: until the
    power goes."""

    def __init__(self, address: str, mac: str, head: str, authority: Path) -> None:
        self._address, self._mac, self._boot_url = address, mac, f"http://{head}:8080/boot/{mac}"
        self._authority, self._server = authority, head
        self._revision = self._newest = 0
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Boots, joins and speaks."""
        connector = aiohttp.TCPConnector(local_addr=(self._address, 0), force_close=True)
        async with aiohttp.ClientSession(
            connector=connector, timeout=aiohttp.ClientTimeout(20)
        ) as http:
            facts = await self._firmware(http)
            self._tls = ssl.create_default_context(cafile=str(self._authority))
            self._head = facts["head"]
            session = await self.join(http, facts)
            node = uuid.UUID(facts["node"]).bytes
            self._authorization = bearer(session.key, node, session.number)
            await self._speak(http, session, node)

    async def _firmware(self, http: aiohttp.ClientSession) -> dict[str, str]:
        """Asks for the boot script until there is one, as a firmware does; what the kernel's
        command line says."""
        while True:
            await self._discover()
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                async with http.get(self._boot_url) as answer:
                    if answer.status == 200:
                        words = [
                            w.removeprefix("layercake.")
                            for w in (await answer.text()).split()
                            if w.startswith("layercake.")
                        ]
                        return dict(w.split("=", 1) for w in words)
            await asyncio.sleep(_AGAIN_S)

    async def _discover(self) -> None:
        """Asks for an address, as iPXE does; it has one already, and does not wait for the answer,
        which goes to a relay."""
        options = {dhcp.MESSAGE_TYPE: bytes((dhcp.MessageType.DISCOVER,)), dhcp.USER_CLASS: b"iPXE"}
        chaddr = bytes.fromhex(self._mac.replace(":", "")).ljust(16, b"\0")
        packet = dhcp.DhcpPacket(
            dhcp.REQUEST,
            random.getrandbits(32),
            chaddr,
            options,
            giaddr=socket.inet_aton(self._address),
        )
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.bind((self._address, 0))
            sender.sendto(dhcp.build(packet), (self._server, 67))
        await asyncio.sleep(0.05)

    async def join(self, http: aiohttp.ClientSession, facts: Mapping[str, str]) -> Session:
        """Asks until the head lets it in."""
        claim = {
            "node": facts["node"],
            "token": facts["token"],
            "boot_id": str(uuid.uuid4()),
            "mac": self._mac,
            "version": "0",
        }
        while True:
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                async with http.post(
                    f"{self._head}/node/v1/join", json=claim, ssl=self._tls
                ) as answer:
                    if answer.status == 200:
                        data = await answer.json()
                        session = parse_join(data)
                        self._machine = Machine(
                            session, self, self._event, time.monotonic, random.random
                        )
                        self._machine.discovered({**ALIVE, "busy": "FREE"}, "the agent runs")
                        self._take(data["desired"])
                        return session
            await asyncio.sleep(_AGAIN_S)

    async def _speak(self, http: aiohttp.ClientSession, session: Session, node: bytes) -> None:
        self._codec = SyncCodec(
            node, session.number, session.key, session.epoch, session.layout.digest
        )
        self._timer = HelloTimer(session.hello_s)
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: self, local_addr=(self._address, 0), remote_addr=session.sync
        )
        said: Any = None
        try:
            while True:
                now = time.monotonic()
                if now >= self._machine.wake:
                    self._machine.tick()
                if self._newest > self._revision:
                    await self._pull(http)
                mask, state = self._machine.report(VOUCHES)
                if (
                    news := (self._codec.epoch, self._revision, state)
                ) != said or now >= self._timer.due:
                    said = news
                    transport.sendto(
                        self._codec.hello(
                            time.clock_gettime_ns(time.CLOCK_BOOTTIME),
                            revision=self._revision,
                            changes=self._machine.changes,
                            mask=mask,
                            state=state,
                        )
                    )
                    self._timer.hello_sent(time.monotonic(), random.random())
                self._changed.clear()
                wait = min(1.0, self._timer.due - now, self._machine.wake - now)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, wait)):
                        await self._changed.wait()
        finally:
            transport.close()

    async def _pull(self, http: aiohttp.ClientSession) -> None:
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with http.get(
                f"{self._head}/node/v1/desired",
                headers={"Authorization": self._authorization},
                ssl=self._tls,
            ) as answer:
                if answer.status == 200:
                    self._take(await answer.json())

    def _take(self, document: Mapping[str, Any]) -> None:
        self._revision = int(document["revision"])
        self._newest = max(self._newest, self._revision)
        if document["goal"].get("run") == "SYNC" and self._machine.value("run") == "INIT":
            self._machine.discovered({"run": "SYNC"}, "the node is wanted again")
        self._machine.desired(self._machine.goal_of(document["goal"]), False, "IDLE")

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """The head speaks."""
        try:
            said = self._codec.receive(data)
        except WireError:
            return
        self._timer.answered(time.monotonic(), random.random())
        if isinstance(said, NewEpoch):
            self._newest = self._revision + 1
            self._timer.now()
        else:
            self._newest = max(self._newest, said.revision)
            if said.probe:
                self._timer.now()
        self._changed.set()

    def error_received(self, exc: Exception) -> None:
        """The head is away: the timer brings the next chance."""

    # -- the hands of its machine

    def submit(self, mutation: str, attempt: int) -> None:
        """Every step ends well, soon."""
        asyncio.get_running_loop().call_soon(self._done, mutation, attempt)

    def interrupt(self) -> None:
        """Nothing takes so long."""

    def _done(self, mutation: str, attempt: int) -> None:
        self._machine.done(mutation, attempt, _FOUND[mutation], "", False)
        self._changed.set()

    def _event(
        self, kind: EventKind, text: str, severity: Severity | None = None, **data: Any
    ) -> None:
        """Its history is the head's affair here."""
