"""What powerman and the head keep as time goes on.

    python -m tests.bench.soak [--https N] [--ipmi N] [--polls N] [--agents N] [--dashboards N]

BMCs of both kinds that close connections in every way are polled by a service whose clock runs as
fast as they answer; then nodes say something else in each of `--polls` rounds to a head, whose
dashboards come and go. Each is a process of its own, which says after each hundredth how much
memory (RSS), descriptors, tasks, threads and files it has. `growth` of each is the least in the
last tenth of the samples against the least in the second tenth, less 1: what does not leak has 0.05
at most. `worst_growth` is the largest. With --defect the fault of issue 33 is put back (aiohttp's
`enable_cleanup_closed` on Python 3.11.2), and the memory of powerman grows. The defaults take
a minute; what is recorded is `--https 50 --ipmi 50 --polls 2000 --agents 200 --dashboards 10`.
Prints one JSON object last.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "vm-testbed"))

from layercake.moduleapi.service import FakeLink
from powerman.redfish import web
from powerman.service import PowerService
from powerman.settings import PowerSettings
from tests.bench._closing import ClosingServices
from tests.bench._soakhead import dashboard
from tests.bench._soaksample import SAMPLES, growth, sample
from tests.support.fake_bmc import FakeClock
from tests.support.minibmc import MiniBmc
from tests.support.site import site

POLL_S = 30.0
_LINE_LIMIT = 1 << 20


class Defective:
    """OutgoingConnections as they were before."""

    def __init__(self, *, limit: int = 100, limit_per_host: int = 0) -> None:
        self._connector = aiohttp.TCPConnector(
            limit=limit,
            limit_per_host=limit_per_host,
            enable_cleanup_closed=sys.version_info < (3, 12, 8),
        )

    def session(self, **settings: Any) -> aiohttp.ClientSession:
        """As OutgoingConnections."""
        return aiohttp.ClientSession(connector=self._connector, **settings)

    async def aclose(self) -> None:
        """As OutgoingConnections."""


async def measured(directory: Path, polls: int, *, defect: bool) -> None:
    """The service's process: reads the nodes' records as a line of JSON, and writes samples."""
    if defect:
        setattr(web, "OutgoingConnections", Defective)  # noqa: B010 (mypy sees no such name there)
    clock = FakeClock()
    service = PowerService(clock=clock, polls=False)
    await service.start(
        FakeLink(), site(data_dir=str(directory)), PowerSettings(poll_s=POLL_S, workers=16)
    )
    for number, record in enumerate(json.loads(sys.stdin.readline())):
        await service.node_changed(f"n{number}", record)
    every = max(1, polls // SAMPLES)
    answered = 0
    for number in range(polls):
        clock.time += POLL_S + 1.0
        await asyncio.gather(*service.poll_due())
        answered += sum(
            node.bmc is not None and not node.bmc.outage for node in service.nodes.values()
        )
        if number % every == 0:
            print(json.dumps(sample(directory)), flush=True)
    print(json.dumps({"answered": answered}), flush=True)
    try:
        await service.stop()
    except AttributeError:
        if not defect:
            raise


async def run(arguments: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Serves the BMCs to the service's process; its figures."""
    services = ClosingServices(directory)
    loop = asyncio.get_running_loop()
    login = {"username": "admin", "password": "pw"}
    records = []
    for _ in range(arguments.https):
        bmc = {"driver": "redfish", "address": await services.open(), "verify_tls": False}
        records.append({"name": "n", "firmware": "uefi", "bmc": {**bmc, **login}})
    transports = []
    for _ in range(arguments.ipmi):
        transport, mini = await loop.create_datagram_endpoint(MiniBmc, local_addr=("127.0.0.1", 0))
        transports.append(transport)
        bmc = {"driver": "ipmi", "address": "127.0.0.1", "port": mini.port}
        records.append({"name": "n", "firmware": "bios", "bmc": {**bmc, **login}})
    argv = ["-m", "tests.bench.soak", "--measured", str(directory), "--polls", str(arguments.polls)]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *argv,
        *(["--defect"] if arguments.defect else []),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=_LINE_LIMIT,
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(records).encode() + b"\n")
    lines = [json.loads(line) async for line in process.stdout]
    if await process.wait():
        raise SystemExit("the service's process has failed")
    services.close()
    for transport in transports:
        transport.close()
    polled = arguments.polls * len(records)
    fraction = round(lines[-1]["answered"] / polled, 4) if polled else 1.0
    return {**figures("powerman", lines[:-1]), "answered_fraction": fraction}


async def run_head(arguments: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Plays the dashboards for the head's process; its figures."""
    counts = [str(arguments.agents), str(arguments.polls)]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.bench._soakhead", str(directory), *counts),
        stdout=asyncio.subprocess.PIPE,
        limit=_LINE_LIMIT,
    )
    assert process.stdout is not None
    served = json.loads(await process.stdout.readline())
    ended = asyncio.Event()
    pages = [
        asyncio.create_task(dashboard(served["port"], served["token"], lambda: not ended.is_set()))
        for _ in range(arguments.dashboards)
    ]
    samples = [json.loads(line) async for line in process.stdout]
    ended.set()
    if await process.wait():
        raise SystemExit("the head's process has failed")
    visits = await asyncio.gather(*pages)
    return {**figures("head", samples), "visits": sum(visits)}


def figures(name: str, samples: Sequence[dict[str, float]]) -> dict[str, Any]:
    """How much each figure of a process has grown, and what it was at the end."""
    grown = {key: growth([one[key] for one in samples]) for key in samples[0]}
    last = {f"{name}_last_{key}": round(value, 1) for key, value in samples[-1].items()}
    return {**{f"{name}_{key}_growth": value for key, value in grown.items()}, **last}


def main() -> None:
    """Measures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--https", type=int, default=5, help="BMCs by Redfish over TLS")
    parser.add_argument("--ipmi", type=int, default=5, help="BMCs by IPMI")
    parser.add_argument("--polls", type=int, default=200, help="polls of each")
    parser.add_argument("--agents", type=int, default=20, help="nodes of the head")
    parser.add_argument("--dashboards", type=int, default=2, help="pages that come and go")
    parser.add_argument("--defect", action="store_true", help="put the fault back")
    parser.add_argument("--measured", metavar="DIRECTORY", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measured:
        asyncio.run(measured(Path(arguments.measured), arguments.polls, defect=arguments.defect))
        return
    with tempfile.TemporaryDirectory(prefix="soak-") as directory:
        found = asyncio.run(run(arguments, Path(directory)))
    with tempfile.TemporaryDirectory(prefix="soak-") as directory:
        found |= asyncio.run(run_head(arguments, Path(directory)))
    found["worst_growth"] = max(value for key, value in found.items() if key.endswith("_growth"))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
