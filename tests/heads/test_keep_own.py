"""A store that was put back from an older backup: nobody leads, until a person says which copy
counts."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from layercake.fleet.persistence import changes, schema
from layercake.heads.log import Leader, SharedLog
from layercake.heads.standby import Standby
from layercake.kraken.errors import Refused
from tests.heads.test_log import lead, written

ME = Leader("head2", "https://127.0.0.1:8443", 0.0)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "layercake.db"


def _copy(database: Path, number: int, name: str) -> None:
    with contextlib.closing(schema.open_database(database)) as db:
        changes.set_place(db, number, name)


async def test_a_copy_that_is_ahead_counts_once_a_person_says_so(
    shared: SharedLog, database: Path
) -> None:
    _copy(database, 7, "seven")
    standby = Standby(shared, database, ME)
    waiting = asyncio.ensure_future(standby.wait_to_lead())
    while "has entry 7" not in standby.trouble:
        await asyncio.sleep(0.01)
    assert not waiting.done()
    await standby.keep_own("mark later")
    won = await waiting
    assert won.end[:2] == (7, "seven")
    assert await shared.files() == "mark later"
    assert (await shared.state()).snapshot is not None


async def test_a_copy_with_nothing_does_not_count(shared: SharedLog, database: Path) -> None:
    standby = Standby(shared, database, ME)
    with pytest.raises(Refused, match="it has nothing yet"):
        await standby.keep_own("")


async def test_the_log_is_not_forgotten_while_a_head_leads(
    shared: SharedLog, database: Path
) -> None:
    term, end, lease = await lead(shared, ME)
    end = await written(shared, term, end, b"data")
    standby = Standby(shared, database, ME)
    with pytest.raises(Refused, match="head2 leads"):
        await standby.keep_own("")
    assert [one.data for one in await shared.entries(0, end.number)] == [b"data"]
    await shared.store.revoke(lease)
