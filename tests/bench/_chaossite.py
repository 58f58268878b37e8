"""The site of `chaos`: heads, the members of their store, the lines between them, simulated nodes
and BMCs; what people do there; and one round."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import os
import random
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from layercake.base.clock import boottime
from layercake.features.events.routes import MOST
from layercake.fleet.events import MUTATION_STARTED
from layercake.head.settings import FILE_NAME
from layercake.kraken.events import MUTATION_FAILED
from layercake.sim import site
from layercake.sim.fleet.commands import played
from layercake.sim.fleet.machine import Phase
from layercake.sim.play import Options, build_play
from layercake.sim.screen import Screen
from powerman.drivers.sim import SOCKET as BMCS
from tests.bench._chaoscheck import Attempt, Checker, Order
from tests.bench._chaosmachines import (
    HEAD_BYTES,
    MEMBER_BYTES,
    Versions,
    clock_of,
    logs_aside,
    mount,
)
from tests.bench._storelines import BmcLine, StoreLines

UP_S = 240.0
AGAIN_S = 0.1
ASK_S = 30.0
MANY = 12
"""Of so many nodes one client changes the entries at once."""


class HeadUnderTest:
    """One head: its process, its lines, and its API."""

    def __init__(self, name: str, directory: Path, process: site.HeadProcess, clocks: Path) -> None:
        self.name = name
        self.directory = directory
        self.process = process
        self.clock = clock_of(clocks, name)
        process.environment |= self.clock.environment
        self.lines: StoreLines

    async def connect(
        self, members: Sequence[str], fleet: Path, told: Callable[[str, str], None]
    ) -> None:
        """Has lines of its own to the members of the store, and to the BMCs."""
        self.lines = StoreLines(members)
        await self.lines.start()
        self.configure("store", self.lines.endpoints)
        await BmcLine(fleet, told).start(self.directory / BMCS)

    def configure(self, key: str, value: Any) -> None:
        """Changes a setting of it among the heads."""
        path = self.directory / FILE_NAME
        config = yaml.safe_load(path.read_text())
        config["heads"][key] = value
        path.write_text(yaml.safe_dump(config))

    def move(self, socket: str, by: int) -> None:
        """It is on another machine: its address is the one that is so many after its own."""
        path = self.directory / FILE_NAME
        config = yaml.safe_load(path.read_text())
        config["address"] = str(ipaddress.IPv4Address(config["address"]) + by)
        config["socket"] = socket
        path.write_text(yaml.safe_dump(config))

    @property
    def address(self) -> str:
        """Where nodes and the other heads reach it."""
        return str(yaml.safe_load((self.directory / FILE_NAME).read_text())["address"])

    def start(self) -> None:
        """Starts it, if it does not run."""
        if not self.process.runs:
            self.process.start()

    def signal(self, number: int) -> None:
        """Sends a signal to the head itself."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, number)

    @contextlib.asynccontextmanager
    async def _asked(
        self, method: str, path: str, body: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        connector = aiohttp.UnixConnector(str(self.directory / site.SOCKET))
        timeout = aiohttp.ClientTimeout(total=ASK_S)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as client,
            client.request(method, f"http://head{path}", json=body) as answer,
        ):
            yield answer

    async def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """An answer of its API. Raises aiohttp.ClientError, OSError and TimeoutError."""
        async with self._asked(method, path, body) as answer:
            return answer.status, await answer.json()

    async def exec_lines(self, path: str, body: Any) -> tuple[int, list[Any]]:
        """The lines of a streamed answer. Raises as `request`."""
        async with self._asked("POST", path, body) as answer:
            return answer.status, [json.loads(line) for line in (await answer.text()).splitlines()]


