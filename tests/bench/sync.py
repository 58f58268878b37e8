"""What nodes at rest cost the head, and how soon a client sees what changes on one. `python -m
tests.bench.sync [N ...]`.

Head, fleet and this driver are a process each, in a network namespace of their own: a whole head
with its services, its API and all its loops, and a fleet whose nodes say HELLO each 5 s (100,000
nodes: each 10 s) and nothing else. `n..._rest_core` is the share of one core that the head's
process takes, over REST_S, once all nodes are as they should be; `hellos` says how many HELLOs that
were. Then one node at a time says by a HELLO that it is BUSY: `change_p50_ms` and `change_p99_ms`
are from the datagram to the event at a client of /v1/events/ws. `_rel` is a figure divided by
`calibration_s` (engine.py). Prints one JSON object last.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import random
import socket
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import aiohttp

from layercake.kraken.variables import Layout
from minos.agent.head_link.sync import SyncCodec
from tests.bench._bulk import ADDRESS, KEYS
from tests.bench._growth import growth
from tests.bench._history import quantile
from tests.bench.engine import calibration
from tests.bench.roll import enter
from tests.bench.roll_sim import Api, converged, cpu_s, in_namespace, site

SIZES = (1_000, 10_000, 100_000)
MANY, MANY_HELLO_S, HELLO_S = 100_000, 10.0, 5.0
SETTLE_S, REST_S = 20.0, 30.0
CHANGES, PAUSE_S = 200, 0.05


def hello_s(nodes: int) -> float:
    """Seconds between two HELLOs of a node."""
    return MANY_HELLO_S if nodes >= MANY else HELLO_S


class Speaker:
    """Speaks for nodes of the fleet, beside it: sequence numbers are times, so that both are
    heard."""

    def __init__(self, directory: Path, count: int) -> None:
        data = json.loads((directory / KEYS).read_text())
        self.layout = Layout.from_wire(data["layout"])
        self.mask = sum(self.layout.mask(name) for name in ("image", "busy", "run"))
        chosen = random.Random(1).sample(data["agents"], count)
        self.nodes = [
            (
                a["name"],
                SyncCodec(
                    uuid.UUID(a["node"]).bytes,
                    a["session"],
                    base64.b64decode(a["key"]),
                    data["epoch"],
                    self.layout.digest,
                ),
            )
            for a in chosen
        ]
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.connect((ADDRESS, data["sync"]))

    def say(self, codec: SyncCodec, busy: str, revision: int) -> None:
        """One HELLO."""
        state = self.layout.pack({"run": "SYNC", "image": "ACTIVE", "busy": busy})
        self.socket.send(
            codec.hello(
                time.clock_gettime_ns(time.CLOCK_BOOTTIME),
                revision=revision,
                changes=1,
                mask=self.mask,
                state=state,
            )
        )


async def changes(directory: Path, revision: int) -> list[float]:
    """Seconds from each change to the client."""
    speaker, took = Speaker(directory, CHANGES), []
    async with (
        aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(str(directory / "api.sock"))
        ) as session,
        session.ws_connect("http://head/v1/events/ws?kind=state.changed") as events,
    ):
        for name, codec in speaker.nodes:
            start = time.perf_counter()
            speaker.say(codec, "BUSY", revision)
            while True:
                message = await asyncio.wait_for(events.receive_json(), 30)
                if any(
                    e["node"] == name and e["data"].get("busy", ["", ""])[1] == "BUSY"
                    for e in message["events"]
                ):
                    break
            took.append(time.perf_counter() - start)
            speaker.say(codec, "FREE", revision)
            await asyncio.sleep(PAUSE_S)
    return took


def measure(nodes: int) -> dict[str, Any]:
    """One size, inside the namespace."""
    unit = calibration()
    with site(nodes, hello_s(nodes)) as (api_socket, head, _):
        api = Api(api_socket)
        converged(api, nodes, 180 + nodes / 200)
        time.sleep(SETTLE_S)
        before, cpu, start = (
            api.ask("GET", "/v1/status")["sync"]["hello"],
            cpu_s(head.pid),
            time.monotonic(),
        )
        time.sleep(REST_S)
        share = (cpu_s(head.pid) - cpu) / (time.monotonic() - start)
        status = api.ask("GET", "/v1/status")
        heard = status["sync"]["hello"] - before
        if status["nodes"]["converged"] != nodes or heard < 0.8 * nodes * REST_S / hello_s(nodes):
            raise SystemExit(f"the fleet is not at rest: {heard} HELLOs, {status['nodes']}")
        took = [
            1000 * t
            for t in asyncio.run(
                changes(api_socket.parent, api.ask("GET", "/v1/nodes/s00000")["node"]["revision"])
            )
        ]
        rss = next(
            int(line.split()[1]) / 1000
            for line in Path(f"/proc/{head.pid}/status").read_text().splitlines()
            if line.startswith("VmRSS:")
        )
    return {
        f"n{nodes}_rest_core": round(share, 4),
        f"n{nodes}_rest_core_rel": round(share / unit, 3),
        f"n{nodes}_hellos": heard,
        f"n{nodes}_loop_pause_max_ms": round(1000 * status["loop"]["most_s"], 1),
        f"n{nodes}_change_p50_ms": round(quantile(took, 0.5), 1),
        f"n{nodes}_change_p99_ms": round(quantile(took, 0.99), 1),
        f"n{nodes}_rss_mb": round(rss),
        "calibration_s": round(unit, 3),
    }


def main() -> None:
    """One size after the other, each in a namespace of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nodes", type=int, nargs="*", default=list(SIZES))
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--found", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        enter(options.inside)
        Path(options.found).write_text(json.dumps(measure(options.nodes[0])))
        return
    found: dict[str, Any] = {}
    for nodes in options.nodes:
        with tempfile.TemporaryDirectory(prefix="layercake-sync-") as scratch:
            told = Path(scratch) / "found.json"
            in_namespace("tests.bench.sync", str(nodes), "--found", str(told))
            found |= json.loads(told.read_text())
        print(found, file=sys.stderr)
    print(
        json.dumps(
            found | growth(found, "rest_core", "change_p99_ms", "rss_mb", "loop_pause_max_ms")
        )
    )


if __name__ == "__main__":
    main()
