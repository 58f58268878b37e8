"""The boot service as a process of its own, for benchmarks: `python -m tests.bench._pxe JSON` (see
`Told`).

It says "ready", and then answers a line of JSON with another: {"do": "counters"}; {"do": "arm",
"nodes": N, "asked": true}, which opens the boot windows of so many nodes anew; {"do": "add",
"count": N}, seconds of the processor for each of so many changed nodes.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from layercake.kraken.events import EventKind, Severity
from layercake.moduleapi.event_loop.sendfile import SendfileLoop
from layercake.moduleapi.service import MutationRequest
from pxe.dhcp.answers import Answer, Answers
from pxe.service import PxeService
from pxe.settings import BootSettings
from tests.bench._lab import ADDRESS, INTERFACE, PREFIX, ip, mac
from tests.support.site import site


class Told(msgspec.Struct, frozen=True):
    """`folder` has boot/ and ipxe/; without them there is nothing to boot. `slow_us`: so many
    microseconds of the processor more for each answer of DHCP, as if it were a slower one."""

    folder: str
    nodes: int = 2000
    slow_us: float = 0.0


class Quiet:
    """A link that counts."""

    def __init__(self) -> None:
        self.events = 0

    def discover(self, node: str, values: Any, why: str) -> None:
        """Nothing."""

    def event(
        self,
        node: str,
        kind: EventKind,
        text: str,
        *,
        severity: Severity | None = None,
        data: Any = None,
    ) -> None:
        """Counts."""
        self.events += 1

    def health(self, text: str) -> None:
        """Nothing."""


def record(number: int, name: str = "n") -> dict[str, Any]:
    """A node as the head tells of it."""
    return {
        "name": f"{name}{number}",
        "macs": [mac(number)],
        "ip": ip(number),
        "arch": "x86_64",
        "firmware": "bios",
        "kernel_args": "quiet",
        "console": "ttyS0",
    }


def slowed(
    to: Callable[[Answers, bytes], Answer], seconds: float
) -> Callable[[Answers, bytes], Answer]:
    """The same, and slower."""

    def slow(answers: Answers, data: bytes) -> Answer:
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass
        return to(answers, data)

    return slow


class Bench:
    """The service, and who asks it."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._service = PxeService()
        self._boots = 0
        self.link = Quiet()

    async def start(self) -> None:
        """Starts it with its nodes."""
        folder = Path(self._told.folder)
        ipxe = folder / "ipxe" if (folder / "ipxe").is_dir() else Path("/usr/lib/ipxe")
        await self._service.start(
            self.link,
            site(interface=INTERFACE, address=ADDRESS, prefix=PREFIX, data_dir=str(folder)),
            BootSettings(ipxe_dir=str(ipxe)),
        )
        for number in range(self._told.nodes):
            await self._service.node_changed(f"id{number}", record(number))
        await self._service.ready()

    async def answer(self, words: dict[str, Any]) -> Any:
        """One line."""
        match words["do"]:
            case "counters":
                return self._service.stats() | {"events": self.link.events}
            case "arm":
                self._boots += 1
                for number in range(words["nodes"]):
                    await self._service.mutate(
                        MutationRequest(
                            number,
                            f"id{number}",
                            "boot-arm",
                            1,
                            10.0,
                            {"token": f"one-use-token-{self._boots}-{number}", "window_s": 3600.0},
                        )
                    )
                    if words.get("asked"):  # as if by DHCP
                        self._service.windows.asked(f"id{number}", mac(number))
                return True
            case "add":
                before = time.process_time()
                for number in range(words["count"]):
                    await self._service.node_changed(f"id{number}", record(number, "other"))
                return (time.process_time() - before) / words["count"]
        raise SystemExit(f"cannot do {words}")


async def main() -> None:
    """Until it is told to end."""
    told = msgspec.json.decode(sys.argv[1], type=Told)
    loop, bench = asyncio.get_running_loop(), Bench(told)
    if told.slow_us:
        setattr(Answers, "to", slowed(Answers.to, told.slow_us / 1e6))  # noqa: B010 (the type checker takes no other way)
    loop.add_signal_handler(signal.SIGTERM, sys.exit, 0)
    await bench.start()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    print(json.dumps("ready"), flush=True)
    while line := await reader.readline():
        print(json.dumps(await bench.answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=SendfileLoop) as runner:
        runner.run(main())
