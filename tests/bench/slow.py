"""A disk that takes two seconds for each write, and a client that reads a byte a second, beside ten
thousand simulated nodes.

Head, agents and this driver are a process each, in a network namespace of their own (roll_sim.py
says what is simulated). The head's directory is a file system of its own, which is frozen for two
seconds at a time and let go for a moment in between. Over `seconds`: `lost` nodes were taken for
silent and `power_actions` done, both have to be 0; `answered` is the share of HELLOs that the head
has heard of those that are due; `api_p99_ms` is over requests for the status and single nodes. The
client asks for all nodes in full (some MB): `client_bytes` it has read at the end, `growth_mb` is
what the head's memory grew by. `slow_told`: nodes become BUSY and FREE all the time, so there is
something to write, and the head said so. Needs root. Prints one JSON object last.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tests.bench._history import quantile
from tests.bench.guard import HARM
from tests.bench.roll import enter
from tests.bench.roll_sim import Api, converged, in_namespace, site
from tests.bench.sync import Speaker

FIFREEZE, FITHAW = 0xC0045877, 0xC0045878
WRITE_S, BETWEEN_S = 2.0, 0.05
HELLO_S, PACE_S, CHANGING = 5.0, 0.05, 25
DISK_BYTES = 2 << 30


@contextlib.contextmanager
def disk(scratch: Path) -> Iterator[Path]:
    """A file system of its own."""
    image, place = scratch / "disk.img", scratch / "disk"
    with image.open("wb") as file:
        file.truncate(DISK_BYTES)
    place.mkdir()
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


@contextlib.contextmanager
def beside(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Works in a thread until the block ends, which the event says."""
    end = threading.Event()
    thread = threading.Thread(target=work, args=(end,))
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def slowly(place: Path, end: threading.Event) -> None:
    """What is written there takes two seconds."""
    handle = os.open(place, os.O_RDONLY)
    while not end.is_set():
        fcntl.ioctl(handle, FIFREEZE, 0)
        time.sleep(WRITE_S)
        fcntl.ioctl(handle, FITHAW, 0)
        time.sleep(BETWEEN_S)
    os.close(handle)


def take(path: Path, read: list[int], end: threading.Event) -> None:
    """A client that asks for all nodes and takes a byte a second."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(b"GET /v1/nodes HTTP/1.1\r\nHost: head\r\n\r\n")
        while not end.wait(1.0) and client.recv(1):
            read[0] += 1


def rss_mb(pid: int) -> float:
    """The memory of a process."""
    return next(
        int(line.split()[1]) / 1000
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("VmRSS:")
    )


def measure(nodes: int, seconds: float, place: Path) -> dict[str, Any]:
    """All of it, inside the namespace."""
    tempfile.tempdir = str(place)
    with site(nodes, HELLO_S) as (path, head, _):
        api = Api(path)
        converged(api, nodes, 180)
        time.sleep(HELLO_S)
        newest = max((e["id"] for e in api.ask("GET", "/v1/events?limit=1")["events"]), default=0)
        before, memory, read = api.ask("GET", "/v1/status")["sync"]["hello"], rss_mb(head.pid), [0]
        speaker, revision = (
            Speaker(path.parent, CHANGING),
            api.ask("GET", "/v1/nodes/s00000")["node"]["revision"],
        )
        with beside(partial(slowly, place)), beside(partial(take, path, read)):
            api.times, start = [], time.monotonic()
            while time.monotonic() - start < seconds:
                speaker.say(
                    speaker.nodes[len(api.times) % CHANGING][1],
                    ("BUSY", "FREE")[len(api.times) // CHANGING % 2],
                    revision,
                )
                api.ask("GET", "/v1/status")
                api.ask("GET", f"/v1/nodes/s{len(api.times) * 37 % nodes:05d}")
                time.sleep(PACE_S)
            heard, grown = (
                api.ask("GET", "/v1/status")["sync"]["hello"] - before,
                rss_mb(head.pid) - memory,
            )
        told = {
            kind: api.ask("GET", f"/v1/events?since={newest}&kind={kind}&limit=5000")["events"]
            for kind in ("sync.lost", "mutation.started", "database.unwell")
        }
        left = api.ask("GET", "/v1/status")["nodes"]["converged"]
    times = [1000 * t for t in api.times]
    return {
        "nodes": nodes,
        "seconds": seconds,
        "lost": len(told["sync.lost"]),
        "power_actions": sum(e["data"]["mutation"] in HARM for e in told["mutation.started"]),
        "answered": round(heard / (nodes * seconds / HELLO_S), 2),
        "api_p99_ms": round(quantile(times, 0.99), 1),
        "converged": left,
        "client_bytes": read[0],
        "growth_mb": round(grown, 1),
        "slow_told": bool(told["database.unwell"]),
    }


def main() -> None:
    """Makes the namespace and the disk, and runs the benchmark in them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.inside:
        in_namespace(
            "tests.bench.slow", "--nodes", str(options.nodes), "--seconds", str(options.seconds)
        )
        return
    enter(options.inside)
    with (
        tempfile.TemporaryDirectory(prefix="layercake-slow-") as scratch,
        disk(Path(scratch)) as place,
    ):
        print(json.dumps(measure(options.nodes, options.seconds, place)))


if __name__ == "__main__":
    main()
