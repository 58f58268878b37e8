"""Where boot services are measured against their peers: two network namespaces, joined by a cable,
and servers in one of them.

The head's end has ADDRESS, the other end is the machines' and, at RELAY, that of a relay. Our
servers and their peers run in turn, so they have the same addresses and ports.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

ADDRESS, RELAY, PREFIX = "10.77.0.1", "10.77.255.254", 16
INTERFACE, CLIENT = "head0", "rack0"
STARTS_S = 60.0


def ip(number: int) -> str:
    """The address of a node."""
    return f"10.77.{1 + (number >> 8)}.{number & 255}"


def mac(number: int) -> str:
    """The MAC address of a node, as perfdhcp makes them."""
    return (0x525400000000 + number).to_bytes(6, "big").hex(":")


def need(*programs: str) -> None:
    """Ends the benchmark if one of its programs is not installed."""
    for program in programs:
        if shutil.which(program) is None:
            raise SystemExit(f"{program} is missing: vm-testbed/packages.txt")


class Server:
    """One that is measured, with all its threads and children."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def cpu_s(self) -> float:
        """Seconds of the processor that it has used."""
        return sum(_cpu_s(pid) for pid in _family(self.process.pid))

    def tell(self, **words: Any) -> Any:
        """Asks our own server (tests.bench._pxe)."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("our server has ended")
        return json.loads(line)


def _family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(found for child in children for found in _family(int(child)))]


def _cpu_s(pid: int) -> float:
    return (
        sum(
            int(path.read_text().split()[0])
            for path in Path(f"/proc/{pid}/task").glob("*/schedstat")
        )
        / 1e9
    )


class Lab:
    """The namespaces. A context: they are gone at its end, and all servers with them. `folder` is
    for files."""

    def __init__(self) -> None:
        tag = secrets.token_hex(3)
        self.head, self.rack = f"lh{tag}", f"lr{tag}"
        self.folder = Path(tempfile.mkdtemp(prefix="layercake-bench-"))

    def __enter__(self) -> Lab:
        self.folder.chmod(0o755)
        for name in (self.head, self.rack):
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        _ip(
            "link",
            "add",
            INTERFACE,
            "netns",
            self.head,
            "type",
            "veth",
            "peer",
            "name",
            CLIENT,
            "netns",
            self.rack,
        )
        _ip("-n", self.head, "addr", "add", f"{ADDRESS}/{PREFIX}", "dev", INTERFACE)
        _ip("-n", self.rack, "addr", "add", f"{RELAY}/{PREFIX}", "dev", CLIENT)
        for name, interface in ((self.head, INTERFACE), (self.rack, CLIENT)):
            _ip("-n", name, "link", "set", interface, "up")
        _ip(
            "-n", self.head, "route", "add", "10.77.0.0/17", "via", RELAY
        )  # thousands of nodes, and one neighbour
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name in (self.head, self.rack):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def addresses(self, count: int) -> None:
        """Gives the machines' end the addresses of so many nodes."""
        lines = "".join(f"addr add {ip(number)}/{PREFIX} dev {CLIENT}\n" for number in range(count))
        subprocess.run(["ip", "-n", self.rack, "-batch", "-"], input=lines, text=True, check=True)

    def there(self, *words: str) -> list[str]:
        """A command at the machines' end."""
        return ["ip", "netns", "exec", self.rack, *words]

    def boot_files(self, mb: int) -> Path:
        """Makes boot/ with a kernel and an initramfs of so many MB, and ipxe/ with boot programs of
        1 MB. Returns boot/."""
        boot, programs = self.folder / "boot", self.folder / "ipxe"
        for folder in (boot, programs):
            folder.mkdir()
        (boot / "vmlinuz").write_bytes(os.urandom(mb * 200_000))
        (boot / "minos.img").write_bytes(os.urandom(mb * 1_000_000))
        for name in ("undionly.kpxe", "snponly.efi"):
            (programs / name).write_bytes(os.urandom(1_000_000))
        return boot

    @contextlib.contextmanager
    def serving(self, *words: str, env: dict[str, str] | None = None) -> Iterator[Server]:
        """A server at the head's end; it may not answer yet."""
        log = self.folder / f"{Path(words[0]).name}.log"
        with log.open("ab") as errors:
            made = subprocess.Popen(
                ["ip", "netns", "exec", self.head, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=os.environ | (env or {}),
            )
        try:
            yield Server(made)
        except BaseException:
            print(log.read_text()[-3000:], file=sys.stderr)
            raise
        finally:
            made.terminate()
            made.wait(20)

    @contextlib.contextmanager
    def ours(self, **site: Any) -> Iterator[Server]:
        """The boot service, when it has its nodes: see tests.bench._pxe for what it may be told."""
        with self.serving(
            sys.executable,
            "-m",
            "tests.bench._pxe",
            json.dumps({"folder": str(self.folder), **site}),
        ) as server:
            assert server.process.stdout is not None
            ready, _, _ = select.select([server.process.stdout], [], [], STARTS_S)
            if not ready or json.loads(server.process.stdout.readline() or "null") != "ready":
                raise SystemExit("our server does not start")
            yield server


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def until(works: Any, what: str) -> None:
    """Waits until something works."""
    end = time.monotonic() + STARTS_S
    while not works():
        if time.monotonic() > end:
            raise SystemExit(f"{what} does not answer")
        time.sleep(0.05)


def kea(folder: Path, nodes: int) -> list[str]:
    """The command of a Kea with a reservation for each node."""
    config = {
        "Dhcp4": {
            "interfaces-config": {"interfaces": [INTERFACE], "dhcp-socket-type": "udp"},
            "lease-database": {"type": "memfile", "name": str(folder / "leases.csv")},
            "valid-lifetime": 3600,
            "loggers": [
                {"name": "kea-dhcp4", "severity": "ERROR", "output_options": [{"output": "stderr"}]}
            ],
            "host-reservation-identifiers": ["hw-address"],
            "reservations-global": False,
            "reservations-in-subnet": True,
            "reservations-out-of-pool": True,
            "subnet4": [
                {
                    "subnet": f"{ADDRESS}/{PREFIX}",
                    "id": 1,
                    "pools": [],
                    "option-data": [{"name": "routers", "data": ADDRESS}],
                    "reservations": [
                        {
                            "hw-address": mac(number),
                            "ip-address": ip(number),
                            "hostname": f"n{number}",
                        }
                        for number in range(nodes)
                    ],
                }
            ],
        }
    }
    path = folder / "kea.json"
    path.write_text(json.dumps(config))
    return [
        "env",
        f"KEA_PIDFILE_DIR={folder}",
        f"KEA_LOCKFILE_DIR={folder}",
        "kea-dhcp4",
        "-c",
        str(path),
    ]


def dnsmasq(folder: Path, nodes: int, *more: str) -> list[str]:
    """The command of a dnsmasq with a reservation for each node."""
    hosts = folder / "hosts"
    hosts.write_text("".join(f"{mac(number)},{ip(number)},n{number}\n" for number in range(nodes)))
    return [
        "dnsmasq",
        "--keep-in-foreground",
        "--port=0",
        f"--interface={INTERFACE}",
        "--bind-interfaces",
        "--user=root",
        "--conf-file=/dev/null",
        "--pid-file=",
        f"--dhcp-leasefile={folder / 'leases'}",
        f"--dhcp-hostsfile={hosts}",
        "--dhcp-range=10.77.0.0,static,255.255.0.0",
        "--dhcp-authoritative",
        "--no-ping",
        "--quiet-dhcp",
        f"--dhcp-lease-max={nodes * 2}",
        *more,
    ]


def nginx(folder: Path) -> list[str]:
    """The command of an nginx that serves the folder."""
    path = folder / "nginx.conf"
    path.write_text(f"""daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log stderr error; user root;
events {{ worker_connections 4096; }}
http {{ access_log off; sendfile on; tcp_nopush on; server {{ listen {ADDRESS}:8080 backlog=1024; root {folder}; }} }}
""")
    return ["nginx", "-p", str(folder), "-c", str(path)]


def figures(**values: Any) -> None:
    """The last line of a benchmark."""
    print(
        json.dumps(
            {
                key: round(value, 3) if isinstance(value, float) else value
                for key, value in values.items()
            }
        )
    )


def run(words: Sequence[str], timeout: float = 300.0) -> str:
    """What a command says, whatever its result is."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, check=False)
    return done.stdout + done.stderr
