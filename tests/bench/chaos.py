"""Whatever breaks, nothing is lost and nothing is done twice: heads, their store and the lines
between them are broken again and again while people change things, and a checker counts.

    python -m tests.bench.chaos [--rounds N] [--seed S] [--heads 2|3] [--nodes N] [--only FAULT]

Heads are whole ones, the store is a real etcd of three members, nodes and BMCs are simulated
(layercake.sim); all of it is in a network namespace. A round: people change entries of nodes, of
one and of many at once, order power cycles and roll an image, and in the middle of that a fault
begins and ends (FAULTS). Then all is let come up again, and what is so is compared with what people
were told: acknowledged changes that are lost, refused ones that are done, power actions done twice,
nodes touched that nobody asked for, and two heads that act at once. `recovered_s` is from the end
of a fault until a head accepts a change. Prints a table and one JSON object last; the exit status
is 1 if anything was counted.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from layercake.base.clock import boottime
from layercake.base.tcp_listener import raise_file_limit
from layercake.head.settings import FILE_NAME
from layercake.heads.leadership import TTL_S
from layercake.sim import namespace, site
from layercake.sim.play import Options, Play, build_play
from layercake.sim.screen import Screen
from powerman.drivers.sim import SOCKET as BMCS
from tests.bench._chaoscheck import Checker, Order
from tests.bench._storelines import BmcLine, Line, StoreLines

FAST = {"guard.site_boots": 1000, "guard.boots": 100, "guard.power_ons": 1000}
UP_S = 120.0
AGAIN_S = 0.1
ASK_S = 30.0
LASTS_S = 4.0
MANY = 12
"""Of so many nodes one client changes the entries at once."""


class HeadUnderTest:
    """One head: its process, its lines, and its API."""

    def __init__(self, name: str, directory: Path, process: site.HeadProcess) -> None:
        self.name = name
        self.directory = directory
        self.process = process
        self.lines: StoreLines

    def signal(self, number: int) -> None:
        """Sends a signal to the head itself."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, number)

    async def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """An answer of its API. Raises aiohttp.ClientError, OSError and TimeoutError."""
        connector = aiohttp.UnixConnector(str(self.directory / site.SOCKET))
        timeout = aiohttp.ClientTimeout(total=ASK_S)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as client,
            client.request(method, f"http://head{path}", json=body) as answer,
        ):
            return answer.status, await answer.json()


