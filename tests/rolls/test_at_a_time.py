"""Rolls that begin at a time: they are kept from when they were asked for, can be taken back, begin
once when it is so late, and say why they could not."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from layercake.base.clock import local_moment, parse_moment, show_time
from layercake.features.access.tokens import Tokens
from layercake.features.rolls.later.schedule import LATE_S, RollSchedule
from layercake.features.rolls.manager import Rolls
from layercake.features.rolls.operations import RollStart
from layercake.kraken.errors import InputError, NotFound, Refused
from tests.support.api import served, token
from tests.support.rollnodes import Site, a_site

NIGHT = 3600.0
"""Seconds until the rolls here begin."""


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This machine is in a place where the clock is set twice a year."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with a_site(tmp_path, 4, now=1_800_000_000.0) as found:
        yield found


def at(site: Site, seconds: float = NIGHT) -> str:
    return show_time(site.world.head.store.wall() + seconds)


async def ask(site: Site, nodes: str = "n[0-3]", image: str = "two", seconds: float = NIGHT) -> int:
    asked = RollStart(nodes, image, by="ann", batch="2", health_timeout_s=0.0, at=at(site, seconds))
    return (await site.world.ops.rolls.start(asked)).id


async def pass_time(site: Site, seconds: float) -> None:
    site.world.clock.now += seconds
    await site.world.head.part(RollSchedule).begin_due()


def kinds(site: Site) -> list[str]:
    return [e.kind for e in site.world.head.store.events if e.kind.startswith("roll.")]


async def test_it_begins_when_it_is_so_late_and_not_before(site: Site) -> None:
    number = await ask(site)
    told = site.roll(number)
    assert (told["state"], told["by"], told["counts"]) == ("scheduled", "ann", {"waiting": 4})
    await pass_time(site, NIGHT - 2)
    await site.step()
    assert site.roll(number)["state"] == "scheduled" and set(site.running().values()) == {"one"}
    await pass_time(site, 2)
    told = await site.until_over(number)
    assert (told["state"], told["counts"], told["plan"]["batch"]) == ("done", {"done": 4}, "2")
    assert set(site.running().values()) == {"two"}
    assert kinds(site)[:2] == ["roll.scheduled", "roll.started"]
    await pass_time(site, NIGHT)
    assert kinds(site).count("roll.started") == 1


async def test_it_outlives_the_head_and_keeps_its_number(site: Site) -> None:
    number = await ask(site)
    await site.world.restart()
    assert site.roll(number)["state"] == "scheduled"
    assert await ask(site, "n0", "three", 2 * NIGHT) == number + 1
    await pass_time(site, NIGHT)
    assert (await site.until_over(number))["state"] == "done"
    await site.world.restart()
    assert site.roll(number)["state"] == "done", "what it was before does not come back"


async def test_one_whose_time_passed_while_the_head_was_away_has_failed(site: Site) -> None:
    number = await ask(site)
    site.world.clock.now += NIGHT + LATE_S + 1
    await site.world.restart()
    await pass_time(site, 0)
    told = site.roll(number)
    assert told["state"] == "failed" and "when the head did not run" in told["reason"]
    assert set(site.running().values()) == {"one"}


async def test_it_is_taken_back(site: Site) -> None:
    number = await ask(site)
    rolls = site.world.head.part(Rolls)
    with pytest.raises(Refused, match="cannot pause roll 1: it is scheduled") as refused:
        await rolls.order(number, "pause", "bob")
    assert refused.value.hint == "`layercake roll abort 1` takes it back"
    await rolls.order(number, "abort", "bob")
    await pass_time(site, NIGHT)
    await site.step(2)
    told = site.roll(number)
    assert (told["state"], told["reason"]) == ("aborted", "aborted by bob")
    assert set(site.running().values()) == {"one"}
    await site.world.restart()
    assert site.roll(number)["state"] == "aborted"


async def test_its_nodes_are_free_until_then_and_a_roll_that_has_one_then_is_why(
    site: Site,
) -> None:
    number = await ask(site)
    first = await site.start("n0", "three")
    assert (await site.until_over(first.id))["state"] == "done"
    second = await site.start("n1", "three")
    await pass_time(site, NIGHT)
    told = site.roll(number)
    assert told["state"] == "failed"
    assert f"cannot roll n1: roll {second.id} to three, by ann, has it" in told["reason"]


async def test_the_image_that_it_goes_to_is_kept_and_a_node_that_left_is_not_missed(
    site: Site,
) -> None:
    number = await ask(site)
    with pytest.raises(Refused, match=f"cannot remove image two: roll {number} needs it"):
        await site.world.ops.images.remove("two")
    record = site.world.node("n3")
    async with site.world.head.desire.transaction() as transaction:
        transaction.remove(record, site.world.head.membership.forget)
    del site.agents["n3"]
    await pass_time(site, NIGHT)
    assert (await site.until_over(number))["counts"] == {"done": 3}


async def test_a_frozen_site_at_that_time_is_why(site: Site) -> None:
    number = await ask(site)
    await site.world.ops.care.freeze("", "the chiller is off", "ann")
    await pass_time(site, NIGHT)
    told = site.roll(number)
    assert told["state"] == "failed" and "the chiller is off" in told["reason"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("2027-01-01T00:00:00Z", "cannot begin a roll at 2027-01-01T00:00:00Z: that has passed"),
        ("2037-01-01T00:00:00Z", "that is over a year away"),
        ("2027-01-16T00:00:00", "cannot use '2027-01-16T00:00:00' as a time"),
        ("tonight\x1b[2J", "cannot use 'tonight"),
        ("2027-02-31T00:00:00Z", "cannot use '2027-02-31T00:00:00Z' as a time"),
    ],
    ids=["past", "far", "no zone", "words", "no such day"],
)
async def test_a_time_that_cannot_be_is_refused_and_nothing_is_kept(
    site: Site, text: str, why: str
) -> None:
    with pytest.raises(InputError) as refused:
        await site.world.ops.rolls.start(RollStart("n0", "two", by="ann", at=text))
    assert why in refused.value.message and "\x1b" not in refused.value.message
    with pytest.raises(NotFound):
        site.roll(1)


async def test_the_api_has_one_for_each_policy_and_shows_when(site: Site) -> None:
    body = {"range": "n[0-3]", "image": "two", "by": "ann", "at": at(site)}
    async with served(site.world.head, local=True) as api:
        answer = await api.post("/v1/images/roll", data=json.dumps(body))
        told = await answer.json()
        assert answer.status == 200, told
        (begun,) = told["rolls"]
        assert begun["nodes"] == ["n0", "n1", "n2", "n3"]
        (shown,) = (await (await api.get("/v1/rolls")).json())["rolls"]
        assert (shown["state"], shown["starts"]) == ("scheduled", parse_moment(body["at"]))
        audit = await (await api.get("/v1/audit")).json()
        assert json.dumps(audit).count(str(body["at"])) >= 1, "when it begins is in the audit"
        refused = await api.post("/v1/images/roll", data=json.dumps({**body, "at_once": True}))
        assert refused.status == 400
    await pass_time(site, NIGHT)
    assert (await site.until_over(begun["id"]))["state"] == "done"


async def test_how_long_a_roll_still_takes_is_said_once_a_node_is_through(site: Site) -> None:
    roll = await site.start("n[0-3]", "two", batch="1", health_s=2.0)
    assert site.roll(roll.id)["left_s"] is None
    while site.roll(roll.id)["counts"].get("done", 0) < 1:
        await site.step()
    left = site.roll(roll.id)["left_s"]
    elapsed = site.world.head.store.wall() - site.roll(roll.id)["at"]
    assert left == pytest.approx(3 * elapsed) and left > 0
    await site.until_over(roll.id)
    assert site.roll(roll.id)["left_s"] is None


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("02:00", "2026-11-28T01:00:00Z"),
        ("23:30", "2026-11-27T22:30:00Z"),
        ("2026-12-24 18:00", "2026-12-24T17:00:00Z"),
        ("2026-07-01T12:00", "2026-07-01T10:00:00Z"),
        ("2026-11-28T02:00-05:00", "2026-11-28T07:00:00Z"),
    ],
)
def test_a_person_writes_the_time_of_this_machine(text: str, meant: str, berlin: None) -> None:
    assert local_moment(text, parse_moment("2026-11-27T20:00:00Z")) == meant


@pytest.mark.parametrize("text", ["2027-03-28 02:30", "2026-10-25 02:30"], ids=["none", "two"])
def test_an_hour_in_which_the_clock_is_set_needs_a_zone(text: str, berlin: None) -> None:
    with pytest.raises(InputError, match="the clock is set in that hour"):
        local_moment(text, parse_moment("2026-09-27T20:00:00Z"))


@pytest.mark.parametrize("text", ["", "25:00", "2am", "tomorrow", "02:00 tomorrow", "1" * 500])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="cannot use"):
        local_moment(text, parse_moment("2026-11-27T20:00:00Z"))


@pytest.mark.parametrize("ends", ["revoked", "expired", "kept"])
async def test_a_roll_of_a_revoked_token_does_not_begin(site: Site, ends: str) -> None:
    head = site.world.head
    seconds = NIGHT / 2 if ends == "expired" else None
    headers = await token(head, "ann", "operator", seconds=seconds)
    async with served(head, local=False) as client:
        asked = {"range": "n[0-3]", "image": "two", "at": at(site)}
        answer = await client.post("/v1/rolls", json=asked, headers=headers)
        assert answer.status == 200, await answer.text()
        number = (await answer.json())["roll"]["id"]
    if ends == "revoked":
        async with head.desire.transaction(revises=False) as transaction:
            head.part(Tokens).revoke(transaction, "ann")
        await token(head, "ann", "operator")  # another one of that name changes nothing
    await site.world.restart()
    await pass_time(site, NIGHT)
    told = site.roll(number)
    if ends == "revoked":
        assert (
            told["state"] == "failed" and "by which ann asked for it was revoked" in told["reason"]
        )
        assert set(site.running().values()) == {"one"}
    else:
        assert told["state"] not in ("failed", "scheduled")