class Site:
    """All of it."""

    def __init__(self, base: Path, options: Options, dice: random.Random) -> None:
        self.base = base
        self.disks = ""
        """Why heads and members have no disks of their own, "" if they have."""
        place = Path(options.directory)
        place.mkdir()
        self._mount(place, HEAD_BYTES)
        self.play = play = build_play(options, Screen())
        assert play.members is not None
        self.dice = dice
        self.members = play.members
        self.versions = Versions(base / "versions")
        self.nodes = sorted(play.simulated.inventory.nodes)
        directories = [
            (play.directory, play.head),
            *((play.directory / f"head{n}", h) for n, h in enumerate(play.others, 2)),
        ]
        self.heads = [
            HeadUnderTest(f"head{number}", directory, process, base / "clocks")
            for number, (directory, process) in enumerate(directories, 1)
        ]
        bmcs = {one.bmc: one.name for one in play.simulated.identities}
        self.checker = Checker({h.name: h.directory for h in self.heads}, bmcs)
        self.fleet = play.directory / "fleet.sock"
        self._numbers = iter(range(1, 1 << 30))
        self.changing = True
        play.fleet.played = self._play_command

    # -- its life

    async def start(self) -> None:
        """Has all heads and nodes up."""
        self._give_disks()
        await self.play.fleet.start()
        (self.play.directory / BMCS).rename(self.fleet)
        for head in self.heads:
            await self.connect(head)
        self.members.start()
        await asyncio.to_thread(self.members.wait)
        self.heads[0].process.start()
        await asyncio.to_thread(self.heads[0].process.wait)
        for head in self.heads[1:]:
            head.process.start()
        await asyncio.to_thread(self.heads[0].process.fill, self.play.simulated)
        await self.until(self.all_up, "all nodes are up")

    def _mount(self, directory: Path, size: int) -> None:
        if not self.disks:
            images = self.base / "disks"
            images.mkdir(exist_ok=True)
            try:
                mount(images / f"{directory.name}.img", directory, size)
            except subprocess.CalledProcessError as error:
                self.disks = error.stderr.decode(errors="replace").strip()

    def _give_disks(self) -> None:
        """Each head and each member has one of its own."""
        for head in self.heads:
            if head.directory != self.play.directory:
                self._mount(head.directory, HEAD_BYTES)
            logs_aside(head.directory, self.base / "logs", site.LOG)
        names = [member.name for member in self.members.members]
        logs_aside(self.play.directory, self.base / "logs", *(f"{name}.log" for name in names))
        for member in self.members.members:
            member.directory.mkdir(mode=0o700)
            self._mount(member.directory, MEMBER_BYTES)

    async def connect(self, head: HeadUnderTest) -> None:
        """A head gets its lines; what it has BMCs do is noted."""
        told = partial(self.checker.command, head.name)
        await head.connect(self.members.endpoints, self.fleet, told)

    async def stop(self) -> None:
        """Ends all of it."""
        for head in self.heads:
            head.signal(signal.SIGCONT)
            await asyncio.to_thread(head.process.stop)
            head.lines.close()
        self.members.kill()
        await self.play.fleet.stop()

    async def until(self, true: Callable[[], Awaitable[bool]], what: str) -> None:
        """Waits for what must come. Raises TimeoutError that says how the heads are."""
        try:
            async with asyncio.timeout(UP_S):
                while not await true():
                    await asyncio.sleep(AGAIN_S)
        except TimeoutError:
            view = await self.get("/v1/heads")
            raise TimeoutError(f"it is not so that {what}: {view}") from None

    async def leader(self) -> HeadUnderTest | None:
        """The head that serves, if one does."""
        for head in self.heads:
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError, ValueError):
                status, _ = await head.request("GET", "/v1/rolls")
                if status == 200:
                    return head
        return None

    async def get(self, path: str) -> Any:
        """What the head that serves says; None if none does."""
        for head in self.heads:
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError, ValueError):
                status, said = await head.request("GET", path)
                if status == 200:
                    return said
        return None

    async def wait_for(self, path: str) -> Any:
        """What the head that serves says, as soon as one does. Raises TimeoutError."""
        async with asyncio.timeout(UP_S):
            while (said := await self.get(path)) is None:
                await asyncio.sleep(AGAIN_S)
        return said

    async def all_up(self) -> bool:
        """Whether all nodes run what is wanted."""
        status = await self.get("/v1/status")
        return bool(status and status["nodes"]["converged"] >= len(self.nodes))

    async def all_follow(self) -> bool:
        """Whether one head leads and the others have all that it has; it may have more by the time
        that they have said so."""
        view = await self.get("/v1/heads")
        return bool(
            view
            and view["leader"]
            and len(view["heads"]) == len(self.heads)
            and all(h["entry"] and not h["behind_s"] and not h["trouble"] for h in view["heads"])
        )

    # -- what people do

    async def change(self, register: str, method: str, path: str, body: dict[str, Any]) -> str:
        """One change, at whoever serves; what became of it."""
        [value] = body["set"].values()
        outcome, head, began = await self.order(method, path, body)
        self.checker.answered(register, value, outcome, head, began)
        return outcome

    async def order(self, method: str, path: str, body: Any) -> tuple[str, str, float]:
        """Asks one head after the other until one leads; the outcome, which head said so, and when
        it was asked."""
        began = boottime()
        for head in self.dice.sample(self.heads, len(self.heads)):
            began = boottime()
            try:
                status, said = await head.request(method, path, body)
            except aiohttp.ClientConnectorError:
                continue
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
                return "unknown", head.name, began
            if status == 200:
                return "acknowledged", head.name, began
            text = str(said.get("error", said))
            if "cannot say whether" in text:
                return "unknown", head.name, began
            if "follows" not in text:
                self.checker.counts[f"refused: {text[:60]}"] += 1
                return "refused", head.name, began
        return "refused", "", began

    async def people(self) -> None:
        """Change things until they are told to stop."""
        pools = [self.nodes[n] for n in range(3)]
        many = f"{self.nodes[10]}" if len(self.nodes) <= 22 else ",".join(self.nodes[10:22])
        await asyncio.gather(
            *(self._change_one(node) for node in pools),
            self._change_many(many),
            self._cycle(),
            *(self._command(node) for node in self.nodes[4:7]),
            self._release(self.nodes[7]),
            self._replace_board(self.nodes[8]),
        )

    async def _replace_board(self, node: str) -> None:
        """Replaces a node's board by one with another card: it loses its power, a person writes the
        card into the inventory, and has it boot."""
        machine = self.play.fleet.machines[node]
        mac = f"02:b0:00:00:{next(self._numbers):04x}"
        mac = f"{mac[:-2]}:{mac[-2:]}"
        self.checker.boards.add(node)
        machine.off()
        machine.identity = replace(machine.identity, mac=mac)
        await self.until(partial(self._write_card, node, mac), f"the new card of {node} is known")
        await self.until(partial(self._boot_anew, node), f"the new board of {node} is booted")
        self.checker.counts["boards replaced"] += 1

    async def _write_card(self, node: str, mac: str) -> bool:
        path = f"/v1/nodes/{node}"
        outcome = await self.change(f"mac of {node}", "PATCH", path, {"set": {"mac": mac}})
        return outcome == "acknowledged"

    async def _boot_anew(self, node: str) -> bool:
        body = {"range": node, "action": "cycle", "force": True}
        outcome, _, _ = await self.order("POST", "/v1/power", body)
        return outcome == "acknowledged"

    async def _boards_run(self) -> bool:
        """Whether all new boards run, as they say themselves."""
        machines = self.play.fleet.machines
        return all(machines[node].phase is Phase.RUNNING for node in self.checker.boards)

    async def _release(self, node: str) -> None:
        """Has a node released for its next user."""
        outcome, _, _ = await self.order("POST", "/v1/nodes/release", {"range": node})
        self.checker.release(node, outcome)

    async def releases(self) -> None:
        """Waits until nodes are released; all their releases, for the checker. Raises
        TimeoutError."""
        for node in self.checker.released:
            await self.until(partial(self._is_released, node), f"{node} is released")
            said = await self.wait_for(f"/v1/nodes/{node}/releases")
            self.checker.has_released(node, [one["id"] for one in said["releases"]])

    async def _is_released(self, node: str) -> bool:
        said = await self.get(f"/v1/nodes/{node}/releases")
        return bool(said) and all(one["state"] == "done" for one in said["releases"])

    def _play_command(self, node: str, request: Mapping[str, Any]) -> tuple[float, dict[str, Any]]:
        """A node carries a request out."""
        if "command" in request:
            self.checker.carried_out(node, str(request["command"]))
        return played(node, request)

    async def _command(self, node: str) -> None:
        """Has a node carry commands out, each once."""
        while self.changing:
            command = ["echo", f"c{next(self._numbers)}"]
            body = {"range": node, "command": command, "timeout_s": 5.0}
            outcome = "refused"
            for head in self.dice.sample(self.heads, len(self.heads)):
                try:
                    status, lines = await head.exec_lines("/v1/nodes/exec", body)
                except aiohttp.ClientConnectorError:
                    continue
                except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
                    outcome = "unknown"
                    break
                if status == 200:
                    done = any(isinstance(one, dict) and one.get("exit") == 0 for one in lines)
                    outcome = "acknowledged" if done else "unknown"
                    break
            self.checker.commanded(node, str(command), outcome)
            await asyncio.sleep(self.dice.uniform(0.1, 0.5))

    async def _change_one(self, node: str) -> None:
        while self.changing:
            value = f"v{next(self._numbers)}"
            body = {"set": {"kernel_args": value}}
            await self.change(node, "PATCH", f"/v1/nodes/{node}", body)
            await asyncio.sleep(self.dice.uniform(0.02, 0.2))

    async def _change_many(self, names: str) -> None:
        while self.changing:
            value = f"v{next(self._numbers)}"
            body = {"range": names, "set": {"kernel_args": value}}
            await self.change("many", "PATCH", "/v1/nodes", body)
            await asyncio.sleep(self.dice.uniform(0.1, 0.5))

    async def _cycle(self) -> None:
        """Orders that nodes boot anew, each once in a round; and an image is rolled over others."""
        rolled = self.dice.choice(["one", "two"])
        others = ",".join(self.nodes[30:50])
        if others:
            body = {"range": others, "image": rolled, "batch": "5", "health_timeout_s": 0.0}
            outcome, _, _ = await self.order("POST", "/v1/rolls", body)
            self.checker.counts[f"rolls {outcome}"] += 1
        for node in self.dice.sample(self.nodes[22:30], 4) if len(self.nodes) >= 30 else ():
            if not self.changing:
                return
            self.checker.orders.append(Order(node, boottime()))
            body = {"range": node, "action": "cycle", "force": True}
            outcome, _, _ = await self.order("POST", "/v1/power", body)
            self.checker.counts[f"cycles {outcome}"] += 1
            if outcome == "refused":
                self.checker.orders.pop()
            await asyncio.sleep(self.dice.uniform(0.3, 1.5))

    async def values(self) -> dict[str, str]:
        """What the registers are now. Raises TimeoutError."""
        said = await self.wait_for("/v1/inventory/show")
        nodes = yaml.safe_load(said["yaml"])["nodes"] if "yaml" in said else said["nodes"]
        found = {
            name: str(entry.get("kernel_args", "")) if isinstance(entry, dict) else ""
            for name, entry in nodes.items()
        }
        macs = {f"mac of {name}": " ".join(nodes[name]["mac"]) for name in self.checker.boards}
        group = {found[name] for name in self.nodes[10:22]}
        if len(group) > 1:
            self.checker.fault("lost", f"a change of many is done in part: {sorted(group)}")
        return {**found, **macs, "many": group.pop()}

    async def attempts(self) -> list[Attempt]:
        """The attempts at mutations that heads have begun in this round, and those that failed."""
        found = []
        for kind in (MUTATION_STARTED, MUTATION_FAILED):
            query = f"kind={kind}&from={self.checker.began}&limit={MOST}"
            said = await self.wait_for(f"/v1/events?{query}")
            found += [
                Attempt(one["node"], one["data"]["mutation"], one["at"], kind is MUTATION_FAILED)
                for one in said["events"]
            ]
        return found

    async def accepts(self) -> bool:
        """Whether a head accepts a change."""
        body = {"set": {"kernel_args": f"v{next(self._numbers)}"}}
        node = self.nodes[3]
        return await self.change(node, "PATCH", f"/v1/nodes/{node}", body) == "acknowledged"

    # -- rounds

    async def round(self, fault: Callable[[Site], Awaitable[None]]) -> float:
        """One; how long it took until a change was accepted after the fault."""
        self.checker.begin_round()
        self.changing = True
        people = asyncio.create_task(self.people())
        await asyncio.sleep(self.dice.uniform(0.5, 1.5))
        await fault(self)
        ended = boottime()
        for head in self.heads:  # systemd starts one that has ended by itself
            self.checker.counts["heads started again"] += not head.process.runs
            head.start()
        try:
            await self.until(self.accepts, "a change is accepted")
            recovered = boottime() - ended
        finally:
            self.changing = False
            await people
        await self.until(self.all_follow, "all heads follow")
        await self.releases()
        await self.until(self._boards_run, "new boards run")
        await self.until(self.all_up, "all nodes are up")
        self.checker.seen(await self.values())
        self.checker.end_round(await self.attempts())
        return recovered