class Site:
    """All of it."""

    def __init__(self, play: Play, dice: random.Random) -> None:
        assert play.members is not None
        self.play = play
        self.dice = dice
        self.members = play.members
        self.nodes = sorted(play.simulated.inventory.nodes)
        self.heads = [
            HeadUnderTest(f"head{number}", directory, process)
            for number, (directory, process) in enumerate(
                [
                    (play.directory, play.head),
                    *((play.directory / f"head{n}", h) for n, h in enumerate(play.others, 2)),
                ],
                1,
            )
        ]
        bmcs = {one.bmc: one.name for one in play.simulated.identities}
        self.checker = Checker({h.name: h.directory for h in self.heads}, bmcs)
        self._numbers = iter(range(1, 1 << 30))
        self.changing = True

    # -- its life

    async def start(self) -> None:
        """Has all heads and nodes up."""
        play = self.play
        await play.fleet.start()
        fleet = play.directory / "fleet.sock"
        (play.directory / BMCS).rename(fleet)
        for head in self.heads:
            head.lines = StoreLines(self.members.endpoints)
            await head.lines.start()
            config = yaml.safe_load((head.directory / FILE_NAME).read_text())
            config["heads"]["store"] = head.lines.endpoints
            (head.directory / FILE_NAME).write_text(yaml.safe_dump(config))
            told = partial(self.checker.command, head.name)
            await BmcLine(fleet, told).start(head.directory / BMCS)
        self.members.start()
        await asyncio.to_thread(self.members.wait)
        self.heads[0].process.start()
        await asyncio.to_thread(self.heads[0].process.wait)
        for head in self.heads[1:]:
            head.process.start()
        await asyncio.to_thread(self.heads[0].process.fill, play.simulated)
        await self.until(self.all_up, "all nodes are up")

    async def stop(self) -> None:
        """Ends all of it."""
        for head in self.heads:
            head.signal(signal.SIGCONT)
            await asyncio.to_thread(head.process.stop)
            head.lines.close()
        self.members.kill()
        await self.play.fleet.stop()

    async def until(self, true: Callable[[], Awaitable[bool]], what: str) -> None:
        """Waits for what must come. Raises TimeoutError."""
        try:
            async with asyncio.timeout(UP_S):
                while not await true():
                    await asyncio.sleep(AGAIN_S)
        except TimeoutError:
            raise TimeoutError(f"it is not so that {what}") from None

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

    async def all_up(self) -> bool:
        """Whether all nodes run what is wanted."""
        status = await self.get("/v1/status")
        return bool(status and status["nodes"]["converged"] >= len(self.nodes))

    async def all_follow(self) -> bool:
        """Whether one head leads and the others have all that it has."""
        view = await self.get("/v1/heads")
        return bool(
            view
            and view["leader"]
            and len(view["heads"]) == len(self.heads)
            and all(h["entry"] == view["entry"] and not h["trouble"] for h in view["heads"])
        )

    # -- what people do

    async def change(self, register: str, method: str, path: str, body: dict[str, Any]) -> str:
        """One change, at whoever serves; what became of it."""
        value = body["set"]["kernel_args"]
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
            *(self._change_one(node) for node in pools), self._change_many(many), self._cycle()
        )

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

    async def values(self) -> dict[str, str] | None:
        """What the registers are now."""
        said = await self.get("/v1/inventory/show")
        if said is None:
            return None
        nodes = yaml.safe_load(said["yaml"])["nodes"] if "yaml" in said else said["nodes"]
        found = {
            name: str(entry.get("kernel_args", "")) if isinstance(entry, dict) else ""
            for name, entry in nodes.items()
        }
        group = {found[name] for name in self.nodes[10:22]}
        if len(group) > 1:
            self.checker.fault("lost", f"a change of many is done in part: {sorted(group)}")
        return {**found, "many": group.pop()}

    # -- rounds

    async def round(self, fault: Callable[[Site], Awaitable[None]]) -> float:
        """One; how long it took until a change was accepted after the fault."""
        self.checker.begin_round()
        self.changing = True
        people = asyncio.create_task(self.people())
        await asyncio.sleep(self.dice.uniform(0.5, 1.5))
        await fault(self)
        ended = boottime()

        async def accepted() -> bool:
            body = {"set": {"kernel_args": f"v{next(self._numbers)}"}}
            node = self.nodes[3]
            return await self.change(node, "PATCH", f"/v1/nodes/{node}", body) == "acknowledged"

        try:
            await self.until(accepted, "a change is accepted")
            recovered = boottime() - ended
        finally:
            self.changing = False
            await people
        await self.until(self.all_follow, "all heads follow")
        await self.until(self.all_up, "all nodes are up")
        values = await self.values()
        assert values is not None
        self.checker.seen(values)
        self.checker.end_round()
        return recovered


# -- what breaks


async def _leader(site: Site) -> HeadUnderTest:
    return await site.leader() or site.heads[0]


async def kill_leader(site: Site) -> None:
    """kill -9 of the head that leads."""
    head = await _leader(site)
    head.signal(signal.SIGKILL)
    await asyncio.sleep(site.dice.uniform(0.0, 2 * TTL_S))
    head.process.start()


async def stop_leader(site: Site) -> None:
    """It is suspended for twice its lease's time."""
    head = await _leader(site)
    head.signal(signal.SIGSTOP)
    await asyncio.sleep(2 * TTL_S)
    head.signal(signal.SIGCONT)


async def _line(heads: list[HeadUnderTest], line: Line, seconds: float) -> None:
    for head in heads:
        head.lines.become(line)
    await asyncio.sleep(seconds)
    for head in heads:
        head.lines.become(Line.WHOLE)


