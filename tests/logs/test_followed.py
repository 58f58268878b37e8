"""Containers' logs of real agents in namespaces of their own, and a console by Serial over LAN, to
a real rsyslog."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "vm-testbed"))

from headclient import HeadClient
from headinit import init
from hostnode import HeadNamespace
from hostsite import HostSite
from smallimages import build_plain_image

from tests.console.conftest import Room, opened
from tests.console.conftest import until as seen
from tests.logs.conftest import Sending
from tests.support.collectors import Otlp, syslog, until
from tests.support.world import World

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.root
def test_containers_logs_reach_the_collector() -> None:
    with tempfile.TemporaryDirectory(prefix="layercake-logs-") as scratch:
        directory = Path(scratch)
        (directory / "collector").mkdir()
        server = syslog(directory / "collector", "tcp", port=5514)
        site = HostSite(
            directory / "site",
            2,
            {"one": build_plain_image(directory / "one.squashfs", "one")},
            groups=["told", "quiet"],
            logs={"site": {"to": "tcp://127.0.0.1:5514", "containers": "@told"}},
        )
        try:
            site.begin()
            with server.running(site.namespace.inside):
                site.wait(
                    "both run",
                    lambda: all(n["status"] == "converged" for n in site.states().values()),
                    120,
                )
                site.wait(
                    "its lines are there",
                    lambda: sum("one line" in text for text in server.texts) >= 3,
                    120,
                )
        finally:
            site.down()
        lines = [line for line in server.lines if "one line" in line[6]]
        assert {(line[2], line[3]) for line in lines} == {("h0", "one")}, (
            "of the nodes that were asked for"
        )
        numbers = [int(line[6].rpartition(" ")[2]) for line in lines]
        assert numbers == list(range(1, 1 + len(numbers))), (
            "each once, in their order, from the first"
        )


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    """The BMC's side of a console."""
    (tmp_path / "powerman").mkdir()
    async with opened(tmp_path / "powerman", known=False) as found:
        yield found


async def test_a_consoles_lines_reach_the_collector(
    world: World, room: Room, sending: Sending, otlp: tuple[Otlp, str]
) -> None:
    async def ask(module: str, method: str, params: Mapping[str, Any], timeout: float = 0.0) -> Any:
        return json.loads(
            json.dumps(await room.service.call(method, json.loads(json.dumps(params))))
        )

    world.head.modules.host.call = ask  # type: ignore[method-assign]
    key = world.node("n0").node.id
    await room.service.node_changed(
        key,
        {
            "name": "n0",
            "firmware": "bios",
            "bmc": {
                "driver": "ipmi",
                "address": "127.0.0.1",
                "port": room.bmc.port,
                "username": "admin",
                "password": "pw",
            },
        },
    )
    await room.service.call("power.refresh", {"node": key})
    await seen("it is open", lambda: room.sol.owner)
    room.sol.write(b"said before\r\n")
    await seen("it is heard", lambda: room.service.consoles.of(key).readers.end > 10)
    found, where = otlp
    async with sending(to=where, consoles="n0"):
        await until(lambda: room.service.consoles.of(key).readers.names == ["logs"])
        room.sol.write(b"\x1b[31mKernel panic\x1b[0m - not syncing\r\n")
        await until(lambda: [r for r in found.records if "Kernel panic" in r["text"]])
    [record] = [r for r in found.records if "Kernel panic" in r["text"]]
    assert (record["host.name"], record["service.name"], record["layercake.source"]) == (
        "n0",
        "console",
        "console",
    )
    assert "\x1b" not in record["text"] and not [
        r for r in found.records if r["text"] == "said before"
    ]


class Served(HeadClient):
    """`layercake serve` in a namespace of its own."""

    def __init__(self, directory: Path, logs: Mapping[str, Any]) -> None:
        super().__init__(directory / "head/api.sock", directory / "head.log")
        self.namespace, self._data, self._logs = HeadNamespace(), directory / "head", logs

    def begin(self) -> None:
        """From nothing to a head that answers."""
        self.namespace.up()
        init(
            self._data,
            self.namespace.inside,
            {"socket": str(self._data / "api.sock"), "logs": self._logs},
        )
        (self._data / "boot").mkdir()
        argv = [
            *self.namespace.inside,
            sys.executable,
            "-m",
            "layercake.cli.main",
            "serve",
            "--data-dir",
            str(self._data),
        ]
        self.serve(
            lambda log: subprocess.Popen(
                argv, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        )

    def end(self) -> None:
        """SIGTERM, and its namespace away."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(60)
        self.namespace.down()


@pytest.mark.root
def test_the_log_of_a_head_reaches_the_collector(tmp_path: Path) -> None:
    (tmp_path / "collector").mkdir()
    server = syslog(tmp_path / "collector", "tcp", port=5514)
    head = Served(tmp_path, {"site": {"to": "tcp://127.0.0.1:5514"}})
    try:
        head.begin()
        with server.running(head.namespace.inside):
            head.wait(
                "its log is there",
                lambda: any(text.startswith("serving ") for text in server.texts),
                120,
            )
            head.api("POST", "/v1/guard/freeze", {"range": "", "reason": "a test of logs"})
            head.wait(
                "an event is there",
                lambda: any("a test of logs" in text for text in server.texts),
                120,
            )
            [frozen] = [line for line in server.lines if "a test of logs" in line[6]]
            assert frozen[4] == "guard.frozen" and frozen[1] == "28"
    finally:
        head.end()
