"""The audit log: every change names who made it, before it is made; what cannot be recorded does
not happen; only age ends it."""

from __future__ import annotations

import getpass
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from imageapi.store.store import ImageStore
from layercake import __version__
from layercake.api.caller import Caller
from layercake.api.gate import Gate
from layercake.api.route import Operation, Reach, Route
from layercake.api.server import at_once
from layercake.features.access.audit import DAY_S, FIRST_S, Audit, shown
from layercake.features.access.tokens import Tokens
from layercake.features.rolls.manager import Rolls
from layercake.fleet import events
from layercake.kraken.errors import OperationFailed, Refused
from layercake.moduleapi.module import Role
from tests.access.conftest import CONTAINER, OWN, RACK
from tests.support.api import served, token
from tests.support.disk import on_disk, read_only
from tests.support.world import World

ANN = Caller("ann", "token", Role.ADMIN, ("physics",), True, "10.0.0.9", "curl/8", "0123abcd")


@pytest.fixture
async def api(world: World) -> AsyncIterator[Any]:
    async with served(world.head, local=False) as client:
        yield client


async def records(world: World) -> list[Any]:
    return await world.head.part(Audit).read(0, 0.0, 5000)


async def test_every_change_names_who_made_it(world: World, api: Any) -> None:
    """Desired state, images and plain rolls named nobody: in the log and in the histories they do
    now."""
    headers = {**await token(world.head, "ann", "admin", may_exec=True), "User-Agent": "curl/8 [2J"}
    for number in (1, 2):
        await world.head.part(Rolls).order(number, "abort", "a test")
    file = world.directory / "two.squashfs"
    changes = [
        ("POST", "/v1/nodes/state", {"range": OWN, "state": "off"}),
        ("POST", "/v1/nodes/state", {"range": OWN, "state": "up"}),
        ("POST", "/v1/power", {"range": OWN, "action": "cycle"}),
        ("POST", "/v1/nodes/clear", {"range": OWN}),
        ("POST", "/v1/images", {"path": str(file), "name": "four"}),
        ("DELETE", "/v1/images/four", None),
        ("DELETE", "/v1/contents/unused", None),
        ("POST", "/v1/images/roll", {"range": OWN, "image": "two"}),
        ("POST", "/v1/images/roll", {"range": OWN, "image": "three", "at_once": True}),
        ("POST", "/v1/inventory/apply", {"yaml": RACK, "take_back": True}),
        ("POST", "/v1/guard/freeze", {"range": OWN, "reason": "why", "by": "bob"}),
        ("POST", "/v1/guard/thaw", {"range": OWN}),
    ]
    start = world.head.store.newest_event
    for method, path, body in changes:
        async with api.request(method, path, json=body, headers=headers) as answer:
            assert answer.status == 200, (path, await answer.text())
    found = await records(world)
    assert [r.request for r in found] == [f"{method} {path}" for method, path, _ in changes]
    assert {(r.by, r.kind, r.role, r.scope, r.address, r.program, r.status) for r in found} == {
        ("ann", "token", "admin", None, "127.0.0.1", "curl/8 [2J", 200)
    }
    told = [
        e
        for e in world.head.store.events
        if e.id > start
        and e.kind
        in (
            "desired.state",
            "power.cycle",
            "image.added",
            "image.removed",
            "image.roll",
            "image.pruned",
            "guard.frozen",
            "guard.thawed",
            "inventory.changed",
        )
    ]
    assert len(told) >= 8 and not [e for e in told if "ann" not in e.text]
    assert "ann for bob" in next(e.text for e in told if e.kind == "guard.frozen")


