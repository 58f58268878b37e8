"""The API's doors: tokens and roles on the network, errors that a person can use, an OpenAPI
document that is true."""

from __future__ import annotations

import json
import stat
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp.test_utils import TestClient, TestServer

from layercake.agents import pki
from layercake.features.access.doors import create_admin_token
from layercake.features.access.tokens import Tokens
from layercake.fleet import events
from layercake.moduleapi.module import Role
from tests.support.api import adopt, served
from tests.support.world import INVENTORY, World


def open_api(world: World, *, local: bool) -> AbstractAsyncContextManager[Any]:
    return served(world.head, local=local)


async def test_defect_6_the_network_door_needs_a_token(world: World) -> None:
    token = create_admin_token(world.directory).read_text().strip()
    adopt(world.head)
    async with open_api(world, local=False) as client:
        assert (await client.get("/v1/nodes")).status == 401
        assert (
            await client.get("/v1/nodes", headers={"Authorization": "Bearer nonsense"})
        ).status == 401
        assert (
            await client.get("/v1/nodes", headers={"Authorization": f"Basic {token}"})
        ).status == 401
        answer = await client.get("/v1/nodes", headers={"Authorization": f"Bearer {token}"})
        assert answer.status == 200
        assert "Access-Control-Allow-Origin" not in answer.headers


async def test_a_role_that_is_too_low_is_refused(world: World) -> None:
    path = create_admin_token(world.directory)
    tokens = world.directory / "tokens.json"
    tokens.write_text(tokens.read_text().replace("admin", "viewer"))
    adopt(world.head)
    headers = {"Authorization": f"Bearer {path.read_text().strip()}"}
    async with open_api(world, local=False) as client:
        assert (await client.get("/v1/nodes", headers=headers)).status == 200
        answer = await client.post(
            "/v1/power", json={"range": "n0", "action": "off"}, headers=headers
        )
        assert answer.status == 403
        assert "operator" in (await answer.json())["error"]
    assert world.node("n0").node.state == "up"


def test_token_files_are_private_and_hold_no_token(tmp_path: Path) -> None:
    path = create_admin_token(tmp_path)
    token = path.read_text().strip()
    assert path.stat().st_mode & 0o777 == 0o600
    assert token not in (tmp_path / "tokens.json").read_text()
    tokens = Tokens(lambda: 0.0)
    tokens.adopt(tmp_path / "tokens.json", {})
    found = tokens.find(token)
    assert found is not None and (found.name, found.rank) == ("admin", Role.ADMIN)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/v1/nodes/nope", None, 404),
        ("GET", "/v1/nodes?range=n9", None, 400),
        ("POST", "/v1/nodes/state", {"range": "n0", "state": "sideways"}, 400),
        ("POST", "/v1/nodes/state", {"range": "n0"}, 400),
        ("POST", "/v1/power", {"action": "off"}, 400),
        ("POST", "/v1/images", {"path": "/nonexistent", "name": "x"}, 400),
        ("POST", "/v1/images/roll", {"range": "n0", "image": "nope"}, 400),
        ("DELETE", "/v1/images/nope", None, 404),
        ("GET", "/v1/graph?format=pdf", None, 400),
        ("GET", "/v1/events?limit=many", None, 400),
        ("POST", "/v1/inventory/apply", {"yaml": "nodes: [", "file": "f.yaml"}, 422),
    ],
)
async def test_mistakes_get_a_clear_error(
    world: World, method: str, path: str, body: Any, status: int
) -> None:
    async with open_api(world, local=True) as client:
        answer = await client.request(
            method, path, data=json.dumps(body) if body is not None else None
        )
        told = await answer.json()
        assert answer.status == status, told
        assert told["error"].startswith("cannot ")


@pytest.mark.parametrize("action", ["on", "cycle"])
async def test_only_a_node_that_goes_off_is_asked_softly(world: World, action: str) -> None:
    async with open_api(world, local=True) as client:
        body = {"range": "n0", "action": action, "soft": True}
        answer = await client.post("/v1/power", data=json.dumps(body))
        told = await answer.json()
        assert answer.status == 400
        assert told["error"].startswith(f"cannot power {action} softly: ")
        assert "layercake power off RANGE --soft" in told["hint"]


