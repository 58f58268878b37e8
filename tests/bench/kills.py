"""Kills a head many times while people change what is wanted, on a disk that is full now and then.
A fault is an acknowledged change that a later head does not have, or a refused one that was carried
out or is on disk; there must be none. One JSON object last.

    python -m tests.bench.kills [--kills 300] [--seed N]

As root the data directory is a small file system of its own, which is filled up at random;
otherwise nothing is refused.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp

from tests.bench._killhead import SOCKET, begin_life
from tests.support.disk import mounted

WAIT_S = 60.0
NODES = 10
NEW = -1
STATES, IMAGES, ROLLS = (
    range(4),
    range(4, 6),
    range(6, 8),
)  # the nodes of each writer; the others come and go


def inventory(extra: int, states: dict[str, str], images: dict[str, str]) -> str:
    """So many nodes, those of the writers first, as they are wanted now."""

    def line(number: int) -> str:
        name = f"n{number}"
        return (
            f'  {name}: {{mac: "52:54:00:00:02:{number:02x}", ip: 10.1.0.{10 + number}, images: '
            f"[{images.get(name, 'one')}], "
            f"state: {states.get(name, 'up')}}}"
        )

    return "\n".join(["nodes:", *(line(n) for n in range(NODES + extra))])


class People:
    """Who asks the head for changes, and remembers what it said. `known` is what is so for sure;
    `open` what may be so instead: the head was killed before it answered."""

    def __init__(self, outside: Path, dice: random.Random) -> None:
        self.outside, self.dice = outside, dice
        self.known: dict[str, Any] = {}
        self.open: dict[str, list[Any]] = {}
        self.count: Counter[str] = Counter()
        self.faults: list[str] = []
        self.ordered: Counter[str] = Counter()
        """How often each node was ordered off by force, and it was not refused."""

    async def ask(
        self, client: aiohttp.ClientSession, key: str, value: Any, path: str, body: dict[str, Any]
    ) -> Any:
        """Asks for a change that makes `key` be `value`. None if it was refused."""
        self.open[key] = [value]
        async with client.post(f"http://head{path}", json=body) as answer:
            said = await answer.json()
        del self.open[key]
        if answer.status == 200:
            self.known[key] = value
            self.count["acknowledged"] += 1
            return said
        if answer.status not in (502, 403):
            self.faults.append(f"{path} {body}: {answer.status} {said}")
        self.count["refused"] += 1
        return None

    def forced(self, name: str) -> int:
        """How often a node was forced off so far."""
        with contextlib.suppress(FileNotFoundError):
            return sum(
                line.split()[0] == name
                for line in set((self.outside / "done").read_text().splitlines())
            )
        return 0

    async def states(self, client: aiohttp.ClientSession, number: int) -> None:
        """Switches a node on and off, sometimes by force."""
        name = f"n{number}"
        state, force = self.dice.choice(("up", "off")), self.dice.random() < 0.5
        body = {"range": name, "state": state, "force": force}
        orders = state == "off" and force
        self.ordered[name] += orders
        answer = await self.ask(client, f"state {name}", state, "/v1/nodes/state", body)
        if answer is None:
            self.ordered[name] -= orders
        if self.forced(name) > self.ordered[name]:
            self.faults.append(f"{name} was forced off, which was refused")

    async def images(self, client: aiohttp.ClientSession, number: int) -> None:
        """Moves a node to another image at once."""
        image = self.dice.choice(("one", "two"))
        await self.ask(
            client,
            f"images n{number}",
            [image],
            "/v1/images/roll",
            {"range": f"n{number}", "image": image},
        )

    async def rolls(self, client: aiohttp.ClientSession, number: int) -> None:
        """Begins a roll of a node, or ends it; it may have ended by itself."""
        key = f"roll n{number}"
        roll, state = self.known.get(key, (0, ""))
        if state == "begun" and self.dice.random() < 0.5:
            await self.ask(client, key, (roll, "aborted"), f"/v1/rolls/{roll}/abort", {})
        else:
            said = await self.ask(
                client, key, (NEW, "begun"), "/v1/rolls", {"range": f"n{number}", "image": "two"}
            )
            if said is not None:
                self.known[key] = (said["roll"]["id"], "begun")

    async def inventories(self, client: aiohttp.ClientSession) -> None:
        """Nodes come and go."""
        count = self.dice.randrange(4)
        states = {
            key.split()[1]: value for key, value in self.known.items() if key.startswith("state ")
        }
        images = {
            key.split()[1]: value[0]
            for key, value in self.known.items()
            if key.startswith("images ")
        }
        body = {"yaml": inventory(count, states, images), "file": "site.yaml", "allow_remove": True}
        await self.ask(client, "nodes", NODES + count, "/v1/inventory/apply", body)

    # -- what is so

    async def check(self, client: aiohttp.ClientSession) -> None:
        """Compares what the head has with what it said; from then on that is known."""
        async with client.get("http://head/v1/nodes") as answer:
            nodes = {n["name"]: n for n in (await answer.json())["nodes"]}
        async with client.get("http://head/v1/rolls?limit=100") as answer:
            rolls = (await answer.json())["rolls"]
        found: dict[str, Any] = {"nodes": len(nodes)} | {f"roll n{n}": (0, "") for n in ROLLS}
        for n in STATES:
            found[f"state n{n}"] = nodes[f"n{n}"]["wanted"]
        for n in (*IMAGES, *ROLLS):
            found[f"images n{n}"] = [i["name"] for i in nodes[f"n{n}"]["images"]["wanted"]]
        for roll in reversed(rolls):  # the newest last
            async with client.get(f"http://head/v1/rolls/{roll['id']}?nodes=all") as answer:
                members = (await answer.json())["roll"]["nodes"]
            found[f"roll {members[0]['name']}"] = (
                roll["id"],
                "aborted" if roll["state"] == "aborted" else "begun",
            )
        for key, value in found.items():
            self.compare(key, value)
        self.known, self.open = found, {}

    def compare(self, key: str, value: Any) -> None:
        """One fact: it is what was acknowledged last, or what was being asked for when the head was
        killed."""
        if value == self.known.get(key, value) or value in self.open.get(key, ()):
            return
        if key.startswith("images ") and int(key[8:]) in ROLLS:
            return  # a roll changes them by itself
        if (
            key.startswith("roll ")
            and (NEW, "begun") in self.open.get(key, ())
            and value[0] > self.known[key][0]
        ):
            return  # one that was begun, and nobody was told its number
        self.faults.append(
            f"{key}: the head has {value}, it said {self.known[key]}, open {self.open.get(key)}"
        )


async def keep_asking(
    people: People, client: aiohttp.ClientSession, turn: Callable[[], Any]
) -> None:
    """One person, until the head is gone."""
    with contextlib.suppress(aiohttp.ClientError, OSError):
        while True:
            await turn()
            await asyncio.sleep(people.dice.random() * 0.005)


async def fill_at_random(data: Path, dice: random.Random) -> None:
    """The disk is full for some milliseconds, again and again."""
    filler = data / "filler"
    while True:
        await asyncio.sleep(dice.random() * 0.06)
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(65536))
        await asyncio.sleep(dice.random() * 0.03)
        filler.unlink()


async def life(people: People, data: Path, pid: int, *, fill: bool) -> None:
    """One life of a head: what it has is checked, then it is asked for changes until it is killed
    at a random moment."""
    dice, ready = people.dice, time.monotonic() + WAIT_S
    client = aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(people.outside / SOCKET)))
    async with client:
        while True:
            with contextlib.suppress(aiohttp.ClientError, OSError):
                await people.check(client)
                break
            assert time.monotonic() < ready, (people.outside / "log").read_text()
            await asyncio.sleep(0.002)
        turns: list[Callable[[], Any]] = [lambda: people.inventories(client)]
        if dice.random() < 0.8:
            turns = [lambda n=n: people.states(client, n) for n in STATES]  # type: ignore[misc]
            turns += [lambda n=n: people.images(client, n) for n in IMAGES]  # type: ignore[misc]
            turns += [lambda n=n: people.rolls(client, n) for n in ROLLS]  # type: ignore[misc]
        tasks = [asyncio.ensure_future(keep_asking(people, client, turn)) for turn in turns]
        filling = asyncio.ensure_future(fill_at_random(data, dice)) if fill else None
        await asyncio.sleep(dice.random() * 0.25)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        await asyncio.gather(*tasks)
        if filling is not None:
            filling.cancel()
            await asyncio.gather(filling, return_exceptions=True)
        (data / "filler").unlink(missing_ok=True)


def prepare(data: Path, outside: Path) -> None:
    """The images, and the first inventory."""
    from imageapi.store.store import ImageStore

    for name in ("one", "two"):
        (outside / name).write_bytes(b"hsqs" + name.encode())
        ImageStore(data / "images").add(outside / name, name, {"systemd": False})


async def first(people: People, pid: int) -> None:
    """The first head gets its nodes, and is killed right after the answer."""
    async with aiohttp.ClientSession(
        connector=aiohttp.UnixConnector(str(people.outside / SOCKET))
    ) as client:
        while not (people.outside / SOCKET).exists():
            await asyncio.sleep(0.01)
        await people.ask(
            client,
            "nodes",
            NODES,
            "/v1/inventory/apply",
            {"yaml": inventory(0, {}, {}), "file": "site.yaml"},
        )
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def killed(data: Path, outside: Path, kills: int, seed: int, *, fill: bool) -> People:
    """Kills so many heads."""
    people = People(outside, random.Random(seed))
    prepare(data, outside)
    asyncio.run(first(people, begin_life(data, outside)))
    for _ in range(kills - 1):
        while (
            people.dice.random() < 0.1
        ):  # one that is killed before anybody could ask it for something
            early = begin_life(data, outside)
            time.sleep(people.dice.random() * 0.1)
            os.kill(early, signal.SIGKILL)
            os.waitpid(early, 0)
            people.count["killed early"] += 1
        (outside / SOCKET).unlink(missing_ok=True)
        asyncio.run(life(people, data, begin_life(data, outside), fill=fill))
        people.count["kills"] += 1
    last = begin_life(data, outside)
    asyncio.run(life(people, data, last, fill=False))
    people.count["kills"] += 2
    return people


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    asked = parser.parse_args()
    fill = os.geteuid() == 0
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kills-")))
        data, outside = base / "data", base / "outside"
        outside.mkdir()
        if fill:
            stack.enter_context(mounted(data, "-t", "tmpfs", "-o", "size=16m", "none"))
        else:
            data.mkdir()
        people = killed(data, outside, asked.kills, asked.seed, fill=fill)
    for fault in people.faults:
        print(fault)
    print(
        json.dumps(
            {
                "seed": asked.seed,
                "seconds": round(time.monotonic() - began, 1),
                **people.count,
                "faults": len(people.faults),
            }
        )
    )
    raise SystemExit(1 if people.faults else 0)


if __name__ == "__main__":
    main()
