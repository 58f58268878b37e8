"""Being the leader: what is written is in the log or refused, whatever becomes of the lease and of
the store; and power actions stop before anybody else can lead."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from layercake.base.clock import boottime
from layercake.base.lease import Lease, permit_of
from layercake.fleet.persistence.changes import Changes, TableChange, decode
from layercake.heads.etcd import Answer, Etcd, OutcomeUnknown, StoreAway, StoreRefused
from layercake.heads.leadership import MARGIN_S, TTL_S, Leadership, Won
from layercake.heads.log import End, Leader, Seal, SharedLog, Snapshot
from layercake.kraken.errors import Deposed, OperationFailed, Refused
from tests.heads.test_log import ME, OTHER
from tests.support.collectors import until
from tests.support.etcd import EtcdMembers


def change(name: str) -> Changes:
    return Changes(2, [TableChange("documents", [name], [[name, b"data"]])])


class Lossy(Etcd):
    """etcd over a network that loses answers: what was asked was done, and nobody is told. `passed`
    are told before that, and each of `refuses` is what comes then instead."""

    lost = 0
    passed = 0
    refuses: tuple[OperationFailed, ...] = ()

    async def transaction(self, *asked: object) -> Answer:
        answer = await super().transaction(*asked)  # type: ignore[arg-type]
        if self.passed:
            self.passed -= 1
        elif self.lost:
            self.lost -= 1
            raise StoreAway("the answer was lost")
        elif self.refuses:
            refused, *left = self.refuses
            self.refuses = tuple(left)
            raise refused
        return answer

    async def keep_alive(self, lease: int) -> int:
        if self.faulty:
            raise KeyError("result")
        left = await super().keep_alive(lease)
        if self.held is not None:
            self.waiting = True
            await self.held.wait()
        return left

    faulty = False
    waiting = False
    held: asyncio.Event | None = None
    """What an answer that is late waits for."""


class Leading:
    """A leader, its store and what it was told."""

    def __init__(self, members: EtcdMembers, prefix: str, directory: Path, me: Leader = ME) -> None:
        self.store = Lossy(members.endpoints)
        self.shared = SharedLog(self.store, prefix, Seal(bytes(32)))
        self.power = Lease(directory, write=True)
        self.me = me
        self.told: list[str] = []

    async def begin(self) -> Leadership:
        asked = boottime()
        state = await self.shared.state()
        lease = await self.store.grant(TTL_S)
        term = await self.shared.lead(state, self.me, lease)
        assert term is not None
        won = Won(term, lease, asked, state.end)
        self.lease = lease
        self.leads = Leadership(self.shared, self.me, won, self.power, self.told.append)
        self.keeping = asyncio.create_task(self.leads.keep_lease())
        return self.leads

    async def end(self) -> None:
        self.keeping.cancel()
        await asyncio.gather(self.keeping, return_exceptions=True)
        await self.store.close()

    async def written(self) -> list[str]:
        """The names of all documents in the log, in order."""
        end = (await self.shared.state()).end
        entries = await self.shared.entries(0, end.number)
        return [str(decode(e.data).tables[0].keys[0]) for e in entries]


@pytest.fixture
async def leading(members: EtcdMembers, prefix: str, tmp_path: Path) -> AsyncIterator[Leading]:
    made = Leading(members, prefix, tmp_path)
    await made.begin()
    yield made
    await made.end()


async def test_an_entry_whose_answer_was_lost_is_there_once(leading: Leading) -> None:
    await leading.leads.append(change("first"))
    leading.store.lost = 2
    end = await leading.leads.append(change("second"))
    await leading.leads.append(change("third"))
    assert await leading.written() == ["first", "second", "third"]
    assert end.number == 2


async def test_an_entry_is_whole_however_often_it_is_tried(leading: Leading) -> None:
    large = Changes(2, [TableChange("documents", ["large"], [["large", os.urandom(900_000)]])])
    leading.store.passed = 1  # the first part; the answer about the last one is lost
    leading.store.lost = 2
    await leading.leads.append(large)
    assert await leading.written() == ["large"]


async def test_what_is_refused_after_a_lost_answer_is_not_called_refused(leading: Leading) -> None:
    leading.store.lost = 1
    leading.store.refuses = (StoreRefused("mvcc: database space exceeded"),)
    assert (await leading.leads.append(change("there"))).number == 1
    assert await leading.written() == ["there"]


async def followed_in_the_middle(
    leading: Leading, members: EtcdMembers, prefix: str, directory: Path
) -> tuple[asyncio.Task[End], Leading]:
    """A change whose answers are lost until another head leads, and that head."""
    leading.store.lost = 10**9
    under_way = asyncio.create_task(leading.leads.append(change("mine")))
    await until(lambda: bool(leading.leads.trouble))
    await leading.store.revoke(leading.lease)
    (directory / "other").mkdir()
    other = Leading(members, prefix, directory / "other", OTHER)
    await other.begin()
    return under_way, other


async def test_a_change_that_was_done_is_not_refused_because_another_leads(
    leading: Leading, tmp_path: Path, members: EtcdMembers, prefix: str
) -> None:
    under_way, other = await followed_in_the_middle(leading, members, prefix, tmp_path)
    try:
        await other.leads.append(change("theirs"))
        leading.store.lost = 0
        assert (await under_way).number == 1
        assert await other.written() == ["mine", "theirs"]
        with pytest.raises(Deposed):
            await leading.leads.append(change("late"))
    finally:
        await other.end()


async def test_nobody_says_refused_where_it_cannot_be_known(
    leading: Leading, tmp_path: Path, members: EtcdMembers, prefix: str
) -> None:
    under_way, other = await followed_in_the_middle(leading, members, prefix, tmp_path)
    try:
        end = await other.leads.append(change("theirs"))
        assert await other.shared.keep_whole(
            other.leads.term, Snapshot(end.number, end.name), b"whole"
        )
        leading.store.lost = 0
        with pytest.raises(OutcomeUnknown, match="cannot say whether this was done"):
            await under_way
    finally:
        await other.end()


async def test_a_leader_whose_lease_cannot_be_kept_changes_nothing(leading: Leading) -> None:
    leading.store.faulty = True

    def refused() -> bool:
        try:
            leading.leads.check()
        except StoreAway as error:
            return "KeyError" in error.message
        return False

    await until(refused)
    with pytest.raises(Refused, match="does not lead"):
        leading.power.left_s()
    leading.store.faulty = False
    await until(lambda: not refused())


async def test_a_lease_counts_from_when_it_was_asked_for(leading: Leading) -> None:
    leading.store.held = asyncio.Event()
    await until(lambda: leading.store.waiting)
    asked = boottime()
    before = leading.leads.leads_until
    await until(lambda: boottime() > asked + 0.3)
    leading.store.held.set()
    await until(lambda: leading.leads.leads_until != before)
    assert leading.leads.leads_until <= asked + TTL_S - MARGIN_S


async def test_a_leader_that_was_stopped_for_a_while_changes_nothing_at_first(
    leading: Leading,
) -> None:
    leading.keeping.cancel()
    _, ends = leading.power.times()
    await until(lambda: boottime() > ends)
    with pytest.raises(StoreAway, match="was stopped for a while"):
        leading.leads.check()


async def test_a_lease_that_ended_is_taken_anew_and_nothing_is_lost(leading: Leading) -> None:
    await leading.leads.append(change("before"))
    epoch = leading.leads.epoch
    await leading.store.revoke(leading.lease)
    await leading.leads.append(change("after"))
    assert await leading.written() == ["before", "after"]
    assert leading.leads.epoch == epoch + 1
    assert leading.told == []


async def test_one_who_was_followed_by_another_writes_no_more(
    leading: Leading, tmp_path: Path, members: EtcdMembers, prefix: str
) -> None:
    await leading.leads.append(change("mine"))
    leading.keeping.cancel()
    await leading.store.revoke(leading.lease)
    (tmp_path / "other").mkdir()
    other = Leading(members, prefix, tmp_path / "other", OTHER)
    await other.begin()
    try:
        await other.leads.append(change("theirs"))
        with pytest.raises(Deposed, match="head2 leads"):
            await leading.leads.append(change("late"))
        assert leading.told == ["head2 leads"]
        with pytest.raises(Refused, match="does not lead"):
            permit_of(tmp_path)()
        assert await other.written() == ["mine", "theirs"]
    finally:
        await other.end()


async def test_handing_over_ends_it_at_once(leading: Leading, tmp_path: Path) -> None:
    await leading.leads.hand_over("head2")
    state = await leading.shared.state()
    assert (state.leader, state.successor) == (None, "head2")
    with pytest.raises(Deposed):
        leading.leads.check()
    with pytest.raises(Refused, match="does not lead"):
        permit_of(tmp_path)()


async def test_power_waits_first_and_stops_before_the_lease_can_end(
    leading: Leading, tmp_path: Path
) -> None:
    permit = permit_of(tmp_path)
    with pytest.raises(Refused, match="has just begun to lead"):
        permit()
    begins, ends = Lease(tmp_path).times()
    now = boottime()
    assert TTL_S < begins - now <= TTL_S + MARGIN_S
    assert ends - now <= TTL_S - MARGIN_S
    await until(lambda: Lease(tmp_path).times()[1] > ends)


async def test_a_store_that_is_away_refuses_changes_and_then_power(
    members: EtcdMembers, prefix: str, tmp_path: Path
) -> None:
    leading = Leading(members, prefix, tmp_path)
    leads = await leading.begin()
    try:
        await leads.append(change("before"))
        members.kill(0, 1)
        under_way = asyncio.create_task(leads.append(change("unsure")))
        await until(lambda: bool(leads.trouble))

        def refused() -> bool:
            try:
                leads.check()
            except StoreAway:
                return True
            return False

        await until(refused)
        with pytest.raises(Refused, match="does not lead"):
            Lease(tmp_path).left_s()
        assert leading.told == []
        members.start(0, 1)
        members.wait()
        await under_way
        await until(lambda: not refused())  # the lease is kept anew
        assert await leading.written() == ["before", "unsure"]
    finally:
        members.start_missing()
        await leading.end()


async def test_a_head_that_stops_does_not_wait_for_a_store_that_is_away(
    members: EtcdMembers, prefix: str, tmp_path: Path
) -> None:
    leading = Leading(members, prefix, tmp_path)
    leads = await leading.begin()
    leading.store.lost = 10**9
    leads.waits_until = boottime()
    with pytest.raises(StoreAway):
        await leads.append(change("unsure"))
    leading.store.lost = 0
    await leading.end()


def test_a_head_that_is_alone_has_a_permit_without_an_end(tmp_path: Path) -> None:
    assert permit_of(tmp_path)() == float("inf")


def test_the_end_of_a_log_is_none_at_first() -> None:
    assert End() == (0, "", 0)
