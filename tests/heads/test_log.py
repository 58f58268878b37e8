"""The log that heads share, on a real etcd: what is in it, who may write it, and what is not."""

from __future__ import annotations

import asyncio
import os

import pytest

from layercake.heads import etcd
from layercake.heads.etcd import Etcd, StoreAway
from layercake.heads.log import PART_BYTES, End, Leader, LogState, Seal, SharedLog, Snapshot, Term
from layercake.kraken.errors import OperationFailed
from tests.support.etcd import EtcdMembers

ME = Leader("head1", "https://192.0.2.1:8443", 0.0)
OTHER = Leader("head2", "https://192.0.2.2:8443", 0.0)


async def lead(shared: SharedLog, who: Leader = ME, seconds: int = 60) -> tuple[Term, End, int]:
    state = await shared.state()
    lease = await shared.store.grant(seconds)
    term = await shared.lead(state, who, lease)
    assert term is not None
    return term, state.end, lease


async def written(shared: SharedLog, term: Term, end: End, *data: bytes) -> End:
    for one in data:
        found = await shared.append(term, end, shared.sealed(end, os.urandom(8).hex(), one))
        assert isinstance(found, End)
        end = found
    return end


async def answering(shared: SharedLog) -> None:
    """Waits until the members that are left have elected one of them."""
    async with asyncio.timeout(60):
        while True:
            try:
                await shared.state()
            except StoreAway:
                await asyncio.sleep(0.05)
            else:
                return


async def test_entries_come_in_order_with_what_was_written(shared: SharedLog) -> None:
    term, end, _ = await lead(shared)
    large = os.urandom(3 * PART_BYTES + 17)
    end = await written(shared, term, end, b"first", large, b"third")
    entries = await shared.entries(0, end.number)
    assert [(e.number, e.data) for e in entries] == [(1, b"first"), (2, large), (3, b"third")]
    assert (await shared.state()).end == end
    assert [e.number for e in await shared.entries(1, 2)] == [2]


async def test_heads_that_retire_at_once_are_all_retired(shared: SharedLog) -> None:
    names = [f"head{number}" for number in range(5)]
    await asyncio.gather(*(shared.retire(name, retired=True) for name in names))
    assert await shared.retired() == names
    await asyncio.gather(*(shared.retire(name, retired=False) for name in names[1:]))
    assert await shared.retired() == names[:1]


async def test_only_one_leads(shared: SharedLog) -> None:
    await lead(shared)
    state = await shared.state()
    assert await shared.lead(state, OTHER, await shared.store.grant(60)) is None
    assert state.leader == ME


async def test_a_leader_that_was_writes_nothing(shared: SharedLog) -> None:
    term, end, lease = await lead(shared)
    end = await written(shared, term, end, b"mine")
    await shared.store.revoke(lease)
    following, end, _ = await lead(shared, OTHER)
    assert following.epoch == term.epoch + 1
    refused = await shared.append(term, end, shared.sealed(end, "late", os.urandom(2 * PART_BYTES)))
    assert isinstance(refused, LogState)
    assert refused.leader == OTHER
    assert refused.end == end
    assert not await shared.keep_whole(term, Snapshot(1, end.name), b"copy")
    end = await written(shared, following, end, b"theirs")
    assert [e.data for e in await shared.entries(0, end.number)] == [b"mine", b"theirs"]


async def test_an_entry_is_not_written_over_another(shared: SharedLog) -> None:
    term, end, _ = await lead(shared)
    newer = await written(shared, term, end, b"mine")
    refused = await shared.append(term, end, shared.sealed(end, "again", b"other"))
    assert isinstance(refused, LogState)
    assert refused.end == newer


async def test_nobody_leads_a_log_that_has_grown_since_it_was_seen(shared: SharedLog) -> None:
    before = await shared.state()
    term, end, lease = await lead(shared)
    await written(shared, term, end, b"mine")
    await shared.store.revoke(lease)
    assert await shared.lead(before, OTHER, await shared.store.grant(60)) is None


async def test_a_whole_copy_takes_the_place_of_older_entries(shared: SharedLog) -> None:
    term, end, _ = await lead(shared)
    end = await written(shared, term, end, b"first", os.urandom(2 * PART_BYTES), b"third")
    content = os.urandom(2 * PART_BYTES)
    two = (await shared.entries(1, 2))[0]
    assert await shared.keep_whole(term, Snapshot(1, "older"), b"older copy")
    assert await shared.keep_whole(term, Snapshot(two.number, two.name), content)
    state = await shared.state()
    assert state.snapshot is not None
    assert await shared.whole(state.snapshot) == content
    assert await shared.entries(0, end.number) == []
    assert [e.data for e in await shared.entries(2, end.number)] == [b"third"]


async def test_a_member_that_can_read_the_store_learns_nothing(
    shared: SharedLog, prefix: str
) -> None:
    secret = b"the password of the BMCs"
    term, end, _ = await lead(shared)
    end = await written(shared, term, end, secret)
    await shared.keep_whole(term, Snapshot(end.number, end.name), secret)
    pairs = await shared.store.read(prefix.encode(), etcd.after(prefix.encode()))
    assert pairs
    assert not any(secret in pair.value for pair in pairs)
    stranger = SharedLog(shared.store, prefix, Seal(b"x" * 32))
    with pytest.raises(OperationFailed, match="was not written by the heads of this site"):
        await stranger.whole((await shared.state()).snapshot)  # type: ignore[arg-type]


async def test_what_a_head_says_ends_with_its_lease(shared: SharedLog) -> None:
    lease = await shared.store.grant(60)
    await shared.publish("head1", b"about", lease)
    assert await shared.published() == {"head1": b"about"}
    await shared.store.revoke(lease)
    assert await shared.published() == {}


async def test_the_next_member_is_asked_when_one_is_gone(members: EtcdMembers, prefix: str) -> None:
    gone = members.endpoints[0]
    members.kill(0)
    store = Etcd(members.endpoints)
    try:
        shared = SharedLog(store, prefix, Seal(bytes(32)))
        await answering(shared)
        term, end, _ = await lead(shared)
        await written(shared, term, end, b"without one")
        status = {one.endpoint: one.trouble for one in await store.statuses()}
        assert status.pop(gone)
        assert set(status.values()) == {""}
    finally:
        await store.close()
        members.start(0)
        members.wait()
