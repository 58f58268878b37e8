"""Honest joins and answers of the API while strangers and viewers do what they can to keep the head
from both.

A whole head, this driver and the attackers are a process each, in a network namespace of their own;
the attackers have the lowest priority that there is (_attacks.py), so that on two processors their
own work takes nothing from the head. Joins are as a node does them: a new TLS connection from the
node's own address, and its token; JOINERS at a time. API answers are those of the Unix socket and
of the network. With each attack and without it the same is measured in turn: `fraction` is joins a
second with it over those without, `cpu_fraction` joins for a second of the processor that the head
used, which is not disturbed by what else goes on on the machine. `worst_fraction` is the smallest,
`worst_api_p99_ms` the largest. `bystander` is none of the attacks: a program of the same priority
that never speaks to the head. Its fraction is what a machine of shared processors loses beside any
program; below that of a bystander is what an attack costs the head. Prints one JSON object last.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp

from tests.bench._attacks import ATTACKS, CONTROL
from tests.bench._history import quantile
from tests.bench.roll import enter
from tests.bench.roll_sim import cpu_s, in_namespace

JOINERS = 4
ROUNDS = 3
SETTLE_S = 4.0
"""How long an attack goes on before it is measured with it: what lasts counts, and one that is let
through once and then waits has been let through by then."""
PACE_S = 0.02
ADDRESS = "10.97.0.1"


class Driver:
    """Joins nodes and asks the API, and counts."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self._facts = facts
        self._claims = iter(facts["claims"])
        self._tls = ssl.create_default_context(cafile=facts["ca"])
        self._base = f"https://{facts['address']}:{facts['port']}"
        self.failed: list[str] = []
        self.none_left = False

    async def join(self, end: float, times: list[float]) -> None:
        """One node after the other, until the end."""
        while (start := time.monotonic()) < end:
            claim = next(self._claims, None)
            if claim is None:
                self.none_left = True
                return
            body = {k: claim[k] for k in ("node", "token", "mac")} | {
                "boot_id": f"boot-{claim['node']}",
                "version": "1",
            }
            try:
                connector = aiohttp.TCPConnector(local_addr=(claim["ip"], 0), ssl=self._tls)
                async with (
                    aiohttp.ClientSession(
                        connector=connector, timeout=aiohttp.ClientTimeout(20)
                    ) as http,
                    http.post(f"{self._base}/node/v1/join", json=body) as answer,
                ):
                    said = await answer.read()
                    if answer.status != 200:
                        self.failed.append(f"{answer.status} {said[:200]!r}")
                        continue
                times.append(time.monotonic() - start)
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                self.failed.append(repr(error))

    async def ask(
        self, http: aiohttp.ClientSession, base: str, end: float, times: list[float]
    ) -> None:
        """Status, a node, and its history, in turn."""
        number = 0
        while (start := time.monotonic()) < end:
            path = (
                "/v1/status",
                "/v1/nodes/s00001",
                "/v1/nodes/s00001/explain",
                "/v1/events?limit=50",
            )[number % 4]
            number += 1
            try:
                async with http.get(f"{base}{path}") as answer:
                    await answer.read()
                    if answer.status != 200:
                        self.failed.append(f"{path}: {answer.status}")
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                self.failed.append(f"{path}: {error!r}")
            times.append(time.monotonic() - start)
            await asyncio.sleep(PACE_S)

    async def measure(self, seconds: float, joins: list[float], answers: list[float]) -> None:
        """Adds the seconds that joins and answers took."""
        limit = aiohttp.ClientTimeout(20)
        watcher = {"Authorization": f"Bearer {self._facts['watcher']}"}
        own = self._facts["claims"][-1]["ip"]  # not an attacker's address
        elsewhere = aiohttp.TCPConnector(ssl=self._tls, local_addr=(own, 0))
        async with (
            aiohttp.ClientSession(
                connector=aiohttp.UnixConnector(self._facts["socket"]), timeout=limit
            ) as local,
            aiohttp.ClientSession(connector=elsewhere, timeout=limit, headers=watcher) as network,
        ):
            end = time.monotonic() + seconds
            await asyncio.gather(
                *(self.join(end, joins) for _ in range(JOINERS)),
                self.ask(local, "http://head", end, answers),
                self.ask(network, self._base, end, answers),
            )


