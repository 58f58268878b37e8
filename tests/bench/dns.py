"""DNS: questions a second that the head answers, against dnsmasq, in turn in one run, by dnsperf.
`python -m tests.bench.dns`.

Both have the same 2,000 names, as they are set up for a site: the head with its usual limit of
answers that are alike, which what is asked here stays below. The last line is one JSON object.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from layercake.moduleapi.service import FakeLink
from pxe.dns.forwarder import Forwarder
from pxe.dns.names import Names
from pxe.dns.server import DnsServer
from pxe.dns_settings import DnsSettings
from pxe.nodes import from_record
from pxe.notes import Recorder
from pxe.windows import Windows
from tests.support.site import boot_settings

NODES, ROUNDS, SECONDS = 2000, 7, 3
ADDRESS, DOMAIN = "127.0.0.1", "cluster.internal"
CLIENTS, OPEN = "4", "200"
_STARTS_S = 30.0
_TICK = os.sysconf("SC_CLK_TCK")


def ip(number: int) -> str:
    """A node's address."""
    return f"127.1.{number >> 8}.{number & 255}"


async def serve(port: int) -> None:
    """The head's DNS with all names, until it is told to end: then it prints its counters."""
    conf = boot_settings(
        address=ADDRESS, prefix=8, boot={"dns": DnsSettings(serve=True, port=port, domain=DOMAIN)}
    )
    recorder, names = Recorder(FakeLink(), Windows(), time.monotonic), Names(conf, 1)
    for number in range(NODES):
        mac = (0x525400000000 + number).to_bytes(6, "big").hex(":")
        names.update_node(
            from_record(
                f"id{number}", {"name": f"n{number}", "macs": [mac], "ip": ip(number)}, conf
            )
        )
    server = DnsServer(
        conf, names, Forwarder((), ADDRESS, time.monotonic), recorder, time.monotonic
    )
    server.open()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    server.close()
    print(json.dumps(recorder.counters))


def free_port() -> int:
    """A port that nobody has."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((ADDRESS, 0))
        return int(sock.getsockname()[1])


@dataclass
class Server:
    """One that is measured."""

    port: int
    process: subprocess.Popen[str]
    per_s: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    lost: int = 0

    def cpu_s(self) -> float:
        """Seconds of the processor that it has used."""
        words = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / _TICK

    def measure(self, questions: Path) -> None:
        """One round."""
        before = self.cpu_s()
        out = subprocess.run(
            [
                "dnsperf",
                "-s",
                ADDRESS,
                "-p",
                str(self.port),
                "-d",
                str(questions),
                "-l",
                str(SECONDS),
                "-c",
                CLIENTS,
                "-q",
                OPEN,
            ],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        used, done = self.cpu_s() - before, int(_figure(out, r"Queries completed: +(\d+)"))
        if (
            "NOERROR" not in out
            or "(100.00%)" not in out.partition("Response codes:")[2].partition("\n")[0]
        ):
            raise SystemExit(f"not all was answered well:\n{out}")
        self.per_s.append(_figure(out, r"Queries per second: +([\d.]+)"))
        self.cpu_ms.append(used * 1000 / done * 10_000)
        self.lost += int(_figure(out, r"Queries lost: +(\d+)"))


def _figure(out: str, pattern: str) -> float:
    found = re.search(pattern, out)
    if found is None:
        raise SystemExit(f"dnsperf says no {pattern}:\n{out}")
    return float(found[1])


def _answers(server: Server) -> bool:
    name = b"\0\1\1\0\0\1\0\0\0\0\0\0\2n7\7cluster\x08internal\0\0\1\0\1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(0.2)
        sock.connect((ADDRESS, server.port))
        try:
            sock.send(name)
            return sock.recv(512)[7] == 1
        except OSError:
            return False


@contextlib.contextmanager
def running(*words: str, port: int) -> Iterator[Server]:
    """A server that answers."""
    made = Server(port, subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
    try:
        until = time.monotonic() + _STARTS_S
        while not _answers(made):
            if made.process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"{words[0]} does not answer")
            time.sleep(0.05)
        yield made
    finally:
        made.process.terminate()
        made.process.wait(20)


def main() -> None:
    for program in ("dnsperf", "dnsmasq"):
        if shutil.which(program) is None:
            raise SystemExit(f"{program} is missing: vm-testbed/packages.txt")
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        questions = Path(folder, "questions")
        hosts = Path(folder, "hosts")
        ours_at = free_port()
        theirs_at = free_port()
        questions.write_text("".join(f"n{number}.{DOMAIN} A\n" for number in range(NODES)))
        hosts.write_text("".join(f"{ip(number)} n{number}.{DOMAIN}\n" for number in range(NODES)))
        Path(folder).chmod(0o755)
        ours = stack.enter_context(
            running(sys.executable, "-m", "tests.bench.dns", str(ours_at), port=ours_at)
        )
        theirs = stack.enter_context(
            running(
                "dnsmasq",
                "--keep-in-foreground",
                f"--port={theirs_at}",
                f"--listen-address={ADDRESS}",
                "--bind-interfaces",
                "--no-resolv",
                "--no-hosts",
                f"--addn-hosts={hosts}",
                "--cache-size=10000",
                "--conf-file=/dev/null",
                "--pid-file=",
                "--user=root",
                port=theirs_at,
            )
        )
        for number in range(ROUNDS):
            for server in (ours, theirs) if number % 2 else (theirs, ours):
                server.measure(questions)
            print(
                f"round {number + 1}: ours {ours.per_s[-1]:.0f} a second, dnsmasq "
                f"{theirs.per_s[-1]:.0f}",
                flush=True,
            )
        ours.process.terminate()
        counters = json.loads(ours.process.communicate(timeout=20)[0])
    ratios = [mine / other for mine, other in zip(ours.per_s, theirs.per_s, strict=True)]
    print(
        json.dumps(
            {
                "names": NODES,
                "per_s": round(statistics.median(ours.per_s)),
                "dnsmasq_per_s": round(statistics.median(theirs.per_s)),
                "ratio": round(statistics.median(ratios), 3),
                "ratio_least": round(min(ratios), 3),
                "ratio_most": round(max(ratios), 3),
                "cpu_ms_10k": round(statistics.median(ours.cpu_ms), 1),
                "dnsmasq_cpu_ms_10k": round(statistics.median(theirs.cpu_ms), 1),
                "lost": ours.lost,
                "dnsmasq_lost": theirs.lost,
                "limited": counters.get("dns.limited", 0),
            }
        )
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(serve(int(sys.argv[1])))
    else:
        main()
