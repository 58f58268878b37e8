"""Commands and logs through the head: who may, what is recorded, what is not."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp.test_utils import TestClient, TestServer
from patience import patience

from imageapi.events import unheard
from imageapi.node.container.runtime import Runtime
from imageapi.node.imageset.imageset import ImageSet
from layercake.agents import pki
from layercake.agents.pki import Authority
from layercake.features.access import doors
from layercake.features.access.tokens import FILE_NAME, blake2b
from layercake.features.events.views import event_view
from layercake.kraken.errors import Unreachable
from layercake.kraken.events import EventKind, Severity
from layercake.node.serving import Serving
from layercake.node.wiring import open_url
from minos.agent.head_link.sync import Epochs
from minos.agent.state import Config, Session
from tests.support.api import adopt
from tests.support.world import World


@pytest.fixture
def epochs() -> Epochs:
    """The epochs of the heads as the node knows them."""
    return Epochs()


@pytest.fixture
async def client(world: World, epochs: Epochs) -> AsyncIterator[TestClient[Any, Any]]:
    """The head's API as the network sees it, and node n0 with its own API in this process."""
    directory = world.directory / "pki"
    pki.create(directory, "127.0.0.1")
    world.attach("n0")
    world.send(world.hello("n0"))
    record = world.node("n0")
    assert record.session is not None
    tls = Authority(directory).issue(record.node.id, record.session.number)
    assert tls is not None
    run = world.directory / "node"
    run.mkdir()

    def said(kind: EventKind, text: str, severity: Severity | None = None, **data: Any) -> None:
        record.api_port = data.get("port", record.api_port)

    images = ImageSet(run, Runtime(run), open_url, unheard)
    config = Config(
        record.node.id, "n0", "", "https://h", "", "t", directory / "ca.pem", run, "boot-1", "1"
    )
    session = Session(
        record.session.number,
        record.session.key,
        1,
        record.planner.layout,
        1.0,
        4.0,
        ("h", 1),
        (tls["cert"], tls["key"]),
    )
    serving = Serving(config, images, said, 0, epochs=epochs)
    serving.start(session)
    token = doors.create_admin_token(world.directory).read_text().strip()
    adopt(world.head)
    app = world.head.api().application(local=False)
    async with TestClient(TestServer(app), headers={"Authorization": f"Bearer {token}"}) as found:
        yield found
    if serving.server is not None:
        serving.server.close()


async def test_a_command_is_run_and_recorded_but_never_its_output(
    world: World, client: TestClient[Any, Any]
) -> None:
    answer = await client.post(
        "/v1/nodes/n0/exec", json={"command": ["sh", "-c", "echo top-$((600 + 66))-secret; exit 5"]}
    )
    lines = [json.loads(line) for line in (await answer.text()).splitlines()]
    assert base64.b64decode(lines[0]["out"]) == b"top-666-secret\n" and lines[-1] == {"exit": 5}
    events = [event_view(e) for e in world.events_of("n0") if e.kind.startswith("node.exec")]
    assert [e["kind"] for e in events] == ["node.exec", "node.exec-ended"]
    assert "admin at 127.0.0.1 runs on the node: sh -c" in events[0]["text"]
    assert "exit status 5" in events[1]["text"]
    assert "666" not in json.dumps(events)


async def test_a_node_that_follows_a_later_head_refuses_and_the_head_learns_of_it(
    world: World, client: TestClient[Any, Any], epochs: Epochs
) -> None:
    seen: list[int] = []
    world.head.heads.on_outdated(seen.append)
    world.head.heads.acts(4)
    world.send(world.hello("n0"))
    run = {"command": ["true"]}
    assert (await client.post("/v1/nodes/n0/exec", json=run)).status == 200
    assert epochs.highest == 4, "a genuine head has told it"
    assert epochs.accept(5)
    answer = await client.post("/v1/nodes/n0/exec", json=run)
    error = (await answer.json())["error"]
    assert answer.status == 403 and seen == [5]
    assert "for a head of epoch 4: this node follows that of epoch 5" in error
    world.head.heads.acts(6)
    world.send(world.hello("n0"))
    assert (await client.post("/v1/nodes/n0/exec", json=run)).status == 200
    assert (epochs.highest, seen) == (6, [5])


