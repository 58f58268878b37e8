"""Rolls of one node: accepted to the new container running, and the gap from the old one's stop to
the new one's start.

Twenty rolls back and forth between two small images, once on a VM of the rack and once on an agent
on this host in its own mount and network namespace. Accepted and running are both on the head's
clock: when the roll was taken, and when the node's datagram said ACTIVE; the gap is the node's own
measurement. Prints one JSON object last.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "vm-testbed"))

from headrun import HeadRun
from hostnode import HeadNamespace, HostNode
from sampleimages import plain_image
from vrack.rack import Rack

from layercake.agents import pki
from layercake.head.head import Head
from layercake.head.settings import Settings
from tests.bench._history import median, quantile
from tests.support.operations import Operations

CLONE_NEWNET = 0x40000000
ROLLS = 20
IMAGES = ("plain-1", "plain-2")


def figures(history: list[dict[str, Any]]) -> tuple[list[float], list[float]]:
    """Seconds of each roll, and milliseconds of each gap, from a node's history."""
    totals, gaps, accepted = [], [], 0.0
    for event in history:
        if event["kind"] == "image.roll":
            accepted = event["at"]
        elif (
            event["kind"] == "state.changed"
            and event["data"].get("image", ["", ""])[1] == "ACTIVE"
            and accepted
        ):
            totals.append(event["at"] - accepted)
            accepted = 0.0
        elif event["kind"] == "image.rolled":
            gaps.append(event["data"]["gap_ms"])
    return totals, gaps


def on_vm(rolls: int) -> tuple[list[float], list[float]]:
    """The rolls of a VM."""
    scratch = Path(tempfile.mkdtemp(prefix="layercake-bench-"))
    rack = Rack(scratch / "rack", 1)
    head = HeadRun(rack, scratch / "head")
    try:
        rack.up()
        head.init()
        head.start()
        for name in IMAGES:
            body = {
                "path": str(plain_image(name)),
                "name": name,
                "systemd": False,
                "command": ["/init"],
            }
            head.api("POST", "/v1/images", body)
        head.apply(rack.inventory(images=["plain-1"]))
        head.wait_converged(300)
        totals: list[float] = []
        gaps: list[float] = []
        for number in range(rolls):
            since = max(e["id"] for e in head.history("n0"))
            head.api("POST", "/v1/images/roll", {"range": "n0", "image": IMAGES[(number + 1) % 2]})
            head.wait_converged(60)
            head.wait(
                "the event is in",
                lambda: any(e["id"] > since for e in head.history("n0", "image.rolled")),  # noqa: B023
                20,
            )
            a, b = figures([e for e in head.history("n0") if e["id"] > since])
            totals += a
            gaps += b
            time.sleep(0.3)
        return totals, gaps
    finally:
        head.close()
        rack.down()
        shutil.rmtree(scratch, ignore_errors=True)


async def _until(condition: Callable[[], Any], what: str, log: Callable[[], str]) -> None:
    end = time.monotonic() + 60
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"waited in vain: {what}\n{log()}")
        await asyncio.sleep(0.02)


@dataclass(frozen=True, slots=True)
class HostFigures:
    """Seconds of each roll, milliseconds of each gap, and the agent's resident kB at the end."""

    totals: list[float]
    gaps: list[float]
    rss_kb: int


async def host_rolls(directory: Path, namespace: HeadNamespace, rolls: int) -> HostFigures:
    """A head in this process's network namespace, an agent in another, and so many rolls."""
    pki.create(directory / "pki", namespace.address)
    (directory / "boot").mkdir()
    settings = Settings(
        interface="br0", address=namespace.address, socket=str(directory / "api.sock")
    )
    head = Head(directory, settings)
    api, operations = head.api(), Operations(head)
    node = HostNode(namespace, "h0", 10, directory / "h0")
    await head.start()
    await api.start()
    try:
        for name in IMAGES:
            await operations.images.add(
                plain_image(name), name, {"systemd": False, "command": ["/init"]}
            )
        yaml = f"nodes: {{h0: {{mac: '{node.mac}', ip: {node.ip}, images: [plain-1]}}}}"
        await operations.inventory.apply(yaml, "bench", None, False)
        store, record = head.store, head.store.named("h0")
        token = head.joining.open(record, 60)
        node.start(
            record.node.id,
            token,
            settings.head_url,
            directory / "pki/ca.pem",
            f"{settings.address}:{settings.sync.port}",
        )
        await _until(
            lambda: record.value("image") == "ACTIVE", "the agent runs its image", node.log
        )
        totals: list[float] = []
        gaps: list[float] = []
        for number in range(rolls):
            since = store.recent("h0")[-1].id
            image = IMAGES[(number + 1) % 2]
            await operations.rolls.at_once("h0", image, None)
            await _until(
                lambda: record.running and record.running[0].name == image,  # noqa: B023
                f"roll to {image}",
                node.log,
            )
            await _until(
                lambda: any(e.kind == "image.rolled" and e.id > since for e in store.recent("h0")),  # noqa: B023
                "event",
                node.log,
            )
            history = [
                {"kind": e.kind, "at": e.at, "data": e.data}
                for e in store.recent("h0")
                if e.id > since
            ]
            a, b = figures(history)
            totals += a
            gaps += b
            await asyncio.sleep(0.1)
        await asyncio.sleep(1.0)
        return HostFigures(totals, gaps, node.rss_kb())
    finally:
        node.stop()
        await api.stop()
        await head.stop()


def on_host(rolls: int) -> tuple[list[float], list[float]]:
    """The rolls of an agent on this host; the head runs in a network namespace of its own, in a
    child process."""
    namespace = HeadNamespace()
    namespace.up()
    try:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "tests.bench.roll",
                "--inside",
                namespace.name,
                "--rolls",
                str(rolls),
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        if done.returncode != 0:
            raise SystemExit(f"the host's rolls failed:\n{done.stdout}{done.stderr}")
        totals, gaps = json.loads(done.stdout.splitlines()[-1])
        return totals, gaps
    finally:
        namespace.down()


def end_by_signal() -> None:
    """Has SIGTERM end this process as Ctrl-C does: what it has started is cleared away."""

    def ended(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, ended)


def enter(name: str) -> HeadNamespace:
    """Enters the head's network namespace with this process, which clears away when it is ended."""
    end_by_signal()
    namespace = HeadNamespace()
    namespace.name = name
    handle = os.open(f"/run/netns/{name}", os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(handle, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")
    return namespace


def _inside(name: str, rolls: int) -> None:
    namespace = enter(name)
    with tempfile.TemporaryDirectory(prefix="layercake-bench-") as directory:
        found = asyncio.run(host_rolls(Path(directory), namespace, rolls))
    print(json.dumps([found.totals, found.gaps]))


def main() -> None:
    """Runs both parts and prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rolls", type=int, default=ROLLS)
    parser.add_argument("--part", choices=["vm", "host"], action="append")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        _inside(options.inside, options.rolls)
        return
    found: dict[str, Any] = {"rolls": options.rolls}
    for part, run in (("host", on_host), ("vm", on_vm)):
        if options.part and part not in options.part:
            continue
        totals, gaps = run(options.rolls)
        found |= {
            f"{part}_p50_s": round(median(totals), 3),
            f"{part}_p99_s": round(quantile(totals, 0.99), 3),
            f"{part}_gap_p50_ms": round(median(gaps), 1),
            f"{part}_gap_p99_ms": round(quantile(gaps, 0.99), 1),
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
