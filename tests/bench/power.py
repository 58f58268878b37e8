"""How fast power is known of 180 BMCs that answer and 60 that are silent, asked all at once by a
service that is new to them.

The BMCs are ipmi_sim, in a network namespace of their own; the silent ones take packets and never
say a word. `live_p99_ms` is the 99th of the times from the start until an answering BMC's state was
there, `dead_s` the time until the last silent one was given up. `warm_p99_ms` is the same once
more, by the same service. Prints one JSON object last.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "vm-testbed"))

from hostnode import HeadNamespace
from vrack.ipmi_bmc import write_config

from layercake.kraken.errors import Unreachable
from layercake.moduleapi.service import FakeLink
from powerman.service import PowerService
from powerman.settings import PowerSettings
from tests.support.in_netns import in_netns
from tests.support.site import site

LIVE, SILENT, ROUNDS = 180, 60, 5
PASSWORD = "of-the-bench"
_STARTS_S = 60.0


def address(number: int) -> str:
    """A BMC's."""
    return f"10.98.{3 + number // 200}.{1 + number % 200}"


def record(number: int) -> dict[str, Any]:
    """What the head tells of a node."""
    return {
        "name": f"n{number}",
        "firmware": "bios",
        "bmc": {
            "driver": "ipmi",
            "address": address(number),
            "port": 623,
            "username": "admin",
            "password": PASSWORD,
        },
    }


@contextlib.contextmanager
def simulators(namespace: str, directory: Path) -> Iterator[None]:
    """The BMCs that answer."""
    children = []
    try:
        for number in range(LIVE):
            home = directory / str(number)
            argv = write_config(home, f"n{number}", address(number), 623, PASSWORD, [])
            config = (
                home / "lan.conf"
            )  # without a program for the machine it keeps one in its head: less of it is measured
            config.write_text(
                "".join(
                    line
                    for line in config.read_text().splitlines(True)
                    if "chassis_control" not in line
                )
            )
            children.append(
                subprocess.Popen(
                    ["nsenter", f"--net=/run/netns/{namespace}", *argv],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
        yield
    finally:
        for child in children:
            child.kill()
        for child in children:
            child.wait()


async def known(service: PowerService, number: int, began: float) -> float:
    """Seconds from `began` until a node's power is known, negative if it was given up."""
    try:
        await service.call("power.status", {"node": f"n{number}"})
    except Unreachable:
        return began - time.monotonic()
    return time.monotonic() - began


async def ask_all(service: PowerService) -> tuple[list[float], list[float]]:
    """The times of those that answered, and of those that did not."""
    began = time.monotonic()
    times = await asyncio.gather(*(known(service, n, began) for n in range(LIVE + SILENT)))
    return sorted(t for t in times if t >= 0), sorted(-t for t in times if t < 0)


async def measure() -> dict[str, Any]:
    """One service, cold and then warm."""
    sockets = []
    for number in range(LIVE, LIVE + SILENT):
        sockets.append(socket.socket(type=socket.SOCK_DGRAM))
        sockets[-1].bind((address(number), 623))
    service = PowerService(polls=False)
    await service.start(FakeLink(), site(), PowerSettings())
    try:
        for number in range(LIVE + SILENT):
            await service.node_changed(f"n{number}", record(number))
        before = resource.getrusage(resource.RUSAGE_SELF)
        live, dead = await ask_all(service)
        after = resource.getrusage(resource.RUSAGE_SELF)
        assert (len(live), len(dead)) == (LIVE, SILENT), (len(live), len(dead))
        warm, _ = await ask_all(service)
    finally:
        await service.stop()
        for a_socket in sockets:
            a_socket.close()
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "live_p99_ms": round(live[int(len(live) * 0.99)] * 1000, 1),
        "live_median_ms": round(live[len(live) // 2] * 1000, 1),
        "dead_s": round(dead[-1], 2),
        "warm_p99_ms": round(warm[int(len(warm) * 0.99)] * 1000, 1),
        "cpu_s": round(cpu, 3),
    }


async def all_are_there() -> None:
    """Waits until each simulator answers."""
    service = PowerService(polls=False)
    await service.start(FakeLink(), site(), PowerSettings())
    try:
        for number in range(LIVE):
            await service.node_changed(f"n{number}", record(number))
        until = time.monotonic() + _STARTS_S
        while (
            left := [n for n in range(LIVE) if await known(service, n, time.monotonic()) < 0]
        ) and time.monotonic() < until:
            await asyncio.sleep(0.5)
        assert not left, f"{len(left)} simulators do not answer"
    finally:
        await service.stop()


def main() -> None:
    """Measures and prints."""
    network = HeadNamespace()
    network.up()
    try:
        subprocess.run(
            ["ip", "-n", network.name, "route", "add", "local", "10.98.0.0/16", "dev", "lo"],
            check=True,
        )
        with tempfile.TemporaryDirectory() as directory, simulators(network.name, Path(directory)):
            in_netns(network.name, all_are_there)
            rounds = [in_netns(network.name, measure) for _ in range(ROUNDS)]
    finally:
        network.down()
    middle = sorted(rounds, key=lambda r: r["live_p99_ms"])[ROUNDS // 2]
    print(
        json.dumps(
            {
                **middle,
                "dead_s": max(r["dead_s"] for r in rounds),
                "live": LIVE,
                "silent": SILENT,
                "rounds": rounds,
            }
        )
    )


if __name__ == "__main__":
    main()