@contextlib.contextmanager
def head(
    directory: Path, address: str, nodes: int, *arguments: str
) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """A head, and where what it says of itself is."""
    command = [
        sys.executable,
        "-m",
        "tests.bench._abusehead",
        str(directory),
        address,
        str(nodes),
        *arguments,
    ]
    with (directory / "head.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log)
    try:
        end = time.monotonic() + 120
        while not (directory / "facts.json").exists():
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit(
                    f"the head does not come up: {(directory / 'head.log').read_text()[-2000:]}"
                )
            time.sleep(0.1)
        yield directory / "facts.json", process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def under_attack(name: str, facts: Path) -> Iterator[None]:
    """While one of the attacks goes on."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench._attacks", name, str(facts)], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(SETTLE_S)
        yield
    finally:
        process.kill()
        process.communicate()


def bench(nodes: int, seconds: float, bare: bool, only: str | None = None) -> dict[str, Any]:
    """All attacks, one after the other, or one; each meets a head of its own."""
    found: dict[str, dict[str, float]] = {}
    failed: list[str] = []
    log = 0
    for name in [only] if only else ATTACKS:
        directory = Path(tempfile.mkdtemp(prefix="layercake-abuse-"))
        try:
            driver, found[name] = one_attack(directory, name, nodes, seconds, bare)
            log += (directory / "head.log").stat().st_size
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        failed += driver.failed
    if failed:
        print(f"{len(failed)} honest requests failed, among them: {failed[:5]}")
    attacks = {name: one for name, one in found.items() if name != CONTROL} or found
    return {
        "nodes": nodes,
        "attacks": found,
        "failed": len(failed),
        "log_bytes": log,
        "joins_per_s": round(sum(f["usual_joins_per_s"] for f in found.values()) / len(found), 1),
        "api_p99_ms": max(f["usual_api_p99_ms"] for f in found.values()),
        "worst_fraction": min(f["fraction"] for f in attacks.values()),
        "worst_api_p99_ms": max(f["api_p99_ms"] for f in attacks.values()),
    }


def one_attack(
    directory: Path, name: str, nodes: int, seconds: float, bare: bool
) -> tuple[Driver, dict[str, float]]:
    """One attack on a head. Raises SystemExit if it has too few nodes for so many seconds."""
    address = "127.0.0.1" if bare else ADDRESS
    with head(directory, address, nodes, *(["--bare"] if bare else [])) as (facts, process):
        told = json.loads(facts.read_text())
        told["ports"] = [told["port"]] if bare else [told["port"], 8080, 8081]
        facts.write_text(json.dumps(told))
        driver = Driver(told)
        time.sleep(0 if bare else 3.0)  # its services come up
        found = in_turn(driver, process.pid, name, facts, seconds)
    if driver.none_left:
        raise SystemExit(
            "all nodes have joined before the end: it takes more --nodes for so many --seconds"
        )
    return driver, found


def in_turn(driver: Driver, pid: int, name: str, facts: Path, seconds: float) -> dict[str, float]:
    """An attack, with and without, ROUNDS times in turn: what else goes on on the machine meets
    both."""
    with_it, without = Measured(), Measured()
    for _ in range(ROUNDS):
        time.sleep(SETTLE_S)
        without.add(driver, pid, seconds / ROUNDS)
        with under_attack(name, facts):
            with_it.add(driver, pid, seconds / ROUNDS)
    found = {
        "joins_per_s": with_it.rate(),
        "usual_joins_per_s": without.rate(),
        "fraction": with_it.rate() / without.rate(),
        "cpu_fraction": with_it.per_cpu() / without.per_cpu(),
        "api_p99_ms": 1000 * quantile(with_it.answers, 0.99),
        "usual_api_p99_ms": 1000 * quantile(without.answers, 0.99),
    }
    rounded = {key: round(value, 2) for key, value in found.items()}
    print(f"{name}: {rounded}", flush=True)
    return rounded


class Measured:
    """What was measured in several rounds: when joins and answers took so many seconds, and what
    the head took of a processor."""

    def __init__(self) -> None:
        self.joins: list[float] = []
        self.answers: list[float] = []
        self.seconds = self.cpu = 0.0

    def add(self, driver: Driver, pid: int, seconds: float) -> None:
        """One round more."""
        before = cpu_s(pid)
        asyncio.run(driver.measure(seconds, self.joins, self.answers))
        self.cpu += cpu_s(pid) - before
        self.seconds += seconds

    def rate(self) -> float:
        """Joins a second."""
        return len(self.joins) / self.seconds

    def per_cpu(self) -> float:
        """Joins for a second of the processor that the head used."""
        return len(self.joins) / self.cpu


def prepare() -> None:
    """Inside the namespace: the addresses of nodes and strangers, and a port of the bridge for
    frames of strangers."""
    for words in (
        "link add atk1 type veth peer name atk0",
        "link set atk0 master br0",
        "link set atk0 up",
        "link set atk1 up",
        "route add local 10.98.0.0/16 dev lo",
        "route add local 10.96.0.0/16 dev lo",
    ):
        subprocess.run(["ip", *words.split()], check=True)


def main() -> None:
    """Makes the namespace and runs the benchmark in it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--only", choices=sorted(ATTACKS), help="this attack alone")
    parser.add_argument(
        "--bare", action="store_true", help="without the head's services and without a namespace"
    )
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        enter(options.inside)
        prepare()
    if options.inside or options.bare:
        print(json.dumps(bench(options.nodes, options.seconds, options.bare, options.only)))
        return
    in_namespace(
        "tests.bench.abuse",
        "--nodes",
        str(options.nodes),
        "--seconds",
        str(options.seconds),
        *(["--only", options.only] if options.only else []),
    )


if __name__ == "__main__":
    os.umask(0o077)
    main()
