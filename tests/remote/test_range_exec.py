"""Commands, copies and logs of many nodes through a head: who may, what is answered, what is
recorded, and what becomes of nodes that are dead, hang or lie."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from patience import patience

from layercake.agents.https.requests import NodeRequests
from layercake.features.remote.operations import Remote
from layercake.features.remote.orders import MAX_COPY
from tests.remote.conftest import Fleet
from tests.support.api import served, token
from tests.support.world import World


@pytest.fixture
async def api(world: World) -> AsyncIterator[Any]:
    async with served(world.head, local=True) as client:
        yield client


async def lines_of(api: Any, path: str, /, **body: Any) -> dict[str, dict[str, Any]]:
    """The answers by node; that all nodes are named first was looked at."""
    async with api.post(path, json=body) as answer:
        assert answer.status == 200, await answer.text()
        first, *rest = [json.loads(line) for line in (await answer.text()).splitlines()]
    assert first["count"] == len(rest) == len({line["node"] for line in rest})
    return {line["node"]: line for line in rest}


async def run(api: Any, nodes: str, *command: str, **more: Any) -> dict[str, dict[str, Any]]:
    return await lines_of(api, "/v1/nodes/exec", range=nodes, command=command, **more)


def text(line: dict[str, Any], name: str = "out") -> str:
    return base64.b64decode(line.get(name, "")).decode()


async def test_a_command_runs_on_all_of_a_range_and_is_recorded(
    world: World, fleet: Fleet, api: Any
) -> None:
    lines = await run(api, "@all", "sh", "-c", "echo out-$((600 + 66)); echo err >&2; exit 3")
    assert set(lines) == set(fleet.nodes)
    for line in lines.values():
        assert (line["exit"], text(line), text(line, "err")) == (3, "out-666\n", "err\n")
    begun = [e for e in world.head.store.recent("") if e.kind == "node.exec"]
    assert len(begun) == 1 and "on 4 nodes" in begun[0].text and "n[0-3]" in begun[0].text
    ended = [e for e in world.events_of("n2") if e.kind == "node.exec-ended"]
    assert len(ended) == 1 and "exit status 3" in ended[0].text
    assert "666" not in begun[0].text + ended[0].text, "never what it said"


async def test_dead_and_hung_nodes_cost_their_time_and_hold_up_nobody(
    fleet: Fleet, api: Any
) -> None:
    fleet["n0"].deaf = True
    fleet["n1"].mute = True
    begun = time.monotonic()
    lines = await run(api, "n[0-3]", "true", timeout_s=0.5, fan_out=0)
    assert time.monotonic() - begun < patience(4.0)
    assert [lines[name].get("exit") for name in ("n2", "n3")] == [0, 0]
    assert lines["n0"]["begun"] is False and "nothing was begun" in lines["n0"]["error"]
    assert lines["n1"].get("begun", True) and "may still run" in lines["n1"]["error"]


async def test_a_command_that_hangs_is_killed_after_its_time(fleet: Fleet, api: Any) -> None:
    lines = await run(api, "n[0-1]", "sleep", "600", timeout_s=0.3)
    for line in lines.values():
        assert "exit" not in line and "longer than 0.3 s and was killed" in line["error"]


async def test_the_time_for_all_of_them_ends_what_runs(fleet: Fleet, api: Any) -> None:
    lines = await run(api, "n[0-3]", "sleep", "600", total_s=0.3, fan_out=2)
    errors = [line["error"] for line in lines.values()]
    assert sum("it was stopped" in e for e in errors) == 2
    assert sum("it was not begun" in e for e in errors) == 2
    assert all(len(node.asked) <= 1 for node in fleet.nodes.values())
    assert sum(len(node.asked) for node in fleet.nodes.values()) == 2


async def test_who_leaves_stops_what_was_begun(fleet: Fleet, api: Any, tmp_path: Any) -> None:
    file = tmp_path / "pids"
    body = {"range": "n[0-1]", "command": ["sh", "-c", f"echo $$ >> {file}; exec sleep 600"]}
    async with api.post("/v1/nodes/exec", json=body) as answer:
        await answer.content.readline()
        async with asyncio.timeout(patience(10.0)):
            while not file.exists() or len(file.read_text().split()) < 2:
                await asyncio.sleep(0.02)
        answer.close()
    pids = file.read_text().split()
    async with asyncio.timeout(patience(10.0)):
        while any(_alive(pid) for pid in pids):
            await asyncio.sleep(0.02)


def _alive(pid: str) -> bool:
    try:
        return b"sleep" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


async def test_output_without_end_is_cut_and_the_command_can_end(fleet: Fleet, api: Any) -> None:
    lines = await run(api, "n0", "sh", "-c", "head -c 3000000 /dev/zero; exit 4")
    line = lines["n0"]
    kept = len(base64.b64decode(line["out"]))
    assert line["exit"] == 4 and kept == 256_000 and line["cut"] == 3_000_000 - kept
    begun = time.monotonic()
    lines = await run(api, "n0", "cat", "/dev/zero", timeout_s=0.4)
    assert "was killed" in lines["n0"]["error"] and lines["n0"]["cut"] > 0
    assert time.monotonic() - begun < patience(4.0)


@pytest.mark.parametrize(
    "says",
    [
        {"ok": True},
        {"ok": True, "exit": "0"},
        {"ok": True, "exit": True},
        {"ok": True, "exit": 0, "cut": "many"},
        {"ok": True, "exit": 0, "out": "no base64!"},
        {"ok": True, "exit": 0, "out": ["eA=="]},
        {"ok": True, "exit": 0, "out": base64.b64encode(bytes(300_000)).decode()},
        {"ok": False, "error": {"a": "b"}},
        {"ok": False, "error": "\x1b[2J" * 1000},
    ],
    ids=[f"lie-{i}" for i in range(9)],
)
async def test_a_node_that_lies_fails_alone(fleet: Fleet, api: Any, says: dict[str, Any]) -> None:
    fleet["n1"].says = says
    lines = await run(api, "n[0-1]", "echo", "well")
    assert text(lines["n0"]) == "well\n" and lines["n1"]["error"]
    assert len(lines["n1"]["error"]) < 700


async def test_a_command_is_run_once_whatever_agent_asks(fleet: Fleet, api: Any) -> None:
    """An agent that takes over finds the request of the one before it."""
    node = fleet["n0"]
    node.mute = True
    task = asyncio.ensure_future(run(api, "n0", "true", timeout_s=5.0))
    requests = node.world.head.kernel.requests
    async with asyncio.timeout(patience(10.0)):
        while not (pending := requests.document(node.record)["requests"]):
            await asyncio.sleep(0.01)
    said: list[Any] = []
    both = asyncio.Event()
    loop = asyncio.get_running_loop()

    def answered(body: Any) -> None:
        said.append(body)
        if len(said) == 2:
            loop.call_soon_threadsafe(both.set)

    node.commands.begin(pending[0], answered)
    node.commands.begin(pending[0], answered)
    await asyncio.wait_for(both.wait(), patience(10.0))
    assert sorted(body["ok"] for body in said) == [False, True]
    assert "replaced meanwhile" in next(b["error"] for b in said if not b["ok"])
    node.resolve(pending[0]["id"], next(b for b in said if b["ok"]))
    assert (await task)["n0"]["exit"] == 0


@pytest.mark.parametrize("path", ["/v1/nodes/exec", "/v1/nodes/copy"])
async def test_a_range_is_always_named(fleet: Fleet, api: Any, path: str) -> None:
    more = (
        {"command": ["true"]}
        if path.endswith("exec")
        else {"path": "/x", "content": {"base64": ""}}
    )
    for nodes, why in (("", "of which nodes"), ("n[0-9]", "there is no node"), ("@no", "no group")):
        async with api.post(path, json={"range": nodes, **more}) as answer:
            assert answer.status == 400 and why in (await answer.json())["error"]
    async with api.get("/v1/logs") as answer:
        assert answer.status == 400 and "of which nodes" in (await answer.json())["error"]
    assert not any(node.asked for node in fleet.nodes.values())


async def test_a_range_with_others_nodes_is_refused_whole(world: World, fleet: Fleet) -> None:
    async with served(world.head, local=False) as network:
        bound = await token(world.head, "bound", "operator", "even", may_exec=True)
        without = await token(world.head, "without", "operator")
        body = {"command": ["true"], "range": "n[0-1]"}
        async with network.post("/v1/nodes/exec", json=body, headers=bound) as answer:
            assert answer.status == 403
            assert "names others than the nodes of the groups even" in await answer.text()
        async with network.post("/v1/nodes/exec", json=body, headers=without) as answer:
            assert answer.status == 403 and "the right exec" in await answer.text()
        assert not any(node.asked for node in fleet.nodes.values())
        body["range"] = "n0,n2"
        async with network.post("/v1/nodes/exec", json=body, headers=bound) as answer:
            assert answer.status == 200 and '"node":"n2"' in await answer.text()


async def test_a_file_is_copied_to_all_and_only_they_may_fetch_it(
    world: World, fleet: Fleet, api: Any
) -> None:
    content = {"base64": base64.b64encode(b"hello\n").decode()}
    body = {"range": "n[0-2]", "path": "/opt/a/file", "content": content, "mode": 0o640}
    lines = await lines_of(api, "/v1/nodes/copy", **body)
    assert [line["changed"] for line in lines.values()] == [True] * 3
    for name in ("n0", "n1", "n2"):
        file = fleet[name].root / "opt/a/file"
        assert (file.read_bytes(), file.stat().st_mode & 0o7777) == (b"hello\n", 0o640)
    assert not (fleet["n3"].root / "opt").exists()
    lines = await lines_of(api, "/v1/nodes/copy", **body)
    assert [line["changed"] for line in lines.values()] == [False] * 3
    digest = fleet["n0"].asked[-1]["digest"]
    assert world.head.part(Remote).content(world.node("n0"), digest) is None, "it is over"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"path": "tmp/x"}, "no absolute path"),
        ({"path": "/tmp/../../x"}, "no absolute path"),
        ({"path": "/tmp/"}, "no absolute path"),
        ({"path": "/tmp/\x1b[2J"}, "no absolute path"),
        ({"path": "/" + "a" * 300}, "no absolute path"),
        ({"content": {"base64": "no base64!"}}, "not base64"),
        ({"content": {"base64": "A" * (MAX_COPY * 4 // 3 + 8)}}, "larger than 8 MiB"),
        ({"owner": "ro:ot"}, "no user or group"),
        ({"mode": 0o10000}, "cannot use the request"),
    ],
    ids=[f"bad-{i}" for i in range(9)],
)
async def test_what_cannot_be_copied_is_refused(
    fleet: Fleet, api: Any, change: dict[str, Any], why: str
) -> None:
    body = {"range": "n0", "path": "/tmp/x", "content": {"base64": "eA=="}, **change}
    data = io.BytesIO(json.dumps(body).encode())
    async with api.post("/v1/nodes/copy", data=data) as answer:
        assert answer.status == 400 and why in (await answer.json())["error"]


@pytest.mark.parametrize(
    "change", [{"owner": "9" * 20}, {"path": "/a" * 1500}], ids=["no-such-user", "deep"]
)
async def test_a_copy_that_no_node_can_do_is_answered_at_once(
    fleet: Fleet, api: Any, change: dict[str, Any]
) -> None:
    body = {"range": "n0", "path": "/tmp/x", "content": {"base64": "eA=="}, **change}
    lines = await lines_of(api, "/v1/nodes/copy", timeout_s=5.0, **body)
    assert lines["n0"]["error"].startswith("n0 says: cannot"), lines


async def test_an_answer_of_before_a_restart_is_no_other_requests(
    world: World, fleet: Fleet, api: Any
) -> None:
    node = fleet["n0"]
    node.mute = True

    async def asked() -> int:
        requests = world.head.kernel.requests
        async with asyncio.timeout(patience(10.0)):
            while not (found := requests.document(node.record)["requests"]):
                await asyncio.sleep(0.01)
        return int(found[0]["id"])

    task = asyncio.ensure_future(run(api, "n0", "true"))
    before = await asked()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    again = NodeRequests(world.head.store, world.head.kernel.sync)  # as another head has them
    task = asyncio.ensure_future(again.request(node.record, {"kind": "exec"}))
    await asyncio.sleep(0)
    (number,) = [request["id"] for request in again.document(node.record)["requests"]]
    assert number != before
    assert not again.resolve(node.record, before, {"ok": True, "exit": 0})
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_no_link_leads_a_copy_out_of_its_root(fleet: Fleet, api: Any, tmp_path: Any) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    victim = outside / "victim"
    victim.write_text("whole")
    root = fleet["n0"].root
    (root / "out").symlink_to(outside)
    (root / "dots").symlink_to("../" * 12 + str(outside).lstrip("/"))
    (root / "victim").symlink_to(victim)
    for path in ("/out/victim", "/dots/victim", "/victim"):
        await lines_of(api, "/v1/nodes/copy", range="n0", path=path, content={"base64": "eA=="})
    assert victim.read_text() == "whole" and list(outside.iterdir()) == [victim]
    assert (root / "victim").read_text() == "x" and not (root / "victim").is_symlink()


async def test_the_audit_says_who_and_what_and_not_the_content(
    world: World, fleet: Fleet, api: Any
) -> None:
    content = base64.b64encode(b"a-secret").decode()
    await lines_of(api, "/v1/nodes/copy", range="n0", path="/x", content={"base64": content})
    await run(api, "n[0-1]", "echo", "hi")
    async with api.get("/v1/audit") as answer:
        records = (await answer.json())["audit"]
    by_request = {record["request"]: record for record in records}
    assert by_request["POST /v1/nodes/exec"]["asked"]["range"] == "n[0-1]"
    assert by_request["POST /v1/nodes/exec"]["asked"]["command"] == ["echo", "hi"]
    copied = by_request["POST /v1/nodes/copy"]
    assert copied["asked"]["path"] == "/x" and content not in json.dumps(copied)


async def test_logs_of_many(fleet: Fleet, api: Any) -> None:
    for name, node in fleet.nodes.items():
        node.says = {"ok": True, "text": f"{name}\nlast"}
    async with api.get("/v1/logs", params={"range": "n[0-1]", "container": "web"}) as answer:
        lines = [json.loads(line) for line in (await answer.text()).splitlines()][1:]
    assert {line["node"]: line["text"] for line in lines} == {"n0": "n0\nlast", "n1": "n1\nlast"}
    assert fleet["n0"].asked[0]["kind"] == "logs" and fleet["n0"].asked[0]["container"] == "web"