async def test_what_cannot_be_run_is_recorded_too(
    world: World, client: TestClient[Any, Any]
) -> None:
    answer = await client.post("/v1/nodes/n0/exec", json={"command": ["/no/such"]})
    assert answer.status == 502 and "No such file" in (await answer.json())["error"]
    assert (
        await client.post("/v1/nodes/n0/exec", json={"command": ["ls"], "container": "web"})
    ).status == 404
    assert (await client.post("/v1/nodes/n0/exec", json={"command": []})).status == 400
    assert "no such image here" in world.events_of("n0")[-1].text
    assert (await client.get("/v1/nodes/n0/follow")).status == 404
    assert (
        await client.get("/v1/nodes/n0/follow", params={"container": "../../imageapi/v1/mount"})
    ).status == 404
    assert (await client.get("/v1/nodes/n0/follow", params={"container": "web"})).status == 404


async def test_operators_only(world: World, client: TestClient[Any, Any]) -> None:
    (world.directory / FILE_NAME).write_text(
        json.dumps({blake2b("look"): "viewer", blake2b("work"): "operator"})
    )
    adopt(world.head)
    app = world.head.api().application(local=False)
    async with TestClient(TestServer(app)) as other:
        for token, status in (("look", 403), ("none", 401), ("work", 200)):
            answer = await other.post(
                "/v1/nodes/n0/exec",
                json={"command": ["true"]},
                headers={"Authorization": f"Bearer {token}"},
            )
            assert answer.status == status, token
    assert "operator at" in [e for e in world.events_of("n0") if e.kind == "node.exec"][-1].text


async def test_a_node_that_is_not_the_one_meant_is_not_asked(
    world: World, client: TestClient[Any, Any]
) -> None:
    record, other = world.node("n0"), world.node("n1")
    world.attach("n1")
    other.api_port, other.address = record.api_port, record.address
    world.send(world.hello("n1"))
    with pytest.raises(Unreachable, match="n1"):  # n0's certificate is not for n1
        async with world.head.kernel.node_link.open(other, "GET", "/v1/status"):
            pass
    record.api_port = 0
    with pytest.raises(Unreachable, match="does not serve its API"):
        async with world.head.kernel.node_link.open(record, "GET", "/v1/status"):
            pass


def test_a_head_without_an_authority_issues_nothing(tmp_path: Path) -> None:
    assert Authority(tmp_path).issue("0f8fad5b-d9cb-469f-a165-70867728950e", 1) is None


@pytest.fixture
async def site(world: World, client: TestClient[Any, Any]) -> AsyncIterator[aiohttp.ClientSession]:
    """The head's API as it serves it on its socket, and node n0 as with `client`."""
    folder = Path(tempfile.mkdtemp(prefix="lc"))  # a socket's path has 108 bytes at most
    head = world.head
    head.settings = msgspec.structs.replace(head.settings, socket=str(folder / "s"))
    api = head.api()
    await api.start()
    try:
        connector = aiohttp.UnixConnector(str(folder / "s"))
        async with aiohttp.ClientSession("http://head", connector=connector) as session:
            yield session
    finally:
        await api.stop()
        shutil.rmtree(folder)


async def test_a_client_that_leaves_ends_the_command_and_is_no_error(
    world: World, site: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    file = tmp_path / "pid"
    command = ["sh", "-c", f"echo $$ > {file}; while :; do echo line; sleep 0.01; done"]
    answer = await site.post("/v1/nodes/n0/exec", json={"command": command})
    assert await answer.content.readany()
    answer.close()
    async with asyncio.timeout(patience(30)):
        while "node.exec-ended" not in world.kinds("n0"):
            await asyncio.sleep(0.05)
        while Path(f"/proc/{file.read_text().strip()}").exists():
            await asyncio.sleep(0.05)
    assert ", cut off: " in world.events_of("n0")[-1].text
    audit = [json.loads(r.getMessage()) for r in caplog.records if r.name == "layercake.audit"]
    assert [(r["status"], r["error"]) for r in audit if "status" in r] in ([], [(0, "cut off")])
    assert not [r for r in caplog.records if r.exc_info or r.levelno >= logging.WARNING]
