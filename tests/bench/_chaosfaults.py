"""What breaks in `chaos`, each in the middle of what people do: it begins, and is over when it
returns."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path

import aiohttp

from layercake.heads.leadership import TTL_S
from layercake.sim.fleet.etcd import clear
from layercake.sim.site import HeadProcess
from tests.bench._chaossite import HeadUnderTest, Site
from tests.bench._storelines import Line
from tests.support.disk import frozen, full

LASTS_S = 4.0
MINUTES_S = 600.0
YEARS_S = 3 * 365 * 86400.0
CLOCK_S = 2.5
"""A clock that steps is looked at each second."""


async def _leader(site: Site) -> HeadUnderTest:
    return await site.leader() or site.heads[0]


async def kill_leader(site: Site) -> None:
    """kill -9 of the head that leads."""
    head = await _leader(site)
    head.signal(signal.SIGKILL)
    await asyncio.sleep(site.dice.uniform(0.0, 2 * TTL_S))
    head.start()


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
        head.start()


async def all_off(site: Site) -> None:
    """All heads and all members are killed."""
    for head in site.heads:
        head.signal(signal.SIGKILL)
    site.members.kill()
    await asyncio.to_thread(site.members.start_missing)
    for head in site.heads:
        head.start()


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


def _keep(site: Site, number: int) -> Path:
    """A backup of what a member has, which does not run."""
    directory = site.members.members[number].directory
    kept = site.base / "backup" / directory.name
    shutil.copytree(directory, kept, ignore=shutil.ignore_patterns("lost+found"))
    return kept


def _put_back(site: Site, number: int, kept: Path) -> None:
    directory = site.members.members[number].directory
    clear(directory)
    shutil.copytree(kept, directory, dirs_exist_ok=True)
    shutil.rmtree(kept)


async def put_back(site: Site) -> None:
    """The whole store is put back as it was some changes ago; the newest head is promoted."""
    site.members.kill()
    kept = [await asyncio.to_thread(_keep, site, number) for number in range(3)]
    await asyncio.to_thread(site.members.start_missing)
    await asyncio.sleep(LASTS_S)
    site.members.kill()
    for number in range(3):
        await asyncio.to_thread(_put_back, site, number, kept[number])
    await asyncio.to_thread(site.members.start_missing)
    site.changing = False  # people see that no head leads

    async def promoted() -> bool:
        if await site.accepts():
            return True
        entries = Counter[str]()
        for head in site.heads:
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError, ValueError):
                _, view = await head.request("GET", "/v1/heads")
                entries.update({h["head"]: h["entry"] for h in view.get("heads", ())})
                newest = max(entries, key=lambda name: entries[name])
                if len(view.get("heads", ())) == len(site.heads) and newest == head.name:
                    await head.request("POST", "/v1/heads/promote", {"head": newest, "force": True})
                entries.clear()
        return False

    await site.until(promoted, "a head was promoted")


async def member_put_back(site: Site) -> None:
    """One member alone is put back as it was some changes ago. It is replaced if it does not come
    up."""
    number = site.dice.randrange(3)
    site.members.kill(number)
    kept = await asyncio.to_thread(_keep, site, number)
    await asyncio.to_thread(site.members.start_missing)
    await asyncio.sleep(LASTS_S)
    site.members.kill(number)
    await asyncio.to_thread(_put_back, site, number, kept)
    site.members.start(number)
    await asyncio.sleep(LASTS_S)
    if not (site.members.runs(number) and await asyncio.to_thread(site.members.answers, number)):
        site.checker.counts["members replaced"] += 1
        await asyncio.to_thread(site.members.replace, number)


async def unknown_error(site: Site) -> None:
    """The store does half of what heads ask for, and answers with an error that nobody knows."""
    await _line(site.heads, Line.ODD, site.dice.uniform(1, 2 * TTL_S))


async def cut_from_nodes(site: Site) -> None:
    """Nothing goes between the head that leads and nodes or other heads; it reaches the store."""
    address = (await _leader(site)).address
    ways = ["route", f"blackhole {address}"], ["rule", f"from {address} blackhole"]
    for what, way in ways:
        await asyncio.to_thread(_ip, what, "add", way)
    await asyncio.sleep(site.dice.uniform(TTL_S, 4 * TTL_S))
    for what, way in ways:
        await asyncio.to_thread(_ip, what, "del", way)


def _ip(what: str, verb: str, way: str) -> None:
    subprocess.run(["ip", what, verb, *way.split()], check=True)


async def behind_leads(site: Site) -> None:
    """The followers are cut off for long; as they are back, the head that leads is killed."""
    leader = await _leader(site)
    others = [head for head in site.heads if head is not leader]
    await _line(others, Line.SILENT, 2 * TTL_S)
    leader.signal(signal.SIGKILL)
    await asyncio.sleep(2 * TTL_S)
    leader.start()


async def clock_steps(site: Site) -> None:
    """The clocks of all heads step by minutes and by years, each by itself, there and back."""
    for _ in range(3):
        for head in site.heads:
            head.clock.step(site.dice.choice([-YEARS_S, -MINUTES_S, 0.0, MINUTES_S, YEARS_S]))
        await asyncio.sleep(CLOCK_S)
    if site.dice.random() < 0.5:
        (await _leader(site)).signal(signal.SIGKILL)  # the next one leads by another clock
        await asyncio.sleep(2 * TTL_S)
    for head in site.heads:
        head.clock.step(0.0)
        head.start()
    await asyncio.sleep(CLOCK_S)


# -- disks


async def _full(site: Site, *directories: Path) -> None:
    with ExitStack() as stack:
        for directory in directories:
            await asyncio.to_thread(stack.enter_context, full(directory))
        await asyncio.sleep(2 * TTL_S)


async def full_disk_leader(site: Site) -> None:
    """The disk of the head that leads is full."""
    await _full(site, (await _leader(site)).directory)


async def full_disk_follower(site: Site) -> None:
    """The disks of the followers are full, and then the head that leads is killed."""
    leader = await _leader(site)
    await _full(site, *(head.directory for head in site.heads if head is not leader))
    leader.signal(signal.SIGKILL)
    await asyncio.sleep(site.dice.uniform(0.0, 2 * TTL_S))
    leader.start()


async def full_disk_all(site: Site) -> None:
    """The disks of all heads are full, and one of them is started again meanwhile."""
    one = site.dice.choice(site.heads)
    with ExitStack() as stack:
        for head in site.heads:
            await asyncio.to_thread(stack.enter_context, full(head.directory))
        await asyncio.sleep(LASTS_S)
        one.signal(signal.SIGKILL)
        await asyncio.sleep(1.0)
        one.start()
        await asyncio.sleep(2 * TTL_S)


async def full_disk_member(site: Site) -> None:
    """The disk of a member of the store is full, or of two; those that end of it are started again
    when there is room."""
    numbers = site.dice.sample(range(3), site.dice.choice([1, 2]))
    await _full(site, *(site.members.members[number].directory for number in numbers))
    for number in numbers:
        if not site.members.runs(number):
            site.checker.counts["members ended by a full disk"] += 1
            site.members.kill(number)
    await asyncio.to_thread(site.members.start_missing)


async def _frozen(site: Site, directory: Path, seconds: float) -> None:
    with frozen(directory):
        await asyncio.sleep(seconds)


async def slow_disk_leader(site: Site) -> None:
    """The disk of the head that leads stands still for a second, again and again, and then for
    longer than its lease lasts."""
    directory = (await _leader(site)).directory
    for seconds in (1.0, 1.0, 2 * TTL_S):
        await _frozen(site, directory, seconds)
        await asyncio.sleep(1.0)


async def slow_disk_follower(site: Site) -> None:
    """The disks of the followers stand still, and then the head that leads is killed."""
    leader = await _leader(site)
    for head in site.heads:
        if head is not leader:
            await _frozen(site, head.directory, 2 * TTL_S)
    leader.signal(signal.SIGKILL)
    await asyncio.sleep(2 * TTL_S)
    leader.start()


# -- heads that are others than they should be


async def next_version(site: Site) -> None:
    """Heads go to the next version, one by one and in any order: it keeps its database in another
    form. Those of both versions lead."""
    environment = await asyncio.to_thread(site.versions.make_next)
    for head in site.dice.sample(site.heads, len(site.heads)):
        await asyncio.to_thread(head.process.stop)
        head.process.environment |= environment
        head.start()
        await asyncio.sleep(site.dice.uniform(1.0, 3 * TTL_S))


async def one_identity(site: Site) -> None:
    """A copy of a head's disk is started on another machine, as head of the same name beside it."""
    one = site.dice.choice(site.heads)
    one.signal(signal.SIGKILL)
    directory = site.base / "twin"
    words = ["cp", "-ax", str(one.directory), str(directory)]
    await asyncio.to_thread(subprocess.run, words, check=True)
    twin = HeadUnderTest("twin", directory, HeadProcess(directory), site.base / "clocks")
    twin.move(os.fspath(directory / "api.sock"), 9)
    site.checker.watch("twin", directory)
    await site.connect(twin)
    one.start()
    twin.start()
    site.heads.append(twin)
    try:
        await asyncio.sleep(2 * TTL_S)
        (await _leader(site)).signal(signal.SIGKILL)
        await asyncio.sleep(3 * TTL_S)
    finally:
        site.heads.remove(twin)
        twin.signal(signal.SIGKILL)
        await asyncio.to_thread(twin.process.stop)
        twin.lines.close()
        shutil.rmtree(directory)
    for head in site.heads:
        head.start()


FAULTS: dict[str, Callable[[Site], Awaitable[None]]] = {
    one.__name__: one
    for one in (
        kill_leader, stop_leader, cut_leader, cut_leader_shortly, lose_answers, slow_store,
        unknown_error, cut_followers, cut_from_nodes, cut_all, kill_member, slow_disk, lose_quorum,
        all_heads_off, all_off, quota, put_back, member_put_back, behind_leads, clock_steps,
        full_disk_leader, full_disk_follower, full_disk_all, full_disk_member, slow_disk_leader,
        slow_disk_follower, next_version, one_identity,
    )
}  # fmt: skip
NEED_DISKS = {name for name in FAULTS if "full_disk" in name or "slow_disk_" in name}
