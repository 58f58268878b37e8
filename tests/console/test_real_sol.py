"""Serial over LAN and foreign programs: our side at ipmi_sim, ipmitool at our BMC on loopback, and
both at one BMC."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from vrack.ipmi_bmc import write_config

from layercake.kraken.errors import LayercakeError
from layercake.moduleapi.service import FakeLink
from powerman.console import consoles
from powerman.service import PowerService
from powerman.settings import PowerSettings
from tests.console.conftest import Opened, until
from tests.support.pseudo import Serial
from tests.support.site import site

PASSWORD = "of-the-console"
BOOT = b"".join(
    b"[%5d.000000] line %d of a boot, which is as long as those of kernels are\r\n" % (n, n)
    for n in range(3000)
)


class Tool:
    """ipmitool's `sol activate`, in a terminal of its own. `said` is what it shows."""

    def __init__(self, port: int, password: str, suite: int) -> None:
        self.terminal = Serial()
        self.process = subprocess.Popen(
            [*tool(port, password, suite), "sol", "activate"],
            stdin=self.terminal.other,
            stdout=self.terminal.other,
            stderr=self.terminal.other,
        )

    @property
    def said(self) -> bytes:
        return self.terminal.got

    def close(self) -> None:
        """Ends it."""
        self.process.kill()
        self.process.wait()
        self.terminal.close()


def tool(port: int, password: str, suite: int) -> list[str]:
    """ipmitool at a BMC."""
    return [
        "ipmitool",
        "-I",
        "lanplus",
        "-C",
        str(suite),
        "-H",
        "127.0.0.1",
        "-p",
        str(port),
        "-U",
        "admin",
        "-P",
        password,
    ]


def free_port() -> int:
    """A UDP port that nobody has."""
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextlib.contextmanager
def simulator(directory: Path, device: str) -> Iterator[int]:
    """ipmi_sim with a serial port; where it listens."""
    port = free_port()
    argv = write_config(directory, "n1", "127.0.0.1", port, PASSWORD, [], sol=device)
    child = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield port
    finally:
        child.kill()
        child.wait()


@contextlib.asynccontextmanager
async def real(tmp_path: Path) -> AsyncIterator[tuple[PowerService, FakeLink, Serial, int]]:
    """The service over ipmi_sim: its console is open."""
    serial, link, service = Serial(), FakeLink(), PowerService(polls=False)
    with simulator(tmp_path / "bmc", serial.path) as port:
        await service.start(link, site(data_dir=str(tmp_path)), PowerSettings())
        try:
            bmc = {
                "driver": "ipmi",
                "address": "127.0.0.1",
                "port": port,
                "username": "admin",
                "password": PASSWORD,
            }
            await service.node_changed("n1", {"name": "n1", "firmware": "bios", "bmc": bmc})
            async with asyncio.timeout(60):
                while (await asked(service))["power"] not in ("ON", "OFF"):
                    await asyncio.sleep(0.2)
            await until("it is open", lambda: service.consoles.of("n1").state.value == "open")
            yield service, link, serial, port
        finally:
            await service.stop()
            serial.close()


async def asked(service: PowerService) -> dict[str, Any]:
    """What the BMC says of its power; while it starts, nothing."""
    try:
        found: dict[str, Any] = await service.call("power.refresh", {"node": "n1"})
    except LayercakeError as error:  # it has not started yet
        return {"power": str(error)}
    return found


async def test_a_whole_boot_is_kept_and_what_is_typed_arrives(tmp_path: Path) -> None:
    async with real(tmp_path) as (service, _link, serial, _port):
        await serial.write(BOOT)
        log = tmp_path / "consoles/n1.log"
        await until(
            "all is kept", lambda: log.exists() and log.read_text().count("of a boot") == 3000
        )
        found = [
            text
            for _, text in await service.consoles.tail("n1", 5000)
            if not text.startswith("--- ")
        ]
        assert found == BOOT.decode().splitlines()
        console = service.consoles.of("n1")
        reader, _ = console.attach("alice", write=True, take=False)
        paste = b"0123456789abcdef" * 100
        assert console.write(reader, paste) == len(paste)
        await until("it was typed", lambda: serial.got == paste)


async def test_ipmitool_finds_it_taken_and_when_it_takes_it_it_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("powerman.ipmi.console.KEEP_S", 0.3)
    monkeypatch.setattr(consoles, "again_s", lambda error, failures: 3.0)
    async with real(tmp_path) as (service, link, serial, port):
        other = Tool(port, PASSWORD, 3)
        try:
            await until("it says so", lambda: b"already active" in other.said)
        finally:
            other.close()
        taking = await asyncio.create_subprocess_exec(*tool(port, PASSWORD, 3), "sol", "deactivate")
        await taking.wait()
        other = Tool(port, PASSWORD, 3)
        try:
            await until("ipmitool has it", lambda: b"operational" in other.said)
            await until("we see that", lambda: service.consoles.of("n1").state.value == "taken")
            await serial.write(b"for ipmitool\r\n")
            await until("it hears the machine", lambda: b"for ipmitool" in other.said)
            await until(
                "it is told",
                lambda: any(
                    "user 'admin'" in text
                    for _, kind, text, _, _ in link.events
                    if kind == "power.console-taken"
                ),
            )
            os.write(other.terminal.handle, b"\r~.")
            await until("it has left", lambda: other.process.poll() is not None)
        finally:
            other.close()
        await until("it is ours again", lambda: service.consoles.of("n1").state.value == "open")


@pytest.mark.parametrize("suite", [3, 17])
async def test_ipmitool_at_our_bmc_on_loopback(room: Opened, suite: int) -> None:
    async with room(bmc={"console": "off"}) as one:
        other = Tool(one.bmc.port, "pw", suite)
        try:
            await until("it is open", lambda: b"operational" in other.said)
            one.sol.write(b"login: ")
            await until("it shows it", lambda: b"login: " in other.said)
            os.write(other.terminal.handle, b"root\r")
            await until("it was typed", lambda: one.sol.typed == b"root\r")
            os.write(other.terminal.handle, b"~B")
            await until("a break", lambda: one.sol.breaks == 1)
        finally:
            other.close()