async def cut_leader(site: Site) -> None:
    """It does not reach the store for longer than its lease lasts."""
    await _line([await _leader(site)], Line.SILENT, 2 * TTL_S)


async def cut_leader_shortly(site: Site) -> None:
    """It does not reach the store for a moment."""
    await _line([await _leader(site)], Line.CUT, site.dice.uniform(0.1, TTL_S - 1))


async def lose_answers(site: Site) -> None:
    """What it asks the store for is done, and no answer comes back."""
    await _line([await _leader(site)], Line.DEAF, site.dice.uniform(1, 3 * TTL_S))


async def slow_store(site: Site) -> None:
    """Each piece that goes between heads and store takes 0.3 s."""
    await _line(site.heads, Line.SLOW, LASTS_S)


async def cut_followers(site: Site) -> None:
    """The followers do not reach the store."""
    leader = await _leader(site)
    await _line([h for h in site.heads if h is not leader], Line.SILENT, LASTS_S)


async def cut_all(site: Site) -> None:
    """No head reaches the store."""
    await _line(site.heads, Line.SILENT, 2 * TTL_S)


async def kill_member(site: Site) -> None:
    """A member of the store is killed."""
    site.members.kill(site.dice.randrange(3))
    await asyncio.sleep(LASTS_S)
    await asyncio.to_thread(site.members.start_missing)


async def slow_disk(site: Site) -> None:
    """A member stands still for a second, again and again."""
    for _ in range(3):
        number = site.dice.randrange(3)
        site.members.suspend(number)
        await asyncio.sleep(1.0)
        site.members.resume(number)


async def lose_quorum(site: Site) -> None:
    """Two members are killed and come back."""
    gone = site.dice.sample(range(3), 2)
    site.members.kill(*gone)
    await asyncio.sleep(site.dice.uniform(1, 3 * TTL_S))
    await asyncio.to_thread(site.members.start_missing)


async def all_heads_off(site: Site) -> None:
    """All heads are killed, and started again in any order."""
    for head in site.heads:
        head.signal(signal.SIGKILL)
    for head in site.dice.sample(site.heads, len(site.heads)):
        await asyncio.sleep(site.dice.uniform(0.0, 1.0))
        head.process.start()


async def all_off(site: Site) -> None:
    """All heads and all members are killed."""
    for head in site.heads:
        head.signal(signal.SIGKILL)
    site.members.kill()
    await asyncio.to_thread(site.members.start_missing)
    for head in site.heads:
        head.process.start()


async def quota(site: Site) -> None:
    """The store says that its quota is reached."""
    await _alarm(site, "ACTIVATE")
    await asyncio.sleep(LASTS_S)
    await _alarm(site, "DEACTIVATE")


async def _alarm(site: Site, action: str) -> None:
    async with aiohttp.ClientSession() as client:
        where = f"{site.members.endpoints[0]}/v3"
        async with client.post(f"{where}/cluster/member/list", json={}) as answer:
            members = [one["ID"] for one in (await answer.json())["members"]]
        for member in members:
            body = {"action": action, "memberID": member, "alarm": "NOSPACE"}
            async with client.post(f"{where}/maintenance/alarm", json=body) as answer:
                await answer.read()


async def put_back(site: Site) -> None:
    """The whole store is put back as it was some changes ago; the newest head is promoted."""
    kept = site.play.directory / "backup"
    site.members.kill()
    for member in site.members.members:
        shutil.copytree(member.directory, kept / member.name)
    await asyncio.to_thread(site.members.start_missing)
    await asyncio.sleep(LASTS_S)
    site.members.kill()
    for member in site.members.members:
        shutil.rmtree(member.directory)
        (kept / member.name).rename(member.directory)
    await asyncio.to_thread(site.members.start_missing)
    site.changing = False  # people see that no head leads

    async def promoted() -> bool:
        if await site.leader() is not None:
            return True
        entries = Counter[str]()
        for head in site.heads:
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError, ValueError):
                _, view = await head.request("GET", "/v1/heads")
                entries.update({h["head"]: h["entry"] for h in view.get("heads", ())})
                newest = max(entries, key=lambda name: entries[name])
                if len(view.get("heads", ())) == len(site.heads) and newest == head.name:
                    await head.request("POST", "/v1/heads/promote", {"head": newest})
                entries.clear()
        return False

    await site.until(promoted, "a head was promoted")