async def test_the_local_socket_names_the_user_and_the_command_says_what_it_is(
    world: World,
) -> None:
    async with (
        served(world.head, local=True) as api,
        api.post(
            "/v1/nodes/clear",
            json={"range": OWN},
            headers={"User-Agent": f"layercake/{__version__}"},
        ) as answer,
    ):
        assert answer.status == 200
    (record,) = await records(world)
    program = f"layercake/{__version__}"
    assert (record.by, record.kind, record.role, record.program) == (
        getpass.getuser(),
        "local",
        "admin",
        program,
    )
    assert record.address.startswith("this machine, process ")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("DELETE", "/v1/images/three", None),
        ("DELETE", "/v1/contents/unused", None),
        ("POST", "/v1/rolls/1/pause", {}),
        ("POST", "/v1/nodes/state", {"range": OWN, "state": "off"}),
        ("POST", "/v1/tokens", {"name": "x", "role": "viewer"}),
    ],
)
async def test_a_change_that_cannot_be_recorded_is_refused(
    world: World, api: Any, method: str, path: str, body: Any
) -> None:
    headers = await token(world.head, "ann", "admin")
    await world.head.database.flush(world.head.store)
    with read_only(world.head):
        async with api.request(method, path, json=body, headers=headers) as answer:
            told = await answer.json()
            assert answer.status == 502 and "cannot be recorded who asks" in told["error"], told
    assert "three" in {i.name for i in world.head.part(ImageStore).list()}
    assert (
        world.head.part(Rolls).get(1).state.value == "staging"
        and world.node(OWN).node.state == "up"
    )
    assert [t.name for t in world.head.part(Tokens).all()] == ["ann"]
    async with api.get("/v1/nodes", headers=headers) as answer:
        assert answer.status == 200, "looking needs no record"


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        (None, (200, "")),
        (Refused("cannot: busy"), (403, "cannot: busy")),
        (OperationFailed("cannot: no"), (502, "cannot: no")),
        (RuntimeError("a bug"), (500, "internal error")),
    ],
)
async def test_the_record_is_on_disk_before_the_change_begins_and_its_outcome_soon_after(
    world: World, ends: Exception | None, expected: tuple[int, str]
) -> None:
    rows = "SELECT status, error FROM audit"
    seen = []

    async def answer(body: Any) -> web.StreamResponse:
        seen.append(on_disk(world.directory, rows))
        if ends is not None:
            raise ends
        return web.Response()

    async def unused(request: web.Request, body: Any) -> Any: ...

    def status(request: web.Request, error: Exception) -> int:
        return 403 if isinstance(error, Refused) else 502

    access = world.head.features.access
    assert access is not None
    gate = Gate(world.head.store, access, status, simulated=False, settled=at_once)
    operation = Operation(
        method="POST", path="/v1/x", role=Role.OPERATOR, reach=Reach.NONE, summary=""
    )
    route = Route(operation, None, unused)
    try:
        await gate.serve(route, make_mocked_request("POST", "/v1/x"), ANN, answer)
    except Exception as error:  # noqa: BLE001
        assert error is ends
    assert seen == [[(None, None)]]
    # Nobody's answer waits for that; who reads the log has it.
    assert on_disk(world.directory, rows) == [(None, None)]
    audit = world.head.part(Audit)
    (record,) = await audit.read(0, 0.0, 10)
    assert (record.status, record.error) == expected
    await audit.write()
    assert on_disk(world.directory, rows) == [expected]


async def test_the_outcome_is_written_along_with_the_next_record(world: World) -> None:
    audit = world.head.part(Audit)
    first = await audit.begin(ANN, "POST /v1/x", None)
    audit.end(first, 200, "")
    await audit.begin(ANN, "POST /v1/x", None)
    assert on_disk(world.directory, "SELECT status FROM audit") == [(200,), (None,)]
    await world.head.features.stop()
    assert on_disk(world.directory, "SELECT status FROM audit") == [(200,), (None,)]


async def test_outcomes_that_cannot_be_written_are_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    audit = world.head.part(Audit)
    number = await audit.begin(ANN, "POST /v1/x", None)
    audit.end(number, 403, "cannot: no")

    async def fails(*_: object) -> None:
        raise OperationFailed("cannot write the database: full")

    with monkeypatch.context() as patch:
        patch.setattr(world.head.database, "execute", fails)
        await audit.write()
        await audit.write()
    assert caplog.text.count("cannot record the outcome") == 1
    await audit.write()
    assert on_disk(world.directory, "SELECT status FROM audit") == [(403,)]


