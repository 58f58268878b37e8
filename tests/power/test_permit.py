"""A head whose lease has ended, or has just begun, sends no BMC anything that switches a machine,
whatever the BMC speaks, and not a second time either; it reads on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from layercake.kraken.errors import LayercakeError, Refused
from powerman.driver import PowerDriver
from powerman.drivers.command import Programs
from powerman.drivers.sim import SimLine
from powerman.drivers.table import Shared, make_driver
from powerman.ipmi.pyghmi_pool import PyghmiPool
from powerman.redfish.web import Web
from powerman.settings import BmcSpec, Program
from tests.support.minibmc import MiniBmc
from tests.support.miniredfish import SYSTEM, MiniRedfish

SWITCHES = ("on", "off", "cycle", "reset", "boot_network")
CONTROL = (0x00, 0x02)
SET_BOOT = (0x00, 0x08)
RESET = {"#ComputerSystem.Reset": {"target": f"{SYSTEM}/Actions/ComputerSystem.Reset"}}


class Permit:
    """A lease that a test ends, now or after so many looks at it."""

    def __init__(self) -> None:
        self.left = 0

    def __call__(self) -> float:
        if not self.left:
            raise Refused("cannot switch power: this head does not lead the site now")
        self.left -= 1
        return 60.0


Sent = Callable[[], int]
"""How many things that switch a machine the BMC has got."""


@contextlib.asynccontextmanager
async def by_ipmi(permit: Permit, directory: Path) -> AsyncIterator[tuple[PowerDriver, Sent]]:
    transport, bmc = await asyncio.get_running_loop().create_datagram_endpoint(
        MiniBmc, local_addr=("127.0.0.1", 0)
    )
    login = {"username": "admin", "password": "pw"}
    facts = {"driver": "ipmi", "address": "127.0.0.1", "port": bmc.port, **login}
    async with opened(facts, permit, directory) as driver:
        yield driver, lambda: sum(one in (CONTROL, SET_BOOT) for one in bmc.commands)
    transport.close()


@contextlib.asynccontextmanager
async def by_redfish(permit: Permit, directory: Path) -> AsyncIterator[tuple[PowerDriver, Sent]]:
    bmc = MiniRedfish(facts={"Actions": RESET, "PowerState": "On"})
    login = {"username": "admin", "password": "x", "verify_tls": False}
    facts = {"driver": "redfish", "address": await bmc.open(), **login}
    async with opened(facts, permit, directory) as driver:
        yield driver, lambda: len(bmc.asked)
    await bmc.close()


@contextlib.asynccontextmanager
async def by_a_program(permit: Permit, directory: Path) -> AsyncIterator[tuple[PowerDriver, Sent]]:
    asked = directory / "asked"
    program = directory / "pdu"
    program.write_text(f'#!/bin/sh\n[ "$1" = status ] && echo on || echo "$1" >> {asked}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    facts = {"driver": "command", "program": "pdu", "address": "1", "username": "u"}
    async with opened({**facts, "password": "p"}, permit, directory) as driver:
        yield driver, lambda: len(asked.read_text().split()) if asked.exists() else 0


@contextlib.asynccontextmanager
async def by_simulation(permit: Permit, directory: Path) -> AsyncIterator[tuple[PowerDriver, Sent]]:
    asked: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            number, what, _ = json.loads(line)
            if what != "state":
                asked.append(what)
            writer.write(json.dumps([number, "ON"]).encode() + b"\n")
        writer.close()

    server = await asyncio.start_unix_server(serve, str(directory / "sim.sock"))
    async with opened({"driver": "sim", "address": "a"}, permit, directory) as driver:
        yield driver, lambda: len(asked)
    server.close()


@contextlib.asynccontextmanager
async def opened(
    facts: dict[str, Any], permit: Permit, directory: Path
) -> AsyncIterator[PowerDriver]:
    programs = Programs({"pdu": Program(path=str(directory / "pdu"), timeout_s=30.0)})
    shared = Shared(Web(), PyghmiPool(), SimLine(directory / "sim.sock"), programs, permit)
    spec = BmcSpec.from_record("n1", {"name": "n1", "firmware": "bios", "bmc": facts})
    driver = make_driver(spec, shared)
    try:
        yield driver
    finally:
        await driver.close()
        await shared.close()


@pytest.mark.parametrize("switch", SWITCHES)
@pytest.mark.parametrize("way", [by_ipmi, by_redfish, by_a_program, by_simulation])
async def test_nothing_is_switched_without_a_permit(
    way: Callable[..., Any], switch: str, tmp_path: Path
) -> None:
    permit = Permit()
    async with way(permit, tmp_path) as (driver, sent):
        act: Callable[[], Awaitable[None]] = getattr(driver, switch)
        await driver.state()
        with pytest.raises(Refused, match="does not lead the site now"):
            await act()
        assert sent() == 0
        permit.left = 1000
        with contextlib.suppress(LayercakeError):  # some do not know each of them
            await act()
        assert sent() > 0


async def test_what_a_bmc_does_not_answer_is_not_repeated_after_the_lease(tmp_path: Path) -> None:
    permit = Permit()
    permit.left = 2
    got = 0

    class Deaf(MiniBmc):
        """Takes commands of the chassis and never answers."""

        def datagram_received(self, data: bytes, addr: Any) -> None:
            nonlocal got
            before = len(self.commands)
            transport, self.transport = self.transport, _Nowhere(self, self.transport)
            try:
                super().datagram_received(data, addr)
            finally:
                self.transport = transport
            got += CONTROL in self.commands[before:]

    class _Nowhere:
        def __init__(self, bmc: MiniBmc, transport: Any) -> None:
            self._bmc = bmc
            self._transport = transport

        def sendto(self, data: bytes, addr: Any) -> None:
            if self._bmc.commands[-1:] != [CONTROL]:
                self._transport.sendto(data, addr)

    transport, bmc = await asyncio.get_running_loop().create_datagram_endpoint(
        Deaf, local_addr=("127.0.0.1", 0)
    )
    login = {"username": "admin", "password": "pw"}
    facts = {"driver": "ipmi", "address": "127.0.0.1", "port": bmc.port, **login}
    async with opened(facts, permit, tmp_path) as driver:
        with pytest.raises(Refused, match="does not lead the site now"):
            await driver.on()
    transport.close()
    assert got == 2