FAULTS = {
    one.__name__: one
    for one in (
        kill_leader, stop_leader, cut_leader, cut_leader_shortly, lose_answers, slow_store,
        cut_followers, cut_all, kill_member, slow_disk, lose_quorum, all_heads_off, all_off, quota,
        put_back,
    )
}  # fmt: skip


async def run(arguments: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """All rounds; the figures."""
    namespace.set_up()
    raise_file_limit()
    dice = random.Random(arguments.seed)
    options = Options(
        directory=str(directory),
        nodes=arguments.nodes,
        heads=arguments.heads,
        firmware_s=0.5,
        kernel_s=0.2,
        changes=dict(FAST),
    )
    site = Site(build_play(options, Screen()), dice)
    took: dict[str, list[float]] = defaultdict(list)
    found: dict[str, Counter[str]] = defaultdict(Counter)
    try:
        await site.start()
        names = arguments.only or list(FAULTS)
        order = [
            name for _ in range(0, arguments.rounds, len(names)) for name in _mixed(names, dice)
        ]
        for name in order[: arguments.rounds]:
            before = Counter(site.checker.faults)
            try:
                took[name].append(await site.round(FAULTS[name]))
            except TimeoutError as error:
                site.checker.fault("stuck", f"after {name}: {error}")
            found[name] += site.checker.faults - before
            print(name, [round(t, 1) for t in took[name][-1:]], dict(found[name]), flush=True)
            if site.checker.faults["stuck"]:
                break
    finally:
        await site.stop()
        if arguments.logs:
            for log in [*directory.glob("*.log"), *directory.glob("head*/head.log")]:
                name = str(log.relative_to(directory)).replace("/", "-")
                shutil.copy(log, Path(arguments.logs) / name)
    return _shown(site, took, found)


def _mixed(names: list[str], dice: random.Random) -> list[str]:
    return dice.sample(names, len(names))


def _shown(
    site: Site, took: dict[str, list[float]], found: dict[str, Counter[str]]
) -> dict[str, Any]:
    kinds = ("lost", "refused_done", "done_twice", "touched", "two_at_once", "stuck")
    print(
        f"{'fault':<20}{'rounds':>7}{'recovered_s (most)':>20}" + "".join(f"{k:>14}" for k in kinds)
    )
    for name in sorted(found):
        most = f"{max(took[name], default=float('nan')):.1f}"
        counts = "".join(f"{found[name][kind]:>14}" for kind in kinds)
        print(f"{name:<20}{len(took[name]):>7}{most:>20}{counts}")
    for text in site.checker.said[:40]:
        print(text)
    seen = {key: site.checker.counts[key] for key in sorted(site.checker.counts)}
    return {**{kind: site.checker.faults[kind] for kind in kinds}, "seen": seen}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--heads", type=int, default=2, choices=(2, 3))
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--only", action="append", choices=sorted(FAULTS))
    parser.add_argument("--logs", default="", help="a directory that the logs are left in")
    parser.add_argument("--inside", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.inside:
        with tempfile.TemporaryDirectory(prefix="layercake-chaos-") as directory:
            words = [sys.executable, "-m", "tests.bench.chaos", *sys.argv[1:], "--inside"]
            return subprocess.run(namespace.command([*words, directory]), check=False).returncode
    result = asyncio.run(run(arguments, Path(arguments.inside)))
    print(json.dumps(result))
    return int(any(value for key, value in result.items() if key != "seen"))


if __name__ == "__main__":
    sys.exit(main())
