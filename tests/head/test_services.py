"""Services run in processes of their own, are started again when they die, and never outlive the
head."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from patience import patience

from layercake.head.settings import Settings, save
from layercake.kraken.errors import NotFound, Unreachable
from layercake.main import serve
from layercake.moduleapi import client
from layercake.moduleapi import module_pb2 as pb
from layercake.moduleapi.event_loop.slices import SLICE_S
from layercake.modules.host import AHEAD, TOGETHER_BYTES, ModuleHost, Start
from layercake.modules.manager import Launch, ServiceManager, WaitingProcesses, launch_of
from layercake.notify import Notifier
from tests.support.echo import MODULE, EchoSettings
from tests.support.listener import KeepingListener
from tests.support.site import site

NAME = "echo"
ROOT = Path(__file__).resolve().parents[2]


def launch(**settings: Any) -> Launch:
    return launch_of(MODULE, EchoSettings(**settings), site(), "tests.support.echo:MODULE")


async def until(condition: Callable[[], Any], limit_s: float = 120.0) -> None:
    end = time.monotonic() + patience(limit_s)
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        await asyncio.sleep(0.02)


class Running:
    def __init__(self, directory: Path, settings: dict[str, Any]) -> None:
        self.listener = KeepingListener()
        self.socket = directory / "m.sock"
        self.host = ModuleHost(self.socket)
        self.manager = ServiceManager(
            self.host, self.socket, directory / "log", {NAME: launch(**settings)}
        )
        self.listener.manager = self.manager
        self.status = self.manager.status[NAME]


@asynccontextmanager
async def running(
    directory: Path, settings: dict[str, Any] | None = None
) -> AsyncIterator[Running]:
    run = Running(directory, settings or {})
    await run.host.start(run.listener)
    run.manager.start()
    try:
        yield run
    finally:
        await run.host.stop()
        await run.manager.stop()


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


async def test_a_service_gets_nodes_and_answers(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        await until(lambda: run.status.health == "running")
        run.host.send(
            NAME, pb.FromHead(node_changed=pb.NodeChanged(node="a", json=b'{"ip":"10.0.0.1"}'))
        )
        run.host.send(NAME, pb.FromHead(node_state=pb.NodeState(node="a", values={"power": "ON"})))
        for name in ("far", "gone"):
            run.host.send(
                NAME,
                pb.FromHead(
                    network_changed=pb.NetworkChanged(name=name, json=b'{"subnet":"10.20.0.0/24"}')
                ),
            )
        run.host.send(NAME, pb.FromHead(network_removed=pb.NetworkRemoved(name="gone")))
        dump = await run.host.call(NAME, "echo.dump", {})
        assert dump["networks"] == {"far": {"subnet": "10.20.0.0/24"}}
        assert dump["nodes"] == {"a": {"ip": "10.0.0.1"}}
        assert dump["states"] == {"a": {"power": "ON"}}
        assert dump["cookie"] is None, (
            "the cookie stays in the environment, where children would see it"
        )
        with pytest.raises(NotFound, match="no such call"):
            await run.host.call(NAME, "nonsense", {})


async def test_mutations_end_in_results(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        await until(lambda: run.status.health == "running")
        for number, name in ((1, "echo-fail"), (2, "echo-set"), (3, "echo-bug")):
            run.host.send(
                NAME,
                pb.FromHead(
                    mutate=pb.Mutate(
                        id=number, node="a", mutation=name, params_json=b'{"power":"ON"}'
                    )
                ),
            )
        await until(lambda: len(run.listener.results) == 3)
        results = {r[0]: r for r in run.listener.results}
        assert results[1][1:4] == (False, "cannot do it: told to fail", "ask for something else")
        assert results[2][1:] == (True, "", "", {"power": "ON"})
        assert results[3][1] is False
        assert "secret detail" not in results[3][2]
        assert ("a", "echo.mutated", "echo-set") in run.listener.events


async def test_a_process_that_waited_attaches_when_it_is_needed(tmp_path: Path) -> None:
    waiting = WaitingProcesses(tmp_path / "m.sock", tmp_path / "log")
    outside = Launch(("/bin/sleep", "3600"), Start({}))
    await waiting.start({NAME: launch(), "other": launch(), "outside": outside})
    run = Running(tmp_path, {})
    run.manager.adopt(waiting)
    await run.host.start(run.listener)
    run.manager.start()
    try:
        await until(lambda: run.status.health == "running")
        first = run.status.pid
        assert first is not None and "--wait" in Path(f"/proc/{first}/cmdline").read_text()
        os.kill(first, signal.SIGKILL)
        await until(lambda: run.status.restarts == 1 and run.status.health == "running")
        assert "--wait" not in Path(f"/proc/{run.status.pid}/cmdline").read_text()
        assert waiting.release("other", ("/bin/true",)) is None, "it is another program by now"
        assert waiting.release("outside", outside.command) is None
    finally:
        await waiting.stop()
        await run.host.stop()
        await run.manager.stop()
    assert waiting.release("other", launch().command) is None


async def test_a_head_that_leads_already_starts_no_process_beforehand(tmp_path: Path) -> None:
    waiting = WaitingProcesses(tmp_path / "m.sock", tmp_path / "log")
    asked: list[Mapping[str, Launch]] = []

    def launches() -> Mapping[str, Launch]:
        asked.append({NAME: launch()})
        return asked[0]

    waiting.begin(launches)
    await waiting.stop_starting()
    await waiting.start(launches())
    assert len(asked) == 1 and waiting.release(NAME, launch().command) is None
    await waiting.stop()


async def test_a_killed_service_is_started_again(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        await until(lambda: run.status.health == "running")
        first = run.status.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await until(lambda: run.status.pid not in (None, first) and run.status.health == "running")
        assert run.status.restarts == 1
        assert run.listener.detachments == [NAME]
        assert (await run.host.call(NAME, "echo.dump", {}))["pid"] == run.status.pid


async def test_defect_9_a_service_that_failed_is_well_again_after_a_start(tmp_path: Path) -> None:
    async with running(tmp_path, {"fail": True}) as run:
        await until(lambda: run.status.restarts >= 1)
        assert run.status.health == "cannot start: cannot start: told to fail"
        run.manager.launches[NAME] = launch()
        await until(lambda: run.status.health == "running")
        assert run.status.state.value == "running"


async def test_only_an_instance_that_the_head_started_may_attach(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        await until(lambda: run.status.health == "running")
        assert run.socket.stat().st_mode & 0o777 == 0o600
        run.host.expect(NAME, "expected", "right", Start({}))
        async with grpc.aio.insecure_channel(f"unix:{run.socket}") as channel:
            attach = channel.stream_stream(
                client.METHOD,
                request_serializer=pb.FromService.SerializeToString,
                response_deserializer=pb.FromHead.FromString,
            )

            async def hello() -> AsyncIterator[pb.FromService]:
                yield pb.FromService(
                    hello=pb.Hello(version=1, service=NAME, instance="expected", cookie="wrong")
                )

            with pytest.raises(grpc.aio.AioRpcError) as refused:
                async for _ in attach(hello()):
                    pass
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert (await run.host.call(NAME, "echo.dump", {}))["pid"] == run.status.pid


async def test_a_call_to_a_service_that_is_away_says_so(tmp_path: Path) -> None:
    host = ModuleHost(tmp_path / "m.sock")
    with pytest.raises(Unreachable, match="not running"):
        await host.call(NAME, "echo.dump", {})


def test_defect_9_no_service_outlives_a_killed_head(tmp_path: Path) -> None:
    head = subprocess.Popen(
        [sys.executable, "-m", "tests.support.die_test_head", str(tmp_path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert head.stdout is not None
        pid = int(head.stdout.readline())
        assert Path(f"/proc/{pid}").exists()
    finally:
        head.kill()
        head.wait()
        if head.stdout is not None:
            head.stdout.close()
    end = time.monotonic() + patience(60)
    while _alive(pid):
        assert time.monotonic() < end, f"service {pid} outlived its head"
        time.sleep(0.05)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


class SnapshotListener(KeepingListener):
    """Has a process told of many nodes, as a head does."""

    def __init__(self, host: ModuleHost, count: int) -> None:
        super().__init__()
        self._host = host
        self._count = count

    async def attached(self, service: str) -> None:
        nodes = [f"n{i}" for i in range(self._count)]
        await self._host.snapshot(service, nodes, self._tell)

    def _tell(self, node: str) -> None:
        self._host.send(NAME, pb.FromHead(node_changed=pb.NodeChanged(node=node, json=b"{}")))


def _flat(message: pb.FromHead) -> list[pb.FromHead]:
    return list(message.several.messages) if message.HasField("several") else [message]


def _words(message: pb.FromHead) -> str:
    kind = message.WhichOneof("kind")
    return f"{kind} {getattr(getattr(message, kind), 'node', '')}".strip()


async def _attached(
    tmp_path: Path, version: int, nodes: int = 0
) -> tuple[ModuleHost, AsyncIterator[pb.FromHead]]:
    """A host of a site with nodes, and a module of a version that has attached; and what that one
    is told next."""
    host = ModuleHost(tmp_path / "m.sock")
    host.reports_to = SnapshotListener(host, nodes)
    host.expect(NAME, "i1", "c1", Start({}))

    async def hello() -> AsyncIterator[pb.FromService]:
        yield pb.FromService(
            hello=pb.Hello(service=NAME, instance="i1", cookie="c1", version=version)
        )
        await asyncio.Event().wait()

    messages = host.attach(hello(), None)
    assert (await anext(messages)).WhichOneof("kind") == "settings"
    if not nodes:
        assert (await anext(messages)).WhichOneof("kind") == "ready"
    return host, messages


def _node(number: int, size: int = 10) -> pb.FromHead:
    return pb.FromHead(node_changed=pb.NodeChanged(node=f"n{number}", json=b"x" * size))


async def test_what_waits_for_a_module_comes_together_and_in_order(tmp_path: Path) -> None:
    host, messages = await _attached(tmp_path, client.API_VERSION)
    for number in range(600):
        host.send(NAME, _node(number))
    host.send(NAME, _node(600, TOGETHER_BYTES))
    host.send(NAME, _node(601))
    await host.stop()
    told = [message async for message in messages]
    assert [len(_flat(message)) for message in told] == [256, 256, 88, 1, 2]
    assert max(message.ByteSize() for message in told) < TOGETHER_BYTES + 100
    inner = [one for message in told for one in _flat(message)]
    assert [one.node_changed.node for one in inner[:-1]] == [f"n{i}" for i in range(602)]
    assert inner[-1].stop


async def test_several_modules_are_told_in_turns_and_the_rest_waits_for_one_of_them(
    tmp_path: Path,
) -> None:
    host = ModuleHost(tmp_path / "m.sock")
    told: list[tuple[int, str]] = []
    rounds = 0

    class Listener(KeepingListener):
        async def attached(self, service: str) -> None:
            def work(node: str) -> None:
                told.append((rounds, service))
                end = time.perf_counter() + 1.5 * SLICE_S
                while time.perf_counter() < end:
                    pass

            await host.snapshot(service, [f"n{i}" for i in range(20)], work)

    async def hello(name: str) -> AsyncIterator[pb.FromService]:
        yield pb.FromService(
            hello=pb.Hello(service=name, instance=name, cookie=name, version=client.API_VERSION)
        )
        await asyncio.Event().wait()

    async def until_ready(name: str) -> None:
        async for message in host.attach(hello(name), None):
            if any(one.WhichOneof("kind") == "ready" for one in _flat(message)):
                return

    async def count() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    host.reports_to = Listener()
    for name in ("a", "b"):
        host.expect(name, name, name, Start({}))
    counting = asyncio.create_task(count())
    await asyncio.gather(until_ready("a"), until_ready("b"))
    counting.cancel()
    assert len(told) == 40
    assert max(Counter(at for at, _ in told).values()) == 1, "one slice in each round of the loop"
    assert {name for _, name in told[:4]} == {"a", "b"}, "and each has its turn"


async def test_what_begins_in_the_moment_of_attaching_waits_for_the_snapshot(
    tmp_path: Path,
) -> None:
    host = ModuleHost(tmp_path / "m.sock")
    host.reports_to = SnapshotListener(host, 1)
    host.expect(NAME, "i1", "c1", Start({}))

    async def hello() -> AsyncIterator[pb.FromService]:
        yield pb.FromService(hello=pb.Hello(service=NAME, instance="i1", cookie="c1", version=2))
        await asyncio.Event().wait()

    messages = host.attach(hello(), None)
    assert (await anext(messages)).WhichOneof("kind") == "settings"
    attempt = pb.FromHead(mutate=pb.Mutate(id=1, node="n0", mutation="x", attempt=1))
    sent: list[bool] = []
    first = asyncio.ensure_future(anext(messages))
    asyncio.get_running_loop().call_soon(lambda: sent.append(host.send(NAME, attempt)))
    assert _words(await first) == "node_changed n0"
    assert sent == [False]


async def test_a_call_ends_when_its_module_goes_away_while_it_is_told_of_nodes(
    tmp_path: Path,
) -> None:
    host, messages = await _attached(tmp_path, client.API_VERSION, 3 * AHEAD)
    await anext(messages)
    call = asyncio.create_task(host.call(NAME, "dump", {}, timeout=patience(60)))
    await asyncio.sleep(0)
    await messages.aclose()  # type: ignore[attr-defined]
    with pytest.raises(Unreachable, match="it went away"):
        await call


async def test_a_module_of_the_version_before_is_told_each_thing_by_itself(tmp_path: Path) -> None:
    host, messages = await _attached(tmp_path, 2)
    for number in range(3):
        host.send(NAME, _node(number))
    await host.stop()
    told = [message async for message in messages]
    assert [message.WhichOneof("kind") for message in told] == ["node_changed"] * 3 + ["stop"]


async def test_a_node_that_something_is_done_to_is_told_before_the_others(tmp_path: Path) -> None:
    count = 3 * AHEAD
    host, messages = await _attached(tmp_path, client.API_VERSION, count)
    told = [_words(one) for one in _flat(await anext(messages))]
    assert len(told) < AHEAD
    node = f"n{count - 1}"
    for name in (node, "new"):
        host.send(NAME, pb.FromHead(node_state=pb.NodeState(node=name)))
    host.send(NAME, pb.FromHead(mutate=pb.Mutate(id=1, node=node, mutation="x", attempt=1)))
    host.send(NAME, pb.FromHead(node_removed=pb.NodeRemoved(node=f"n{count - 2}")))
    call = asyncio.create_task(host.call(NAME, "dump", {}))
    while told[-1] != "call":
        told += [_words(one) for one in _flat(await anext(messages))]
    call.cancel()
    assert told.index(f"mutate {node}") == told.index(f"node_changed {node}") + 1 < AHEAD + 512
    assert told.index("node_state new") < told.index(f"mutate {node}")
    assert f"node_state {node}" not in told, "its state is in what it is told of it"
    assert not [words for words in told if words.endswith(f" n{count - 2}")]
    nodes = [words for words in told if words.startswith("node_changed")]
    assert len(nodes) == len(set(nodes)) == count - 1
    assert told[-2:] == ["ready", "call"], "a call waits until all is told"


async def test_what_begins_while_a_module_attaches_is_told_once(tmp_path: Path) -> None:
    """The snapshot that a module gets holds all that is under way: what came a moment before it
    must not come twice."""
    host, listener = ModuleHost(tmp_path / "m.sock"), KeepingListener()
    host.reports_to = listener
    host.expect(NAME, "i1", "c1", Start({}))

    async def hello() -> AsyncIterator[pb.FromService]:
        yield pb.FromService(
            hello=pb.Hello(service=NAME, instance="i1", cookie="c1", version=client.API_VERSION)
        )
        await asyncio.Event().wait()

    messages = host.attach(hello(), None)
    assert (await anext(messages)).WhichOneof("kind") == "settings"
    assert not host.send(
        NAME, pb.FromHead(mutate=pb.Mutate(id=1, node="n0", mutation="x", attempt=1))
    ), "the snapshot will have it"
    assert (await anext(messages)).WhichOneof("kind") == "ready"
    assert host.send(NAME, pb.FromHead(mutate=pb.Mutate(id=2, node="n0", mutation="x", attempt=1)))
    assert (await anext(messages)).mutate.id == 2
    host.send(NAME, pb.FromHead(stop=True))


async def test_a_modules_process_has_no_secret_in_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BMC_PASSWORD", "hunter2")
    monkeypatch.setenv("LAYERCAKE_PASSPHRASE", "hunter3")
    async with running(tmp_path) as run:
        await until(lambda: run.status.health == "running")
        found = (
            Path(f"/proc/{run.status.pid}/environ").read_bytes()
            + Path(f"/proc/{run.status.pid}/cmdline").read_bytes()
        )
    assert b"PATH=" in found and b"hunter" not in found


def test_what_the_head_starts_has_no_secret_in_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[bytes] = []

    async def served(
        data_dir: Path,
        secrets: Mapping[str, str],
        notifier: Notifier,
        inherited: Sequence[socket.socket],
    ) -> None:
        child = await asyncio.create_subprocess_exec(
            "cat", "/proc/self/environ", stdout=subprocess.PIPE
        )
        found.append((await child.communicate())[0])
        found.append(secrets["BMC_PASSWORD"].encode())

    save(tmp_path, Settings(interface="lo", address="127.0.0.1"))
    monkeypatch.setattr("layercake.main._serve", served)
    monkeypatch.setattr("os.umask", lambda mask: 0)
    monkeypatch.setattr(
        "layercake.main.leave_no_core", lambda: None
    )  # other tests raise that limit
    monkeypatch.setenv("BMC_PASSWORD", "hunter2")
    before = dict(os.environ)
    try:
        assert serve(tmp_path) == 0
    finally:
        os.environ.update(before)
    assert b"PATH=" in found[0] and b"hunter2" not in found[0] and found[1] == b"hunter2"
