"""Who can say whether a silent node is alive: its BMC, its agent's TLS port, and its kernel, which
answers ARP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from layercake.agents.client import NodeLink
from layercake.fleet.store import Record
from layercake.kraken.errors import LayercakeError

LIMIT_S = 10.0
"""How long the witnesses have to answer."""
_ALIVE = ("REACHABLE", "DELAY", "PROBE", "PERMANENT")
_GONE = ("FAILED", "INCOMPLETE")

AskBmc = Callable[[Record], Awaitable[str]]
"""Reads a node's power from its BMC: "ON" or "OFF". Raises LayercakeError."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What the witnesses said at a time of the head's clock. None: that one could not be asked."""

    at: float
    bmc: str
    agent: bool | None
    arp: bool | None

    @property
    def text(self) -> str:
        """For people."""
        words = {True: "answers", False: "no answer", None: "not asked"}
        return (
            f"its BMC: {self.bmc}; its agent's TLS port: {words[self.agent]}; ARP: "
            f"{words[self.arp]}"
        )


async def neighbour(address: str) -> bool | None:
    """Whether a host of this link answers ARP, as far as the kernel has found out since it was last
    spoken to; None if it does not know, as of a host behind a router."""
    try:
        process = await asyncio.create_subprocess_exec(
            "ip",
            "-j",
            "neigh",
            "show",
            "to",
            address,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            out, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        states = {state for entry in json.loads(out or b"[]") for state in entry.get("state", ())}
    except (OSError, ValueError):
        return None
    return True if states & set(_ALIVE) else False if states & set(_GONE) else None


class Witnesses:
    """Asks all of them about a node."""

    def __init__(self, link: NodeLink, bmc: AskBmc) -> None:
        self._link = link
        self._bmc = bmc

    async def collect(self, record: Record, now: float) -> Findings:
        """What they say, within LIMIT_S."""
        async with asyncio.TaskGroup() as group:
            bmc = group.create_task(self._power(record))
            agent = group.create_task(self._agent(record))
            arp = group.create_task(_within(neighbour(record.node.ip)))
        return Findings(now, bmc.result(), agent.result(), arp.result())

    async def _power(self, record: Record) -> str:
        try:
            async with asyncio.timeout(LIMIT_S):
                return await self._bmc(record)
        except TimeoutError:
            return "no answer yet"
        except LayercakeError as error:
            return error.message

    async def _agent(self, record: Record) -> bool | None:
        if record.session is None or record.address is None or not record.api_port:
            return None
        return bool(await _within(self._link.answers(record)))


async def _within(answer: Awaitable[bool | None]) -> bool | None:
    try:
        async with asyncio.timeout(LIMIT_S):
            return await answer
    except TimeoutError:
        return None
