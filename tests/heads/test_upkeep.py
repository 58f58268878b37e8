"""The store's members are looked after: a real etcd that is full gets room again, also where nobody
can lead; a slow disk and a member that stands still are seen."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path

import pytest

from layercake.base.lease import Lease
from layercake.heads.etcd import NO_SPACE, Etcd, MemberStatus, StoreRefused, put_key
from layercake.heads.member import Member
from layercake.heads.settings import DIRECTORY, KEY, HeadsSettings
from layercake.heads.site import SharedSite
from layercake.heads.upkeep import ELSEWHERE_S, FSYNC_S, ROOM_S, StoreUpkeep, quantile_between
from tests.heads.test_store import LINK, REACHED
from tests.support.clock import FakeClock
from tests.support.etcd import EtcdMembers, etcd_members, free_ports

QUOTA = 6 << 20
VALUE = bytes(range(256)) * 256


@pytest.fixture
def small(tmp_path: Path) -> Iterator[EtcdMembers]:
    """Three members that are soon full."""
    with etcd_members(tmp_path, quota_bytes=QUOTA) as found:
        yield found


@pytest.fixture
async def store(small: EtcdMembers) -> AsyncIterator[Etcd]:
    found = Etcd(small.endpoints)
    yield found
    await found.close()


async def fill(store: Etcd, keys: Iterable[int]) -> None:
    """Writes these keys until nothing more is taken."""
    with pytest.raises(StoreRefused, match="space exceeded"):
        for number in keys:
            await store.transaction((), [put_key(b"/k%d" % number, VALUE)])
    while NO_SPACE not in {alarm for _, alarm in await store.alarms()}:
        await asyncio.sleep(0.05)


async def test_a_full_store_gets_its_room_back(store: Etcd, tmp_path: Path) -> None:
    await fill(store, itertools.repeat(0))
    upkeep = StoreUpkeep(store, tmp_path, "", FakeClock())
    await upkeep.make_room()
    assert upkeep.rooms_made == 1 and await store.alarms() == []
    statuses = await store.statuses()
    assert len(statuses) == 3 and max(one.bytes_all for one in statuses) < QUOTA // 2
    assert (await store.read(b"/k0"))[0].value == VALUE
    for _ in range(3):
        await store.transaction((), [put_key(b"/k0", VALUE)])


async def test_the_machine_of_the_head_that_acts_does_not_lead_the_store_besides(
    small: EtcdMembers, store: Etcd, tmp_path: Path
) -> None:
    async def leader() -> str:
        return next((one.endpoint for one in await store.statuses() if one.leader), "")

    async with asyncio.timeout(60):
        while not (own := await leader()):
            await asyncio.sleep(0.1)
        clock = FakeClock()
        upkeep = StoreUpkeep(store, tmp_path, own, clock)
        await upkeep.look_after(acts=False)
        assert await leader() == own, "a head that follows leaves it as it is"
        gone = next(n for n, one in enumerate(small.members) if one.client_url != own)
        small.kill(gone)
        await upkeep.look_after(acts=True)
        assert await leader() == own, "not while a member is down"
        small.start(gone)
        small.wait(gone)
        while await leader() == own:  # it has to be known how fast the others' disks are
            await store.transaction((), [put_key(b"/k", VALUE)])
            clock.now += max(ELSEWHERE_S, FSYNC_S)
            await upkeep.look_after(acts=True)


async def test_a_store_whose_quota_is_too_small_is_tried_once_a_minute(
    store: Etcd, tmp_path: Path
) -> None:
    clock = FakeClock()
    upkeep = StoreUpkeep(store, tmp_path, "", clock)
    keys = itertools.count()
    made = -1
    while made != upkeep.rooms_made:
        made = upkeep.rooms_made
        clock.now += ROOM_S
        await fill(store, keys)
        await upkeep.make_room()
    await fill(store, keys)
    await upkeep.make_room()
    assert await store.alarms(), "not again so soon"
    clock.now += ROOM_S
    await upkeep.make_room()
    assert await store.alarms() == []


async def test_a_head_that_cannot_lead_as_the_store_is_full_makes_room_and_leads(
    store: Etcd, small: EtcdMembers, tmp_path: Path
) -> None:
    await fill(store, itertools.repeat(0))
    (tmp_path / DIRECTORY).mkdir()
    (tmp_path / DIRECTORY / KEY).write_bytes(bytes(32))
    settings = HeadsSettings("head1", small.endpoints)
    power = Lease(tmp_path, write=True)
    site = SharedSite(tmp_path, settings, "", REACHED, tmp_path / "layercake.db", power, LINK)
    site.begin()
    try:
        await asyncio.wait_for(site.lead(lambda: None), 60)
        assert site.upkeep.rooms_made == 1 and site.lease_s > 0.0 and not site.refuses
    finally:
        await site.close()


async def test_a_member_that_stands_still_is_down_and_the_others_answer(
    members: EtcdMembers,
) -> None:
    store = Etcd(members.endpoints)
    members.suspend(1)
    try:
        statuses = {one.endpoint: one for one in await store.statuses()}
        await store.transaction((), [put_key(b"/alive", b"1")])
    finally:
        members.resume(1)
        await store.close()
    assert [endpoint for endpoint, one in statuses.items() if one.trouble] == [members.endpoints[1]]


def test_of_what_is_counted_that_in_between_is_told() -> None:
    before = [(0.001, 90), (0.01, 100), (0.1, 100), (float("inf"), 100)]
    now = [(0.001, 90), (0.01, 102), (0.1, 110), (float("inf"), 110)]
    assert quantile_between(before, now, 0.9) == 0.1
    assert quantile_between(before, now, 0.1) == 0.01
    assert quantile_between(before, [(b, n + (b > 0.1)) for b, n in before], 0.9) == 0.1
    assert quantile_between(before, before, 0.9) == 0.0
    assert quantile_between(now, before, 0.9) == 0.0, "it was started anew"
    assert quantile_between([], now, 0.9) == quantile_between(before, [], 0.9) == 0.0


@pytest.mark.parametrize("slow", [False, True], ids=["fast", "slow"])
async def test_a_disk_that_writes_slowly_is_seen(tmp_path: Path, slow: bool) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("there is no strace: `make test` installs it")
    client, peer = (f"http://127.0.0.1:{port}" for port in free_ports(2))
    member = Member("one", tmp_path / "one", client, peer)
    late = ["-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:delay_exit=200000"]
    tracer = [strace, "-f", "-qq", "-o", "/dev/null", *late] if slow else []
    process = subprocess.Popen(
        [*tracer, *member.command({"one": peer}, existing=False)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    clock = FakeClock()
    store = Etcd([client])
    upkeep = StoreUpkeep(store, tmp_path, "", clock)
    try:
        async with asyncio.timeout(60):
            while (await store.statuses())[0].trouble:
                await asyncio.sleep(0.1)
        await upkeep.look_after(acts=True)
        for number in range(10):
            await store.transaction((), [put_key(b"/%d" % number, b"1")])
        clock.now += FSYNC_S
        await upkeep.look_after(acts=True)
        (found,) = await upkeep.statuses()
    finally:
        await store.close()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)
    assert (found.fsync_s > 0.128) is slow and found.fsync_s > 0.0


class _Counted(Etcd):
    """A store that counts how often its members are asked how they are."""

    def __init__(self) -> None:
        super().__init__(["http://127.0.0.1:1"])
        self.asked = 0

    async def statuses(self) -> list[MemberStatus]:
        self.asked += 1
        return [MemberStatus("http://127.0.0.1:1", raft_index=self.asked)]


async def test_members_are_asked_again_when_what_is_known_is_too_old(tmp_path: Path) -> None:
    clock = FakeClock()
    upkeep = StoreUpkeep(_Counted(), tmp_path, "", clock)
    seen = []
    for age_s, passes_s in ((5.0, 4.9), (5.0, 0.2), (5.0, 0.0), (0.0, 0.0), (5.0, 0.0)):
        seen.append((await upkeep.statuses(age_s))[0].raft_index)
        clock.now += passes_s
    assert seen == [1, 1, 2, 3, 3]
