"""A room of pretended machines with real BMCs: ipmi_sim and sushy-emulator, each with a quirk of
its own that a test switches on.

The machines are tasks of one event loop, in a thread of its own inside a network namespace; the
BMCs are processes, and switch them by the hypervisor's socket, as those of a virtual rack do. What
a machine really is stands in Bay.on, whatever its BMC says.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import secrets
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import bcrypt
from vrack import chassis
from vrack.ipmi_bmc import write_config

from powerman.ipmi.line import Pace, connect
from powerman.ipmi.rmcp import SUITES
from powerman.ipmi.session import begin
from powerman.settings import BmcSpec
from tests.support.bmc_quirks import Manner, TcpProxy, UdpProxy
from tests.support.pretended import PretendedNode

ROOT = Path(__file__).resolve().parents[2]
DEAD_S = 6.0
"""How long a BMC that died is away."""
_BEHIND = 10_000
_PORTS = {"ipmi": 623, "redfish": 8000}
_CLONE_NEWNET = 0x40000000

Step = Literal["", "read", "off", "off-lost", "read-off", "boot", "on", "on-lost", "read-on"]
"""Where a BMC dies: in the middle of saying how it is, before or after it has done what it was
told, or before it did."""


@dataclass
class Bay:
    """A machine and its BMC. What is above the line is how they behave once the bay is armed.

    `acts_s`: seconds from a command to its effect. `lies`: what the BMC says of the power, "" for
    the truth. `dies_in`: the step in the middle of which the BMC is killed, once; it is back after
    DEAD_S. `rival_s`: somebody else holds a session for so long. `timeout_s`: what the inventory
    gives its BMC for an operation, 0 for nothing said.
    """

    name: str
    kind: Literal["ipmi", "redfish"]
    number: int
    manner: Manner = field(default_factory=Manner)
    acts_s: float = 0.0
    lies: Literal["", "ON", "OFF"] = ""
    dies_in: Step = ""
    rival_s: float = 0.0
    timeout_s: float = 0.0
    # ----
    on: bool = False
    armed: bool = False
    deaths: int = 0
    switched: list[tuple[float, bool]] = field(default_factory=list)
    commands: list[tuple[float, str]] = field(default_factory=list)

    @property
    def mac(self) -> str:
        """The machine's."""
        return f"52:54:00:00:03:{self.number:02x}"

    @property
    def ip(self) -> str:
        """The machine's."""
        return f"10.97.0.{100 + self.number}"

    @property
    def bmc_address(self) -> str:
        """The BMC's."""
        return f"10.98.1.{self.number + 1}"

    def was_off(self, since: float) -> bool:
        """Whether it really was off at some time since then (time.monotonic)."""
        return not self.on or any(at >= since and not on for at, on in self.switched)


@dataclass
class _Running:
    """What runs in a bay."""

    life: asyncio.Task[None] | None = None
    pending: asyncio.TimerHandle | None = None
    wants: bool = False
    boot: str = ""
    starts: int = 0
    bmc: int = 0
    proxy: UdpProxy | TcpProxy | None = None


