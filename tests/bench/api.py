"""Reads while the engine converges: `GET /v1/nodes` and `/v1/status` over a Unix socket. `python -m
tests.bench.api [N ...]`.

A head and its API in one process, whose modules are done at once (bench/engine.py: Instant) and
whose nodes are given new goals all the time, 2,000 a second; the client is another process. For
each number of nodes: `ms` is a request of the names, states and statuses of all nodes, from the
request to the last byte (the median), `whole_ms` one of all nodes in full (`first_ms` the first
one, which puts them into words), `same_ms` one that is answered with 304, `since_ms` one of what
has changed since the last, `page_ms` one of 500 nodes, `status_ms` one of the status.
`other_p99_ms` is over requests for single nodes by another process meanwhile,
`loop_pause_max_ms` the longest time that the head's loop stood still.
`calibration_s` is a fixed loop of pure Python, `ms_rel` is `ms` divided by it.
The last line is one JSON object.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import http.client
import json
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from layercake.agents import pki
from layercake.base.process import freeze_heap, gc_loop
from layercake.head.head import Head
from layercake.head.life import THREAD_S
from layercake.head.settings import Settings
from layercake.kraken.converge import Discovered
from tests.bench._growth import growth
from tests.bench._history import quantile
from tests.bench._stalls import Stalls
from tests.bench.engine import Instant, calibration, fields, rss_mb

ADDRESS = "10.64.0.1"
TIMES = 21
STEP, STEP_S = 20, 0.01
PACE_S = 0.01


class Connection(http.client.HTTPConnection):
    """Over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("head", timeout=120)
        self._path = path

    def connect(self) -> None:
        """To the head."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)

    def ask(
        self, path: str, headers: dict[str, str] | None = None
    ) -> tuple[float, http.client.HTTPResponse, bytes]:
        """One request: milliseconds, the answer, and its body."""
        begin = time.perf_counter()
        self.request("GET", path, headers=headers or {})
        answer = self.getresponse()
        body = answer.read()
        took = (time.perf_counter() - begin) * 1000
        if answer.status not in (200, 304):
            raise SystemExit(f"{path}: {answer.status} {body[:200]!r}")
        return took, answer, body


def client(path: str, count: int) -> dict[str, float]:
    """All questions, one after the other, while another process asks for single nodes: one that
    reads many MB keeps its own threads waiting."""
    argv = [sys.executable, "-m", "tests.bench.api", "--other", path, str(count)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        found = questions(Connection(path), count)
        said, _ = other.communicate()
    others = json.loads(said)
    return {
        **found,
        "other_p50_ms": quantile(others, 0.5),
        "other_p99_ms": quantile(others, 0.99),
        "other_max_ms": max(others),
        "others": len(others),
    }


def other(path: str, count: int) -> list[float]:
    """Milliseconds of requests for single nodes, until standard input ends."""
    connection, took = Connection(path), list[float]()
    connection.ask("/v1/status")
    print("begins", flush=True)
    while not select.select([sys.stdin], [], [], PACE_S)[0]:
        took.append(connection.ask(f"/v1/nodes/s{len(took) * 37 % count:06d}")[0])
    return took


def questions(connection: Connection, count: int) -> dict[str, float]:
    """What each takes; the median of several."""
    first, _, body = connection.ask("/v1/nodes")
    change, found = json.loads(body)["change"], {"first_ms": first, "mb": len(body) / 1e6}
    paths = {
        "ms": "/v1/nodes?fields=name,state,status",
        "whole_ms": "/v1/nodes",
        "page_ms": f"/v1/nodes?limit=500&after=s{count // 2:06d}",
        "status_ms": "/v1/status",
    }
    for name, path in paths.items():
        found[name] = statistics.median(connection.ask(path)[0] for _ in range(TIMES))
    times = []
    for _ in range(TIMES):
        took, _, body = connection.ask(f"/v1/nodes?fields=name,state&since={change}")
        change = json.loads(body)["change"]
        times.append(took)
    found["since_ms"] = statistics.median(times)
    same = "/v1/nodes?fields=name,ip"
    tag = connection.ask(same)[1].headers["ETag"]
    found["same_ms"] = statistics.median(
        connection.ask(same, {"If-None-Match": tag})[0] for _ in range(TIMES)
    )
    return found


async def converge(head: Head) -> None:
    """Nodes are found off, and switched on again, in turn."""
    records = list(head.store)
    at = 0
    while True:
        for _ in range(STEP):
            head.engine.post(records[at % len(records)], Discovered({"power": "OFF"}, "bench"))
            at += 1
        await asyncio.sleep(STEP_S)


async def run(directory: Path, count: int) -> dict[str, float]:
    """The head, with the client as another process."""
    pki.create(directory / "pki", ADDRESS)
    (directory / "boot").mkdir()
    path = str(directory / "api.sock")
    head = Head(
        directory,
        Settings(
            interface="lo",
            address=ADDRESS,
            prefix=10,
            socket=path,
            api_listen="127.0.0.1",
            api_port=0,
        ),
    )
    sys.setswitchinterval(THREAD_S)
    instant = Instant()
    instant.post = head.engine.post
    head.engine.runner = instant  # the modules' processes are no part of this
    head.engine.gate = lambda: None
    async with head.desire.transaction() as transaction:
        for number in range(count):
            head.desire.set_images(
                transaction, head.membership.add(transaction, head.table.node(fields(number))), ()
            )
    del transaction
    await head.database.flush(head.store)
    gc.collect()
    freeze_heap()
    api, stalls = head.api(), Stalls()
    await api.start()
    works = converge(head), stalls.measure(), gc_loop()  # what a head always does, too
    tasks = [asyncio.create_task(work) for work in works]
    argv = [sys.executable, "-m", "tests.bench.api", "--client", path, str(count)]
    begin = time.process_time()
    process = await asyncio.create_subprocess_exec(*argv, stdout=subprocess.PIPE)
    out, _ = await process.communicate()
    cpu = time.process_time() - begin
    for task in tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    await api.stop()
    await head.database.close(head.store)
    if process.returncode:
        raise SystemExit("the client failed")
    found: dict[str, float] = json.loads(out)
    return {
        **found,
        "loop_pause_max_ms": stalls.worst * 1000,
        "head_cpu_s": cpu,
        "rss_mb": rss_mb(),
    }


def main() -> None:
    """One size after the other, each in a process of its own."""
    if sys.argv[1:2] == ["--client"]:
        print(json.dumps(client(sys.argv[2], int(sys.argv[3]))))
        return
    if sys.argv[1:2] == ["--other"]:
        print(json.dumps(other(sys.argv[2], int(sys.argv[3]))))
        return
    if sys.argv[1:2] == ["--here"]:
        with tempfile.TemporaryDirectory(prefix="layercake-api-") as scratch:
            print(json.dumps(asyncio.run(run(Path(scratch), int(sys.argv[2])))))
        return
    unit = calibration()
    told: dict[str, float] = {"calibration_s": round(unit, 3)}
    for count in [int(word) for word in sys.argv[1:]] or (1_000, 10_000, 100_000):
        argv = [sys.executable, "-m", "tests.bench.api", "--here", str(count)]
        found = json.loads(
            subprocess.run(argv, check=True, stdout=subprocess.PIPE, timeout=1800).stdout
        )
        found["ms_rel"] = found["ms"] / 1000 / unit
        print(
            f"{count} nodes: " + ", ".join(f"{name} {value:.3f}" for name, value in found.items())
        )
        told |= {f"n{count}_{name}": round(value, 3) for name, value in found.items()}
    print(json.dumps(told | growth(told, "ms", "other_p99_ms", "loop_pause_max_ms")))


if __name__ == "__main__":
    main()
