"""Who sees how long a site is without a head, in a process of its own: the node that is commanded,
and who asks the heads for DHCP, a change and a command.

The process that plays all other nodes is busy when they find a new leader together. On a site each
node has a processor of its own; who is played or asks there would wait for all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import multiprocessing
import random
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from layercake.kraken.errors import LayercakeError
from layercake.sim.api import Api
from layercake.sim.fleet.agent import Facts
from layercake.sim.fleet.faults import Faults
from layercake.sim.fleet.fleet import BootTimes, Fleet, Head
from layercake.sim.fleet.machine import MachineIdentity
from pxe.packets import dhcp
from pxe.packets.dhcp import DhcpPacket, MessageType

LOOK_S = 0.05
DHCP = "boot"
CHANGE = "change"
COMMAND = "command"


@dataclass(frozen=True)
class Watched:
    """What is asked: `head` is where the fleet finds the heads, `sockets` and `addresses` are the
    heads', by number; `relay` is an address of one that asks for DHCP. `booted` is the node that
    DHCP is about, `changed` the one whose record is changed, `commanded` the one that is played in
    that process, with its session. It gives up after `limit_s`."""

    head: Head
    sockets: Sequence[Path]
    addresses: Sequence[str]
    relay: str
    booted: MachineIdentity
    changed: str
    commanded: MachineIdentity
    facts: Facts
    limit_s: float


class Probes:
    """That process, for the one that began it."""

    def __init__(self, watched: Watched) -> None:
        spawning = multiprocessing.get_context("spawn")
        self._connection, theirs = spawning.Pipe()
        self._process = spawning.Process(target=_main, args=(theirs, watched), daemon=True)
        self._process.start()
        theirs.close()

    async def seen(self, number: int, names: Iterable[str]) -> dict[str, float]:
        """When the head of a number was first seen to do each of these things, in seconds of
        CLOCK_MONOTONIC. Raises SystemExit if one was not seen for long, EOFError if the process
        ended."""
        self._connection.send((number, tuple(names)))
        found = await asyncio.to_thread(self._connection.recv)
        if isinstance(found, str):
            raise SystemExit(found)
        times: dict[str, float] = found
        return times


def _main(connection: Connection, watched: Watched) -> None:
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        asyncio.run(_serve(connection, watched))


async def _serve(connection: Connection, watched: Watched) -> None:
    """Until the other side ends."""
    fleet = Fleet([watched.commanded], watched.head, Faults(), BootTimes(), connections=2)
    await fleet.start()
    fleet.attach(watched.commanded.name, watched.facts)
    asked = _Asked(watched)
    while True:
        number, names = await asyncio.to_thread(connection.recv)
        try:
            times = await asyncio.gather(*(asked.until(number, name) for name in names))
            connection.send(dict(zip(names, times, strict=True)))
        except TimeoutError as error:
            connection.send(str(error))


class _Asked:
    """Asks the heads."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._apis = [Api(path) for path in watched.sockets]
        self._random = random.Random(20261127)
        self._checks: Mapping[str, Callable[[int], bool]] = {
            DHCP: self._discovers,
            CHANGE: self._changes,
            COMMAND: self._commands,
        }

    async def until(self, number: int, name: str) -> float:
        """When it was seen first. Raises TimeoutError."""
        try:
            return await until(partial(self._checks[name], number), self._watched.limit_s)
        except TimeoutError as error:
            raise TimeoutError(f"{name} of head{number + 1}: {error}") from None

    def _discovers(self, number: int) -> bool:
        """Whether DHCP is answered there, a running system's: firmware of a node that runs gets no
        answer."""
        watched = self._watched
        packet = dhcp.build(
            DhcpPacket(
                dhcp.REQUEST,
                self._random.getrandbits(32),
                bytes.fromhex(watched.booted.mac.replace(":", "")).ljust(16, b"\0"),
                {
                    dhcp.MESSAGE_TYPE: bytes((MessageType.DISCOVER,)),
                    dhcp.RELAY_AGENT: b"\x05\x04" + socket.inet_aton(watched.booted.ip),
                },
                hops=1,
                giaddr=socket.inet_aton(watched.relay),
            )
        )
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.settimeout(0.1)
            asking.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            asking.bind((watched.relay, 67))
            asking.sendto(packet, (watched.addresses[number], 67))
            answer = dhcp.parse(asking.recv(4096))
        # On one machine, the service of the head before hears what is sent to this one, too.
        own = socket.inet_aton(watched.addresses[number])
        return answer.op == dhcp.REPLY and answer.options.get(dhcp.SERVER_ID) == own

    def _changes(self, number: int) -> bool:
        """Whether a change is accepted."""
        text = f"r={self._random.getrandbits(30)}"
        self._apis[number].request(
            "PATCH", f"/v1/nodes/{self._watched.changed}", {"set": {"kernel_args": text}}
        )
        return True

    def _commands(self, number: int) -> bool:
        """Whether a node's agent carries a command out."""
        body = {"range": self._watched.commanded.name, "command": ["true"], "timeout_s": 2.0}
        lines = stream(self._watched.sockets[number], "/v1/nodes/exec", body)
        return any(line.get("code") == 0 or line.get("exit") == 0 for line in lines)


async def until(what: Callable[[], bool], limit_s: float) -> float:
    """When something is so, in seconds of CLOCK_MONOTONIC, asked in a thread. Raises
    TimeoutError."""
    began = time.monotonic()
    while True:
        with contextlib.suppress(LayercakeError, OSError, http.client.HTTPException):
            if await asyncio.to_thread(what):
                return time.monotonic()
        if time.monotonic() - began > limit_s:
            raise TimeoutError(f"it was not seen in {limit_s:.0f} s")
        await asyncio.sleep(LOOK_S)


def stream(path: Path, where: str, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The lines of JSON of an answer. Raises OSError."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(5.0)
        asking.connect(str(path))
        data = json.dumps(body).encode()
        head = f"POST {where} HTTP/1.0\r\nHost: head\r\nContent-Type: application/json\r\n"
        asking.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        text = b""
        while part := asking.recv(65536):
            text += part
    found = []
    for line in text.partition(b"\r\n\r\n")[2].splitlines():
        with contextlib.suppress(ValueError):
            one = json.loads(line)
            if isinstance(one, dict):
                found.append(one)
    return found
