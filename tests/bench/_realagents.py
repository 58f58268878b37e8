"""A head and many real agents on this machine, and an sshd beside them, in one network namespace.

Each agent runs under its supervisor in namespaces of its own (vm-testbed/hostnode.py), as on a
node, without images. It is joined by a real join, with a token as a boot would bring it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from layercake.agents import pki
from layercake.head.settings import Settings, save
from tests.bench.roll_sim import Api

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "vm-testbed"))

from hostnode import HeadNamespace, HostNode, ask_for_token  # noqa: E402 (the path is needed)

ADDRESS = "10.97.0.1"
FIRST = 20
"""The last byte of the first node's address."""
SSH_PORT = 2222
BATCH = 8
LIMIT_S = 900.0


class RealAgents:
    """`count` agents, by their names."""

    def __init__(self, namespace: str, directory: Path, count: int) -> None:
        self.directory = directory
        self.socket = directory / "api.sock"
        head = HeadNamespace(ADDRESS)
        head.name = namespace
        self.names = [f"r{number:03d}" for number in range(count)]
        self.nodes = {
            name: HostNode(head, name, FIRST + number, directory / name)
            for number, name in enumerate(self.names)
        }
        self._head: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """The head, its inventory, and the agents. Raises SystemExit if they do not come up."""
        data = self.directory / "data"
        data.mkdir()
        pki.create(data / "pki", ADDRESS)
        (data / "boot").mkdir()
        save(data, Settings(interface="br0", address=ADDRESS, socket=str(self.socket)))
        with (self.directory / "head.log").open("wb") as log:
            words = [sys.executable, str(ROOT / "vm-testbed/hosthead.py"), str(data)]
            self._head = subprocess.Popen(words, cwd=ROOT, stdout=log, stderr=log)
        self._wait("the head answers", self.socket.exists)
        api = Api(self.socket)
        inventory = {"nodes": {n.name: {"mac": n.mac, "ip": n.ip} for n in self.nodes.values()}}
        api.ask("POST", "/v1/inventory/apply", {"yaml": yaml.safe_dump(inventory)})
        nodes = {n["name"]: n["id"] for n in api.ask("GET", "/v1/nodes?fields=name,id")["nodes"]}
        for first in range(0, len(self.names), BATCH):
            batch = self.names[first : first + BATCH]
            tokens = {name: ask_for_token(data, name) for name in batch}
            for name, token in tokens.items():
                self._wait(f"{name} has a token", token.exists)
                self._begin(name, nodes[name], token, data)
        self._wait("all have joined", lambda: self._in_sync(api) == len(self.names))

    def _begin(self, name: str, node: str, token: Path, data: Path) -> None:
        ca = data / "pki" / "ca.pem"
        head = f"https://{ADDRESS}:8443"
        self.nodes[name].start(node, token.read_text(), head, ca, f"{ADDRESS}:31415")

    @staticmethod
    def _in_sync(api: Api) -> int:
        nodes = api.ask("GET", "/v1/nodes")["nodes"]
        return sum(node["state"]["run"] == "SYNC" for node in nodes)

    def _wait(self, what: str, condition: Any) -> None:
        end = time.monotonic() + LIMIT_S
        while not condition():
            if time.monotonic() > end or (self._head and self._head.poll() is not None):
                log = (self.directory / "head.log").read_text(errors="replace")[-1000:]
                raise SystemExit(f"waited in vain: {what}\n{log}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Ends them all."""
        for node in self.nodes.values():
            node.stop()
        if self._head is not None:
            self._head.terminate()
            self._head.wait()

    def hang(self, name: str) -> None:
        """The agent of a node stands still."""
        os.kill(self.nodes[name].agent, signal.SIGSTOP)

    def kill(self, name: str) -> None:
        """A node is gone."""
        self.nodes[name].stop()


class Sshd:
    """One sshd at as many addresses of the loopback network as there are nodes, and clush to go
    there."""

    def __init__(self, directory: Path, count: int) -> None:
        self._directory = directory
        self.hosts = [f"127.0.1.{1 + number}" for number in range(count)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Keys, the daemon, and a first connection. Raises OSError, CalledProcessError."""
        for key in ("host", "user"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self._directory / key)],
                check=True,
            )
        (self._directory / "user.pub").rename(self._directory / "authorized")
        Path("/run/sshd").mkdir(exist_ok=True)
        options = {
            "HostKey": self._directory / "host",
            "AuthorizedKeysFile": self._directory / "authorized",
            "Port": SSH_PORT,
            "PidFile": "none",
            "MaxStartups": "1000",
            "StrictModes": "no",
            "UsePAM": "no",
            "PermitRootLogin": "yes",
            "PasswordAuthentication": "no",
            "LogLevel": "ERROR",
        }
        words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
        self._process = subprocess.Popen(["/usr/sbin/sshd", "-D", "-f", "/dev/null", *words])
        end = time.monotonic() + 30
        while self.run("-w", self.hosts[0]).returncode:
            if time.monotonic() > end:
                raise SystemExit("sshd does not come up")
            time.sleep(0.2)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`clush ... true`."""
        options = (
            f"-i {self._directory / 'user'} -p {SSH_PORT} -o StrictHostKeyChecking=no "
            "-o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o IdentitiesOnly=yes"
        )
        program = [sys.executable, "-m", "ClusterShell.CLI.Clush", "-q", "-S", "-o", options]
        return subprocess.run(
            [*program, "-l", "root", *words, "true"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "SSH_AUTH_SOCK": ""},
        )

    def stop(self) -> None:
        """Ends it."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()


@contextlib.contextmanager
def real(namespace: str, count: int) -> Iterator[tuple[RealAgents, Sshd]]:
    """Both, inside the namespace."""
    with tempfile.TemporaryDirectory(prefix="lcx-", dir="/tmp") as scratch:
        directory = Path(scratch)
        agents = RealAgents(namespace, directory, count)
        sshd = Sshd(directory, count)
        try:
            agents.start()
            sshd.start()
            yield agents, sshd
        finally:
            sshd.stop()
            agents.stop()