async def test_a_node_that_is_switched_off_in_maintenance_is_told_that_it_stays_off(
    world: World,
) -> None:
    async with open_api(world, local=True) as client:
        for path, body in (
            ("/v1/maintenance/begin", {"range": "n0", "reason": "new DIMM"}),
            ("/v1/power", {"range": "n[0-1]", "action": "off"}),
        ):
            answer = await client.post(path, data=json.dumps(body))
            assert answer.status == 200
        assert [(row["node"], row["why"]) for row in (await answer.json())["nodes"]] == [
            ("n0", "stays off when its maintenance is over, until `layercake power on n0`"),
            ("n1", ""),
        ]


async def test_views_answer(world: World) -> None:
    async with open_api(world, local=True) as client:
        for path in (
            "/v1/status",
            "/v1/nodes",
            "/v1/nodes/n0",
            "/v1/nodes/n0/explain",
            "/v1/images",
            "/v1/events",
        ):
            assert (await client.get(path)).status == 200, path
        assert "digraph" in await (await client.get("/v1/graph?format=dot&node=n0")).text()
        assert "<svg" in await (await client.get("/v1/graph?format=svg")).text()
        node = (await (await client.get("/v1/nodes/n0")).json())["node"]
        assert node["goal"] == {"power": "ON", "run": "SYNC", "image": "IDLE"}


async def test_the_openapi_document_covers_every_route(world: World) -> None:
    api = world.head.api()
    app = api.application(local=False)
    async with TestClient(TestServer(app)) as client:
        document = await (await client.get("/v1/openapi.json")).json()
    served = {
        (r.method.lower(), r.resource.canonical)
        for r in app.router.routes()
        if r.resource is not None
    }
    described = {(method, path) for path, item in document["paths"].items() for method in item}
    quiet = {"/v1/openapi.json", "/v1/events/ws"}
    missing = {
        (m, p) for m, p in served if p.startswith("/v1/") and p not in quiet and m != "head"
    } - described
    assert not missing
    assert not described - served


async def test_events_come_over_the_websocket_in_batches(world: World) -> None:
    async with (
        open_api(world, local=True) as client,
        client.ws_connect("/v1/events/ws?node=n0") as socket,
    ):
        record = world.node("n0")
        for number in range(5):
            world.head.store.event(record, events.NODE_EVENT, f"number {number}")
        world.head.store.event(world.node("n1"), events.NODE_EVENT, "another node's")
        got: list[str] = []
        while len(got) < 5:
            message = await socket.receive(timeout=60)
            assert message.type is aiohttp.WSMsgType.TEXT
            got += [e["text"] for e in json.loads(message.data)["events"]]
        assert got == [f"number {n}" for n in range(5)]


async def test_defect_6_no_secret_is_in_any_answer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BMC_TEST_SECRET", "hunter2hunter2")
    yaml = INVENTORY.replace(
        "ip: 10.1.0.10",
        "ip: 10.1.0.10, bmc: {driver: ipmi, address: 10.1.0.9, username: a, "
        "password: {env: BMC_TEST_SECRET}}",
    )
    await world.ops.inventory.apply(yaml, "x.yaml", None, False)
    world.attach("n0")
    async with open_api(world, local=True) as client:
        paths = ("/v1/nodes", "/v1/nodes/n0", "/v1/nodes/n0/explain", "/v1/events", "/v1/status")
        told = "".join([await (await client.get(p)).text() for p in paths])
    assert "hunter2" not in told
    assert "kkkk" not in told
    await world.head.database.flush(world.head.store)
    assert b"hunter2" not in (world.directory / "layercake.db").read_bytes()


async def test_the_local_socket_is_its_owners_and_other_files_are_not(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    masks: list[int] = []
    monkeypatch.setattr("os.umask", masks.append)
    path = world.directory / "api.sock"
    world.head.settings = msgspec.structs.replace(world.settings, socket=str(path))
    pki.create(world.directory / "pki", "127.0.0.1")
    api = world.head.api()
    await api.start()
    try:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as client:
            assert (await client.get("http://local/v1/status")).status == 200
    finally:
        await api.stop()
    assert masks == [], (
        "the umask is the whole process's: files that other threads make would have it"
    )
