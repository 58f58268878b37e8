"""What it costs to keep the consoles of 200 machines that boot all at once, and whether a byte is
lost.

The BMCs are MiniBmc on loopback, in a process of their own whose time does not count; ipmitool's
Serial over LAN is tested against them. Each console writes 800 bytes/s, as lines of 80 bytes, five
at a time. That is what a kernel and systemd write while they boot without `quiet` (80 to 100 kB in
100 to 120 s, in bursts), from all machines at the same time and without a pause; a serial line at
115200 baud could do 11,520. A BMC sends what it has, 200 bytes at most, as one packet, and the next
one when that is acknowledged. `alone_core_fraction` is the same with lines that come one by one:
two and a half times as many packets.

`core_fraction` is the processor time of the service over the time that it took; `lost_bytes` are
those that were written and are not in the files afterwards, line ends apart. `delay_p99_ms` is from
when a line was written to its time stamp. Prints one JSON object last.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import multiprocessing
import resource
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from layercake.moduleapi.service import FakeLink
from powerman.console.lines import STAMP, parse_stamp
from powerman.service import PowerService
from powerman.settings import ConsoleSettings, PowerSettings
from tests.support.minibmc import MiniBmc
from tests.support.minisol import MiniSol
from tests.support.site import site

CONSOLES = 200
LINES = 300
LINE = 80
EACH_S = 0.1
BURST = 5
ROUNDS = 3
_LIMIT_S = 120.0


def line(console: int, number: int) -> bytes:
    """What a console writes: who it is, which line, and when."""
    text = f"[{number / 10:12.6f}] n{console} line {number} at {time.time():.3f} "
    return text.ljust(LINE - 2, ".").encode() + b"\r\n"


async def bmcs(pipe: Connection) -> None:
    """The BMCs: says their ports, and writes when it is told to."""
    sols, ports = [MiniSol(piece=200) for _ in range(CONSOLES)], []
    loop = asyncio.get_running_loop()
    for sol in sols:
        _, bmc = await loop.create_datagram_endpoint(
            functools.partial(MiniBmc, sol=sol), local_addr=("127.0.0.1", 0)
        )
        ports.append(bmc.port)
    pipe.send(ports)
    while True:
        while not pipe.poll():
            await asyncio.sleep(0.05)
        burst = pipe.recv()
        if not burst:
            return
        began = loop.time()
        for first in range(0, LINES, burst):
            for console, sol in enumerate(sols):  # spread over the interval, as machines are
                if console % 10 == 0:
                    due = began + EACH_S * (first + burst * console / CONSOLES)
                    await asyncio.sleep(max(0.0, due - loop.time()))
                sol.write(b"".join(line(console, number) for number in range(first, first + burst)))
        while not all(sol.idle for sol in sols):
            await asyncio.sleep(0.05)
        pipe.send(sum(sol.sent for sol in sols))


def serve(pipe: Connection) -> None:
    """The process of the BMCs."""
    asyncio.run(bmcs(pipe))


async def answer(pipe: Connection) -> Any:
    """What the BMCs say."""
    async with asyncio.timeout(_LIMIT_S):
        while not pipe.poll():
            await asyncio.sleep(0.05)
    return pipe.recv()


async def measure(pipe: Connection, ports: list[int], burst: int) -> dict[str, Any]:
    """One service over all BMCs, from nothing to the end of all boots."""
    with tempfile.TemporaryDirectory() as directory:
        service = PowerService(polls=False)
        await service.start(
            FakeLink(), site(data_dir=directory), PowerSettings(console=ConsoleSettings(keep="log"))
        )
        try:
            for console, port in enumerate(ports):
                bmc = {
                    "driver": "ipmi",
                    "address": "127.0.0.1",
                    "port": port,
                    "username": "admin",
                    "password": "pw",
                }
                await service.node_changed(
                    f"n{console}", {"name": f"n{console}", "firmware": "bios", "bmc": bmc}
                )
            await asyncio.gather(
                *(service.call("power.refresh", {"node": f"n{n}"}) for n in range(CONSOLES))
            )
            async with asyncio.timeout(_LIMIT_S):
                while not all(
                    service.consoles.of(f"n{n}").state.value == "open" for n in range(CONSOLES)
                ):
                    await asyncio.sleep(0.1)
            before, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
            pipe.send(burst)
            packets = await answer(pipe)
            await service.consoles.flush()
            after, took = resource.getrusage(resource.RUSAGE_SELF), time.monotonic() - began
            found = [kept(Path(directory) / f"consoles/n{n}.log", n) for n in range(CONSOLES)]
        finally:
            await service.stop()
    delays = sorted(delay for _, delays in found for delay in delays)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "core_fraction": round(cpu / took, 3),
        "lost_bytes": CONSOLES * LINES * (LINE - 2) - sum(size for size, _ in found),
        "took_s": round(took, 1),
        "cpu_s": round(cpu, 2),
        "packets": packets,
        "delay_p99_ms": round(delays[int(len(delays) * 0.99)] * 1000, 1),
    }


def kept(log: Path, console: int) -> tuple[int, list[float]]:
    """(bytes of the lines of that console that are there once and in order, how late each was
    heard)."""
    size, delays, next_one = 0, [], 0
    for text in log.read_text().splitlines():
        said = text[STAMP + 1 :]
        if f"n{console} line {next_one} at " not in said or len(said) != LINE - 2:
            continue
        size, next_one = size + len(said), next_one + 1
        delays.append((parse_stamp(text[:STAMP]) or 0.0) - float(said.split(" at ")[1].split()[0]))
    return size, delays


def main() -> None:
    """Measures and prints."""
    context = multiprocessing.get_context("spawn")
    rounds = []
    for burst in (*[BURST] * ROUNDS, 1):
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(theirs,), daemon=True)
        process.start()
        try:
            rounds.append(asyncio.run(measure(ours, ours.recv(), burst)))
        finally:
            with contextlib.suppress(OSError):
                ours.send(0)
            process.join(5.0)
            process.kill()
        print(json.dumps(rounds[-1]), file=sys.stderr)
    lost, alone = max(r["lost_bytes"] for r in rounds), rounds.pop()
    middle = sorted(rounds, key=lambda r: r["core_fraction"])[ROUNDS // 2]
    print(
        json.dumps(
            {
                **middle,
                "lost_bytes": lost,
                "alone_core_fraction": alone["core_fraction"],
                "consoles": CONSOLES,
                "bytes_per_s": round(LINE / EACH_S),
                "rounds": rounds,
            }
        )
    )


if __name__ == "__main__":
    main()
