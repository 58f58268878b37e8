"""A pretended node on this machine: a real agent under its real supervisor, in a mount and a
network namespace of its own.

Each has a veth to the head's namespace, no power and no firmware: the caller gives it the token
that a boot would."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from patience import patience

ROOT = Path(__file__).resolve().parents[1]
PYTHON = "/usr/bin/python3"
BRIDGE = "02:6c:61:79:65:72"
_START = """hostname {name} && mount -t cgroup2 none /sys/fs/cgroup && mkdir -p {run} && mount -t tmpfs none {run} &&
mkdir -p /run/layercake {run}/busy.d && mount -t tmpfs none /run/layercake && mkdir /run/layercake/busy.d &&
mount --bind {run}/busy.d /run/layercake/busy.d && cp {token} {run}/token && cp {ca} {run}/ca.pem && cd {root} &&
exec {python} -sSB -m minos.supervisor --run {run} --stop-containers -- --head {head} --ca {run}/ca.pem --node {node} \
  --token-file {run}/token --run {run} --sync {sync} --name {name} --mac {mac} --cgroup {cgroup} {more}"""


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def ask_for_token(data: Path, name: str) -> Path:
    """Begins a boot, as a firmware does that asks by DHCP: a head that hosthead.py runs on `data`
    answers with a new token in the file that is returned, which ends the session of the boot
    before."""
    path = data / "tokens" / name
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.unlink(missing_ok=True)
    path.with_suffix(".boots").touch()
    return path


class HeadNamespace:
    """The head's side: a namespace with a bridge that has `address`."""

    def __init__(self, address: str = "10.97.0.1") -> None:
        self.name = f"lch-{secrets.token_hex(3)}"
        self.address = address

    @property
    def inside(self) -> list[str]:
        """The command that enters it."""
        return ["nsenter", f"--net=/run/netns/{self.name}"]

    def up(self) -> None:
        """Makes it."""
        _ip("netns", "add", self.name)
        _ip("-n", self.name, "link", "set", "lo", "up")
        # An address of its own: a bridge without one takes that of a port, and another one when a
        # port comes or goes.
        _ip(
            "-n",
            self.name,
            "link",
            "add",
            "br0",
            "address",
            BRIDGE,
            "type",
            "bridge",
            "stp_state",
            "0",
            "forward_delay",
            "0",
        )
        _ip("-n", self.name, "addr", "add", f"{self.address}/24", "dev", "br0")
        _ip("-n", self.name, "link", "set", "br0", "up")

    def down(self) -> None:
        """Removes it."""
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True, check=False)


class HostNode:
    """One pretended node, with the last byte of its address as `number`. `code` is where its
    Layercake is, `boot` the boot set that it says it runs; an older agent knows of none."""

    def __init__(self, head: HeadNamespace, name: str, number: int, directory: Path) -> None:
        self.name = name
        self.mac = f"52:54:00:00:02:{number:02x}"
        self.ip = f"{head.address.rsplit('.', 1)[0]}.{number}"
        self.namespace = f"lcn-{secrets.token_hex(3)}"
        self.directory = directory
        self.code, self.boot = ROOT, ""
        self._head = head
        self._process: subprocess.Popen[Any] | None = None

    def start(self, node: str, token: str, head_url: str, ca: Path, sync: str) -> None:
        """Makes the namespaces and starts the agent."""
        self.directory.mkdir(parents=True, exist_ok=True)
        peer, inner = self._peer, "eth0"
        _ip("netns", "add", self.namespace)
        _ip("-n", self.namespace, "link", "set", "lo", "up")
        _ip(
            "-n",
            self._head.name,
            "link",
            "add",
            peer,
            "type",
            "veth",
            "peer",
            "name",
            inner,
            "netns",
            self.namespace,
        )
        _ip("-n", self._head.name, "link", "set", peer, "master", "br0", "up")
        _ip("-n", self.namespace, "addr", "add", f"{self.ip}/24", "dev", inner)
        _ip("-n", self.namespace, "link", "set", inner, "up")
        token_file = self.directory / "token"
        token_file.touch(mode=0o600)
        token_file.write_text(token)
        more = f"--boot {self.boot}" if self.boot else ""
        command = _START.format(
            root=self.code,
            more=more,
            run=self.directory / "run",
            python=PYTHON,
            head=head_url,
            ca=ca,
            node=node,
            sync=sync,
            name=self.name,
            mac=self.mac,
            token=token_file,
            cgroup=self.namespace,
        )
        with (self.directory / "agent.log").open("ab") as log:
            inside = [
                "nsenter",
                f"--net=/run/netns/{self.namespace}",
                "unshare",
                "-m",
                "-u",
                "--propagation",
                "private",
            ]
            self._process = subprocess.Popen(
                [*inside, "sh", "-c", command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def _peer(self) -> str:
        return f"v{self.namespace[4:]}"

    def _unplug(self) -> None:
        """Takes the namespaces' link and the node's namespace away. The link goes first: with the
        namespace it would go later, when the kernel gets round to it, and its name would be in the
        way of the next start."""
        subprocess.run(
            ["ip", "-n", self._head.name, "link", "del", self._peer],
            capture_output=True,
            check=False,
        )
        subprocess.run(["ip", "netns", "del", self.namespace], capture_output=True, check=False)

    @property
    def agent(self) -> int:
        """The pid of the agent."""
        return int(self.inside(self.directory / "run" / "agent.pid").read_text())

    def containers(self) -> dict[str, int]:
        """The pids of the running containers, by their images."""
        found = {}
        for path in self.inside(self.directory / "run" / "images").glob("*.json"):
            try:
                record = json.loads(path.read_text())
            except FileNotFoundError:  # it has ended since
                continue
            if record["phase"] == "RUNNING":
                found[str(record["spec"]["name"])] = int(record["pid"])
        return found

    def log(self) -> str:
        """What the agent has said."""
        return (self.directory / "agent.log").read_text(errors="replace")

    def rss_kb(self) -> int:
        """Resident memory of the agent's process, in kB."""
        if self._process is None:
            return 0
        status = Path(f"/proc/{self.agent}/status").read_text()
        return next(
            int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")
        )

    def inside(self, path: Path) -> Path:
        """A path of the node's own mounts, as it is reached from here. Raises OSError if the node
        does not run."""
        if self._process is None:
            raise ProcessLookupError(f"{self.name} does not run")
        return Path(f"/proc/{self._process.pid}/root") / str(path).lstrip("/")

    def set_busy(self, busy: bool) -> None:
        """What `layercake-busy` does on a node."""
        path = self.inside(self.directory / "run" / "busy")
        if busy:
            path.touch()
        else:
            path.unlink(missing_ok=True)

    def processes(self) -> list[int]:
        """All that runs on it: supervisor, agent and containers."""
        found = subprocess.run(
            ["ip", "netns", "pids", self.namespace], capture_output=True, text=True, check=True
        )
        return [int(pid) for pid in found.stdout.split()]

    def kill(self) -> None:
        """What pulling the plug does: agent and containers end at once, and nothing is tidied
        up."""
        process, self._process = self._process, None
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if process is not None:
            process.wait()
        self._unplug()

    def stop(self) -> None:
        """Ends the agent and its containers, and removes the namespace."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            os.kill(process.pid, signal.SIGTERM)
            end = time.monotonic() + patience(15)
            while process.poll() is None and time.monotonic() < end:
                time.sleep(0.05)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._unplug()
