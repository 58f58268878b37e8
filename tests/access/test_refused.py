"""Who was refused is told, with why; one that tries again and again is counted."""

from __future__ import annotations

from typing import Any

import pytest

from layercake.fleet import events
from layercake.fleet.store import Event
from tests.access.conftest import OTHER
from tests.support.api import served, token
from tests.support.world import World


def refused(world: World) -> list[Event]:
    return [one for one in world.head.store.alarms if one.kind == events.API_REFUSED.name]


@pytest.mark.parametrize(
    ("who", "asked", "said"),
    [
        ({}, ("GET", "/v1/nodes"), "GET /v1/nodes of nobody that is known from 127.0.0.1"),
        ({"Authorization": "Bearer hunter2"}, ("GET", "/v1/nodes"), "of nobody that is known"),
        ("viewer", ("POST", "/v1/nodes/clear"), "needs the role operator; bob is viewer"),
        ("bound", ("DELETE", f"/v1/nodes/{OTHER}/session"), ""),
        ("bound", ("GET", f"/v1/nodes/{OTHER}/logs"), f"GET /v1/nodes/{OTHER}/logs of bob"),
    ],
)
async def test_a_refusal_is_told(world: World, who: Any, asked: tuple[str, str], said: str) -> None:
    headers = who
    if isinstance(who, str):
        role = "viewer" if who == "viewer" else "operator"
        headers = await token(world.head, "bob", role, *(["physics"] if who == "bound" else []))
    method, path = asked
    async with (
        served(world.head, local=False) as client,
        client.request(method, path, json={"range": "@all"}, headers=headers) as answer,
    ):
        status = answer.status
    if said:
        assert status in (401, 403)
        [event] = refused(world)
        assert said in event.text and event.data["address"] == "127.0.0.1"
        assert "hunter2" not in str(event)
    else:
        assert status == 404 and not refused(world), "a path that there is not is no refusal"


@pytest.mark.parametrize(
    ("headers", "events_told"),
    [({}, 0), ({"Authorization": "Bearer hunter2"}, 1)],
    ids=["page", "token"],
)
async def test_a_page_that_nobody_has_signed_in_to_is_no_news(
    world: World, headers: dict[str, str], events_told: int
) -> None:
    async with (
        served(world.head, local=False) as client,
        client.get("/v1/session", headers=headers) as answer,
    ):
        assert answer.status == 401
    assert len(refused(world)) == events_told


async def test_one_that_tries_again_and_again_is_counted(world: World) -> None:
    async with served(world.head, local=False) as client:
        for _ in range(50):
            async with client.get("/v1/nodes") as answer:
                assert answer.status == 401
    assert len(refused(world)) == 1
    world.clock.now += 61.0
    world.head.store.count()
    assert [one.text.partition(" in ")[0] for one in refused(world)][1:] == ["49 more"]


async def test_what_is_let_in_and_cannot_be_done_is_no_refusal(world: World) -> None:
    headers = await token(world.head, "ann", "operator")
    await world.ops.care.freeze("@all", "work", "ann")
    async with (
        served(world.head, local=False) as client,
        client.post(
            "/v1/power", json={"range": OTHER, "action": "cycle"}, headers=headers
        ) as answer,
    ):
        assert answer.status in (200, 403)
    assert not refused(world)
