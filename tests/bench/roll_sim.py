"""A roll of ten thousand simulated agents: batches of a tenth, and how the head answers people
meanwhile.

Head, agents and this driver are a process each, in a network namespace of their own. The agents are
simulated (layercake.sim); datagrams, pulls and events are the real protocol, and the head is a
whole one (tests/bench/_bulk.py). `roll_s` is from the request to the end of the last gate, with a
gate of no time; `api_p99_ms` is over requests for the status, the roll, a node, and its history,
one each 20 ms from the request on; `loop_pause_max_ms` is the longest that the head's loop was
late, from a minute before the roll. Prints one JSON object last.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "vm-testbed"))

from headclient import UnixConnection
from hostnode import HeadNamespace

from tests.bench._bulk import MANY
from tests.bench._growth import growth
from tests.bench._history import quantile
from tests.bench.engine import calibration
from tests.bench.roll import end_by_signal, enter

PACE_S = 0.02
UP_S, USUAL = 120, 10_000
"""Of so many nodes the figures stand without a number, too."""


class Api:
    """Requests over one connection, each timed."""

    def __init__(self, socket: Path) -> None:
        self._connection = UnixConnection(str(socket), 120.0)
        self.times: list[float] = []

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """One request, with how long it took."""
        start = time.perf_counter()
        self._connection.request(method, path, json.dumps(body) if body is not None else None)
        answer = self._connection.getresponse()
        text = answer.read()
        self.times.append(time.perf_counter() - start)
        if answer.status != 200:
            raise SystemExit(f"{method} {path}: {answer.status} {text!r}")
        return json.loads(text)


def converged(api: Api, nodes: int, limit: float) -> None:
    """Waits until all nodes have spoken, and run what is wanted."""
    end = time.monotonic() + limit
    while nodes > MANY and any(
        node["last_seen_s"] is None
        for node in api.ask("GET", "/v1/nodes?fields=last_seen_s")["nodes"]
    ):
        if time.monotonic() > end:
            raise SystemExit("not all nodes have spoken")
        time.sleep(5.0)
    while (found := api.ask("GET", "/v1/status")["nodes"])["converged"] < nodes:
        if time.monotonic() > end:
            raise SystemExit(f"the nodes do not come up: {found}")
        time.sleep(0.3)


def roll(socket: Path, nodes: int, batch: str) -> dict[str, Any]:
    """The roll, and the answers meanwhile."""
    asker, api = Api(socket), Api(socket)
    converged(asker, nodes, UP_S + nodes / 200)
    time.sleep(2.0)
    cpu = time.process_time()
    pause_s = api.ask("GET", "/v1/status")["loop"]["most_s"]
    start = time.perf_counter()
    request = {"range": "@all", "image": "two", "batch": batch, "health_timeout_s": 0.0}
    begin = threading.Thread(target=asker.ask, args=("POST", "/v1/rolls", request))
    begin.start()
    number = 0
    phases: dict[str, float] = {}
    slow: list[tuple[float, str, int]] = []
    while True:
        rolls = api.ask("GET", "/v1/rolls")["rolls"]
        told = rolls[0] if rolls else {"state": "not begun"}
        if api.times[-1] > 0.05:
            slow.append(
                (round(time.perf_counter() - start, 2), "roll", round(api.times[-1] * 1000))
            )
        phases.setdefault(told["state"], round(time.perf_counter() - start, 2))
        if told["state"] not in ("not begun", "staging", "rolling"):
            break
        path = (
            "/v1/status",
            f"/v1/nodes/s{number * 37 % nodes:05d}",
            f"/v1/nodes/s{number * 37 % nodes:05d}/explain",
        )[number % 3]
        answer = api.ask("GET", path)
        pause_s = max(pause_s, answer["loop"]["most_s"] if path == "/v1/status" else 0.0)
        if api.times[-1] > 0.05:
            slow.append((round(time.perf_counter() - start, 2), path, round(api.times[-1] * 1000)))
        number += 1
        time.sleep(PACE_S)
    took = time.perf_counter() - start
    begin.join()
    if (told["state"], told["counts"]) != ("done", {"done": nodes}):
        raise SystemExit(f"the roll failed: {told}")
    print(
        f"phases {phases}, accepted after {asker.times[-1]:.2f} s, driver "
        f"{time.process_time() - cpu:.1f} s CPU"
    )
    print(f"answers over 50 ms (at, what, ms): {slow[:40]}")
    times = [1000 * t for t in api.times]
    return {
        "roll_s": round(took, 2),
        "api_p99_ms": round(quantile(times, 0.99), 1),
        "api_p50_ms": round(quantile(times, 0.5), 1),
        "api_max_ms": round(max(times), 1),
        "api_answers": len(times),
        "loop_pause_max_ms": round(1000 * pause_s, 1),
    }


def cpu_s(pid: int) -> float:
    """The CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def site(
    nodes: int, hello_s: float = 5.0, shares: tuple[float, ...] = ()
) -> Iterator[tuple[Path, subprocess.Popen[bytes], subprocess.Popen[bytes]]]:
    """The head's API socket, the head and the agents, which say HELLO each `hello_s` seconds,
    inside the namespace. `shares` are those of the agents that SIGUSR1 has fall silent, and
    hang."""
    directory = Path(tempfile.mkdtemp(prefix="layercake-sim-"))
    processes: list[subprocess.Popen[bytes]] = []

    def start(part: str, *arguments: str) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "tests.bench._bulk", part, str(directory), *arguments]
        processes.append(subprocess.Popen(words, stdin=subprocess.DEVNULL))
        return processes[-1]

    try:
        head = start("head", str(nodes), str(hello_s))
        end = time.monotonic() + 180 + nodes / 200
        while not (directory / "agents.json").exists():
            if head.poll() is not None or time.monotonic() > end:
                raise SystemExit("the head does not come up")
            time.sleep(0.1)
        yield directory / "api.sock", head, start("fleet", *map(str, shares))
    except (OSError, http.client.HTTPException) as error:
        raise SystemExit(f"the head does not answer: {error!r}") from error
    finally:
        for process in reversed(processes):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def bench(nodes: int, batch: str) -> dict[str, Any]:
    """All of it, inside the namespace."""
    with site(nodes, 10.0 if nodes > MANY else 5.0) as (socket, head, agents):
        converged(Api(socket), nodes, UP_S + nodes / 200)
        before = cpu_s(head.pid), cpu_s(agents.pid)
        found = roll(socket, nodes, batch)
        of_head, of_agents = cpu_s(head.pid) - before[0], cpu_s(agents.pid) - before[1]
        print(
            f"CPU of the head {of_head:.1f} s, of the agents {of_agents:.1f} s, from two seconds "
            "before the roll on"
        )
        return found | {"head_cpu_s": round(of_head, 1)}


