"""What nodes ask most is answered out of hand, and as the routes answer it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from layercake.kraken.wire import bearer
from layercake.moduleapi.fast_response import PlainRequest
from tests.support.world import World, node_client

DESIRED, EVENTS = "/node/v1/desired", "/node/v1/events"
TOLD = [{"kind": "container.exited", "text": "it ended", "data": {"status": 3}}]


class Connection(asyncio.Transport):
    """A connection without a certificate."""


def asked(path: str, body: Any, authorization: str) -> PlainRequest:
    """A request of a node."""
    return PlainRequest(
        Connection({}), path, json.dumps(body).encode() if body is not None else None, authorization
    )


@pytest.fixture
def header(world: World) -> str:
    session = world.attach("n0")
    return bearer(
        session.key, bytes.fromhex(world.node("n0").node.id.replace("-", "")), session.number
    )


async def test_it_is_what_the_route_answers(world: World, header: str) -> None:
    found = world.head.nodes.quick(asked(DESIRED, None, header))
    assert found is not None and (found.who, found.status, found.kind) == (
        world.node("n0").node.id,
        200,
        "application/json",
    )
    async with node_client(world) as client:
        route = await client.get(DESIRED, headers={"Authorization": header})
        assert await route.json() == json.loads(found.text)


def test_events_are_taken(world: World, header: str) -> None:
    found = world.head.nodes.quick(asked(EVENTS, TOLD, header))
    assert found is not None and json.loads(found.text) == {"taken": 1} and not found.wait
    (event,) = [e for e in world.events_of("n0") if e.kind == "container.exited"]
    assert (event.text, event.data) == ("it ended", {"status": 3})


async def test_who_tells_too_much_waits(world: World, header: str) -> None:
    world.head.nodes.intake.flood_s = 0.7
    waits = [
        found.wait
        for _ in range(3)
        if (found := world.head.nodes.quick(asked(EVENTS, TOLD * 300, header))) is not None
    ]
    assert waits == [0.0, 0.7, 0.7]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (DESIRED, {}),
        (EVENTS, None),
        ("/node/v1/trust", None),
        ("/v1/nodes", None),
        (EVENTS, ["x"]),
        (EVENTS, [*TOLD, {"data": 5}]),
    ],
)
def test_all_else_is_left_to_the_routes_and_none_of_it_is_done(
    world: World, header: str, path: str, body: Any
) -> None:
    assert world.head.nodes.quick(asked(path, body, header)) is None
    assert "container.exited" not in world.kinds("n0")


def test_what_is_no_json_is_left_to_the_route(world: World, header: str) -> None:
    for body in (b"", b"[", b"\xff", b"[" * 60_000):
        assert world.head.nodes.quick(PlainRequest(Connection({}), EVENTS, body, header)) is None


@pytest.mark.parametrize(
    "wrong", ["", "Bearer x", "Bearer 00000000-0000-0000-0000-000000000000.7." + "0" * 32]
)
def test_a_stranger_is_left_to_the_route(world: World, header: str, wrong: str) -> None:
    for said in (wrong, header[:-1] + ("0" if header[-1] != "0" else "1")):
        assert world.head.nodes.quick(asked(DESIRED, None, said)) is None
        assert world.head.nodes.quick(asked(EVENTS, TOLD, said)) is None
    assert "container.exited" not in world.kinds("n0")


def test_a_session_with_a_certificate_is_worth_nothing_without_it(
    world: World, header: str
) -> None:
    record = world.node("n0")
    assert record.session is not None
    object.__setattr__(record.session, "mutual", True)
    assert world.head.nodes.quick(asked(DESIRED, None, header)) is None