class MachineRoom:
    """All bays. `head` is the head's address, `authority` its CA's file, which may come later."""

    def __init__(
        self, namespace: str, directory: Path, bays: Sequence[Bay], head: str, authority: Path
    ) -> None:
        self.bays = {bay.name: bay for bay in bays}
        self.password = secrets.token_hex(8)
        self._namespace = namespace
        self._directory = directory
        self._head = head
        self._authority = authority
        self._socket = f"/run/{namespace}-room.sock"
        self._running = {name: _Running() for name in self.bays}
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._inside, name="machine room")
        self._ready, self._failure = threading.Event(), ""

    # -- from the test's thread

    def __enter__(self) -> MachineRoom:
        self._directory.mkdir(parents=True)
        hashed = bcrypt.hashpw(self.password.encode(), bcrypt.gensalt(rounds=4))
        (self._directory / "htpasswd").write_bytes(b"admin:" + hashed + b"\n")
        self._thread.start()
        self._ready.wait(60)
        if self._failure or not self._ready.is_set():
            self.__exit__()
            raise RuntimeError(
                f"cannot open the machine room: {self._failure or 'it takes too long'}"
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._done.set)
            self._thread.join(30)
        Path(self._socket).unlink(missing_ok=True)

    def arm(self, *names: str) -> None:
        """From now on these BMCs have their quirks."""
        for name in names:
            self._loop.call_soon_threadsafe(self._arm, self.bays[name])

    # -- its thread

    def _inside(self) -> None:
        handle = os.open(f"/run/netns/{self._namespace}", os.O_RDONLY)
        try:
            if ctypes.CDLL(None, use_errno=True).setns(handle, _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
            asyncio.run(self._main())
        except Exception as error:  # noqa: BLE001 - it is told to the test
            self._failure = f"{type(error).__name__}: {error}"
            self._ready.set()
        finally:
            os.close(handle)

    async def _main(self) -> None:
        self._loop, self._done = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_unix_server(self._asked, self._socket)
        quiet = (self._directory / "emulators.log").open("ab")
        self._emulators = self._child(
            [sys.executable, "-m", "tests.support.emulators"], quiet, pipes=True
        )
        try:
            for bay in self.bays.values():
                await self._furnish(bay)
            self._ready.set()
            await self._done.wait()
        finally:
            await self._end()
            server.close()
            quiet.close()

    async def _end(self) -> None:
        for task in [*self._tasks, *(r.life for r in self._running.values() if r.life is not None)]:
            task.cancel()
        await asyncio.gather(
            *self._tasks,
            *(r.life for r in self._running.values() if r.life is not None),
            return_exceptions=True,
        )
        for running in self._running.values():
            if running.pending is not None:
                running.pending.cancel()
            if isinstance(running.proxy, UdpProxy):
                running.proxy.close()
            elif running.proxy is not None:
                await running.proxy.close()
            self._kill(running)
        for child in self._children.values():
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    pipe.close()

    # -- BMCs

    def _child(
        self, argv: Sequence[str], log: Any, *, pipes: bool = False
    ) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'vm-testbed'}"}
        child = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", *argv],
            stderr=log,
            env=environment,
            stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
            stdout=subprocess.PIPE if pipes else log,
        )
        self._children[child.pid] = child
        return child

    async def _furnish(self, bay: Bay) -> None:
        """Starts its BMC and the proxy in front of that, which does nothing until the bay is
        armed."""
        running, manner = self._running[bay.name], Manner()
        await asyncio.to_thread(self._start_bmc, bay)
        port = _PORTS[bay.kind]
        if bay.kind == "ipmi":
            udp = running.proxy = UdpProxy(
                manner, (bay.bmc_address, port + _BEHIND), self.password.encode()
            )
            await udp.open((bay.bmc_address, port))
        else:
            tcp = running.proxy = TcpProxy(manner, (bay.bmc_address, port + _BEHIND))
            await tcp.start((bay.bmc_address, port))

    def _start_bmc(self, bay: Bay) -> None:
        home, running, port = (
            self._directory / bay.name,
            self._running[bay.name],
            _PORTS[bay.kind] + _BEHIND,
        )
        home.mkdir(exist_ok=True)
        if bay.kind == "ipmi":
            program = [sys.executable, "-IS", str(chassis.__file__), self._socket, bay.name]
            argv = write_config(home, bay.name, bay.bmc_address, port, self.password, program)
            with (home / "bmc.log").open("ab") as log:
                running.bmc = self._child(argv, log).pid
            return
        config = home / "config.json"
        config.write_text(
            json.dumps(
                {
                    "address": bay.bmc_address,
                    "port": port,
                    "socket": self._socket,
                    "node": bay.name,
                    "mac": bay.mac,
                    "firmware": "uefi",
                    "uuid": f"00000000-0000-0000-0000-{bay.number:012d}",
                    "state_dir": str(home),
                    "certificate": "",
                    "key": "",
                    "auth_file": str(self._directory / "htpasswd"),
                }
            )
        )
        pipe_in, pipe_out = self._emulators.stdin, self._emulators.stdout
        assert pipe_in is not None and pipe_out is not None
        pipe_in.write(f"{shlex.quote(str(config))} {shlex.quote(str(home / 'bmc.log'))}\n".encode())
        pipe_in.flush()
        running.bmc = int(pipe_out.readline())

    def _kill(self, running: _Running) -> None:
        child = self._children.pop(running.bmc, None)
        if child is not None:
            child.kill()
            child.wait()
        elif running.bmc:
            with contextlib.suppress(ProcessLookupError):
                os.kill(running.bmc, 9)
        running.bmc = 0

    async def _die(self, bay: Bay) -> None:
        bay.dies_in, bay.deaths = "", bay.deaths + 1
        self._kill(self._running[bay.name])
        await asyncio.sleep(DEAD_S)
        await asyncio.to_thread(self._start_bmc, bay)

    def _arm(self, bay: Bay) -> None:
        bay.armed = True
        proxy = self._running[bay.name].proxy
        assert proxy is not None
        proxy.manner = bay.manner
        if bay.rival_s:
            self._spawn(self._rival(bay))

    async def _rival(self, bay: Bay) -> None:
        """Somebody else's session."""
        if bay.kind == "ipmi":
            pace = Pace()
            spec = BmcSpec(
                node=bay.name,
                name=bay.name,
                driver="ipmi",
                address=bay.bmc_address,
                port=_PORTS["ipmi"],
                username="admin",
                password=self.password,
            )
            async with connect(spec.address, spec.port, pace) as line:
                session = await begin(line, spec, pace, [SUITES[3]])
                await self._in_the_way(bay)
                await session.close()
        else:
            _, writer = await asyncio.open_connection(bay.bmc_address, _PORTS["redfish"])
            await self._in_the_way(bay)
            writer.close()

    async def _in_the_way(self, bay: Bay) -> None:
        """Returns when it was in somebody's way, or after so long: on a busy machine that may be
        more than one waits."""
        end = self._loop.time() + bay.rival_s
        while not bay.manner.refused and self._loop.time() < end:
            await asyncio.sleep(0.05)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- machines

    async def _asked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One question of a BMC, or one that it does not live to hear the answer of."""
        try:
            request = json.loads(await reader.readline())
            answer = self._handle(self.bays[request["node"]], request)
            if answer is not None:
                writer.write(json.dumps({"ok": True, **answer}).encode() + b"\n")
                await writer.drain()
        except (ValueError, OSError):
            pass
        finally:
            writer.close()

    def _handle(self, bay: Bay, request: dict[str, str]) -> dict[str, Any] | None:
        running, step = self._running[bay.name], _step(bay, request)
        if bay.armed and bay.dies_in == f"{step}-lost":
            self._spawn(self._die(bay))
            return None
        if request["op"] == "power":
            bay.commands.append((time.monotonic(), request["want"]))
            self._command(bay, request["want"])
        elif request["op"] == "boot":
            running.boot = request["device"]
        if bay.armed and bay.dies_in == step:
            self._spawn(self._die(bay))
            return None
        power = bay.lies if bay.armed and bay.lies else "ON" if bay.on else "OFF"
        return {
            "power": power.lower(),
            "boot": running.boot,
            "last_boot": "",
            "starts": running.starts,
            "pid": None,
            "bmc_pid": 0,
        }

    def _command(self, bay: Bay, want: str) -> None:
        running = self._running[bay.name]
        if want == "reset":
            if bay.on:
                self._switch(bay, False)
                self._switch(bay, True)
            return
        target = want == "on"
        if running.pending is not None and running.wants == target:
            return  # it is on its way already
        if running.pending is not None:
            running.pending.cancel()
            running.pending = None
        if want == "soft" or target == bay.on:
            return
        if bay.armed and bay.acts_s:
            running.wants = target
            running.pending = self._loop.call_later(bay.acts_s, self._act, bay, target)
        else:
            self._switch(bay, target)

    def _act(self, bay: Bay, on: bool) -> None:
        self._running[bay.name].pending = None
        self._switch(bay, on)

    def _switch(self, bay: Bay, on: bool) -> None:
        running = self._running[bay.name]
        if on == bay.on:
            return
        bay.on = on
        bay.switched.append((time.monotonic(), on))
        if on:
            running.starts += 1
            node = PretendedNode(bay.ip, bay.mac, self._head, self._authority)
            running.life = self._loop.create_task(self._live(bay, node))
        elif running.life is not None:
            running.life.cancel()

    async def _live(self, bay: Bay, node: PretendedNode) -> None:
        try:
            await node.run()
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - a node that crashes is silent; who looks at the test finds why
            with (self._directory / f"{bay.name}.crash").open("a") as out:
                out.write(f"{type(error).__name__}: {error}\n")


def _step(bay: Bay, request: dict[str, str]) -> str:
    """What a question of a BMC is, in the order of a power cycle."""
    if request["op"] == "power":
        return request["want"]
    if request["op"] == "boot":
        return "boot"
    told = [want for _, want in bay.commands]
    if "off" not in told:
        return "read"
    return "read-off" if told[-1] == "off" else "read-on"