def in_namespace(module: str, *arguments: str) -> None:
    """Runs a benchmark again, as --inside NAMESPACE, in a namespace with the head's address; it is
    ended with this process. Raises SystemExit if it fails."""
    end_by_signal()
    namespace = HeadNamespace()
    namespace.up()
    words = [sys.executable, "-m", module, "--inside", namespace.name, *arguments]
    try:
        with subprocess.Popen(words) as inside:
            try:
                inside.wait(3600)
            finally:
                inside.terminate()
    finally:
        namespace.down()
    if inside.returncode != 0:
        raise SystemExit(inside.returncode)


def main() -> None:
    """Makes the namespace and runs the benchmark in it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1_000, USUAL])
    parser.add_argument("--batch", default="10%")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--found", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        enter(options.inside)
        Path(options.found).write_text(json.dumps(bench(options.nodes[0], options.batch)))
        return
    told: dict[str, Any] = {"calibration_s": round(calibration(), 3), "batch": options.batch}
    for nodes in options.nodes:
        with tempfile.TemporaryDirectory(prefix="layercake-roll-") as scratch:
            file = Path(scratch) / "found.json"
            in_namespace(
                "tests.bench.roll_sim",
                "--nodes",
                str(nodes),
                "--batch",
                options.batch,
                "--found",
                str(file),
            )
            found = json.loads(file.read_text())
        told |= {f"n{nodes}_{name}": value for name, value in found.items()}
        if nodes == USUAL:
            told |= found
    print(json.dumps(told | growth(told, "roll_s", "api_p99_ms", "loop_pause_max_ms")))


if __name__ == "__main__":
    main()