async def test_what_is_secret_is_not_in_it(world: World, api: Any) -> None:
    headers = await token(world.head, "ann", "admin")
    body = {"path": "/none", "name": "x", **CONTAINER, "env": {"KEY": "canary-env"}}
    async with api.post("/v1/images", json=body, headers=headers):
        pass
    async with api.post(
        "/v1/inventory/apply", json={"yaml": RACK + "# canary-yaml" + " " * 300}, headers=headers
    ):
        pass
    async with api.post(
        "/v1/calls/power.refresh",
        json={"range": OWN, "params": {"password": "canary-param"}},
        headers=headers,
    ):
        pass
    async with api.post(
        "/v1/tokens", json={"name": "x", "role": "viewer"}, headers=headers
    ) as answer:
        text = (await answer.json())["token"]
    kept = json.dumps(on_disk(world.directory, "SELECT data FROM audit"))
    assert not [c for c in ("canary-env", "canary-yaml", "canary-param", text) if c in kept]
    assert "KEY" in kept and "sha256" in kept and "password" in kept


def test_what_was_asked_stays_small() -> None:
    big = {
        "a": ["x" * 10_000] * 10_000,
        "b": {str(i): i for i in range(10_000)},
        "c": "\udcff" * 300,
    }
    assert len(json.dumps(shown(big))) < 20_000


async def test_only_age_turns_it_over(world: World) -> None:
    for _ in range(3):
        await world.head.part(Audit).begin(ANN, "POST /v1/x", None)
    for number in range(6000):  # more than the ring of events holds
        world.head.store.event(None, events.NODE_EVENT, f"number {number}")
    await world.head.database.flush(world.head.store)
    world.clock.now += 399 * DAY_S
    await world.head.part(Audit).begin(ANN, "POST /v1/y", None)
    assert len(await records(world)) == 4
    world.clock.now += 2 * DAY_S
    await world.head.part(Audit).begin(ANN, "POST /v1/z", None)
    assert [r.request for r in await records(world)] == ["POST /v1/y", "POST /v1/z"]


async def test_a_clock_that_is_wrong_at_the_start_or_steps_takes_nothing_along(
    world: World,
) -> None:
    await world.head.part(Audit).begin(ANN, "POST /v1/x", None)
    world.clock.now += 4000 * DAY_S
    await world.restart()
    world.clock.now += FIRST_S - 1.0
    await world.head.part(Audit).begin(ANN, "POST /v1/y", None)
    assert len(await records(world)) == 2
    world.clock.now -= 4000 * DAY_S  # set right, by NTP
    await world.head.part(Audit).begin(ANN, "POST /v1/z", None)
    world.clock.now += FIRST_S
    await world.head.part(Audit).begin(ANN, "POST /v1/z", None)
    assert len(await records(world)) == 4


async def test_it_is_read_whole_in_pages(world: World, api: Any) -> None:
    headers = await token(world.head, "ann", "admin")
    for number in range(25):
        await world.head.part(Audit).begin(ANN, f"POST /v1/{number}", None)
    found: list[Any] = []
    while True:
        async with api.get(
            "/v1/audit",
            params={"limit": 10, "after": found[-1]["id"] if found else 0},
            headers=headers,
        ) as answer:
            page = (await answer.json())["audit"]
        if not page:
            break
        found += page
    assert [r["request"] for r in found] == [f"POST /v1/{n}" for n in range(25)]
    assert found[0]["scope"] == ["physics"] and found[0]["status"] is None
    async with api.get(
        "/v1/audit", params={"since": int(world.clock.now) + 1}, headers=headers
    ) as answer:
        assert (await answer.json())["audit"] == []
