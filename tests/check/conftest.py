"""A site for `layercake check`: a head in a network namespace, BMCs in another one behind a network
of their own, and a cable that other machines can be put on. All of it is real: ipmi_sim,
sushy-emulator, the head and its modules."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import pytest
import yaml
from headclient import HeadClient
from headinit import init
from hostnode import BRIDGE
from vrack.ipmi_bmc import write_config
from vrack.secrets import make_secrets

ROOT = Path(__file__).resolve().parents[2]
HEAD, MANAGEMENT = "10.99.0.1", "10.96.0.1"
IPMI, REDFISH = ("10.96.0.10", "10.96.0.11"), "10.96.0.12"
DEAD = "10.96.0.99"
_EMULATOR = """\
SUSHY_EMULATOR_FAKE_DRIVER = True
SUSHY_EMULATOR_FAKE_SYSTEMS = [{{"uuid": "{uuid}", "name": "n2", "power_state": "Off", "boot_mode": "{mode}",
                                "nics": [{{"mac": "52:54:00:99:00:02", "ip": "10.99.0.52"}}]}}]
SUSHY_EMULATOR_STATE_DIR = "{state}"
SUSHY_EMULATOR_AUTH_FILE = "{auth}"
SUSHY_EMULATOR_FEATURE_SET = "full"
SUSHY_EMULATOR_SSL_CERT = "{cert}"
SUSHY_EMULATOR_SSL_KEY = "{key}"
"""
_UUID = "99990000-0000-4000-8000-000000000002"


def ip(*words: str) -> None:
    """One `ip` command."""
    subprocess.run(["ip", *words], check=True, capture_output=True)


class CheckSite(HeadClient):
    """The site. `head` and `bmcs` are the namespaces; the nodes n0 and n1 have IPMI, n2 has
    Redfish; all are wanted off."""

    def __init__(self, directory: Path) -> None:
        tag = secrets.token_hex(3)
        super().__init__(Path("/run") / f"lck-{tag}.sock", directory / "head.log")
        self.directory, self.data = directory, directory / "head"
        self.head, self.bmcs, self._tag = f"lck-h{tag}", f"lck-b{tag}", tag
        self._machines: list[str] = []
        self._children: list[subprocess.Popen[Any]] = []
        self._mounts: list[Path] = []
        self.ipmi: list[subprocess.Popen[Any]] = []

    # -- life

    def up(self, mode: str = "UEFI") -> None:
        """Makes the networks, the BMCs and a data directory; no head runs yet."""
        for name in (self.head, self.bmcs):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip(
            "-n",
            self.head,
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
        ip("-n", self.head, "addr", "add", f"{HEAD}/24", "dev", "br0")
        ip("-n", self.head, "link", "set", "br0", "up")
        ip(
            "-n",
            self.head,
            "link",
            "add",
            "mgmt0",
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            self.bmcs,
        )
        ip("-n", self.head, "addr", "add", f"{MANAGEMENT}/24", "dev", "mgmt0")
        ip("-n", self.head, "link", "set", "mgmt0", "up")
        for address in (*IPMI, REDFISH):
            ip("-n", self.bmcs, "addr", "add", f"{address}/24", "dev", "eth0")
        ip("-n", self.bmcs, "link", "set", "eth0", "up")
        self.in_head("sysctl", "-qw", "net.ipv4.ip_forward=0")
        self.machine(
            "switch", "52:54:00:aa:00:00", "10.99.0.2"
        )  # a bridge without a port has no carrier
        self._secrets = make_secrets(self.directory / "bmc", [REDFISH])
        for number, address in enumerate(IPMI):
            self._ipmi(number, address)
        self._redfish(mode)
        self._make_data()
        self.wait("the BMCs answer", self._answer, 60)
        for number in range(len(IPMI)):  # ipmi_sim begins at 0
            self.set_clock(number, int(time.time()))

    def _ipmi(self, number: int, address: str) -> None:
        chassis = self.directory / "chassis.sh"  # a machine that is off for good
        chassis.write_text(
            '#!/bin/sh\n[ "$1" = check ] || for name in "$@"; do [ "$name" = power ] && echo '
            "power:0; "
            '[ "$name" = boot ] && echo boot:default; done; exit 0\n'
        )
        chassis.chmod(0o755)
        argv = write_config(
            self.directory / f"ipmi{number}",
            f"n{number}",
            address,
            623,
            self._secrets.password,
            [str(chassis)],
        )
        with (self.directory / "ipmi.log").open("ab") as log:
            self.ipmi.append(self.spawn(self.bmcs, argv, log))

    def _redfish(self, mode: str) -> None:
        config, s = self.directory / "sushy.py", self._secrets
        state = self.directory / "sushy"
        state.mkdir()
        config.write_text(
            _EMULATOR.format(
                uuid=_UUID, mode=mode, state=state, auth=s.auth_file, cert=s.certificate, key=s.key
            )
        )
        tool = Path(sys.executable).parent / "sushy-emulator"
        self.spawn(
            self.bmcs,
            [str(tool), "--config", str(config), "--interface", REDFISH, "--port", "8000"],
        )

    def _answer(self) -> bool:
        probe = f"import socket; socket.create_connection(('{REDFISH}', 8000), 1)"
        return subprocess.run(
            ["ip", "netns", "exec", self.head, sys.executable, "-c", probe],
            capture_output=True,
            check=False,
        ).returncode == 0 and all(self._ipmi_answers(address) for address in IPMI)

    def _ipmi_answers(self, address: str) -> bool:
        return (
            subprocess.run(
                ["ip", "netns", "exec", self.head, *self._ipmitool(address), "power", "status"],
                capture_output=True,
                check=False,
            ).returncode
            == 0
        )

    def _ipmitool(self, address: str) -> list[str]:
        return [
            "ipmitool",
            "-I",
            "lanplus",
            "-C",
            "3",
            "-H",
            address,
            "-U",
            "admin",
            "-f",
            str(self._secrets.password_file),
        ]

    def ipmitool(self, node: int, *words: str) -> str:
        """What ipmitool prints of a node's BMC."""
        return self.in_head(*self._ipmitool(IPMI[node]), *words)

    def _make_data(self) -> None:
        init(self.data, ["ip", "netns", "exec", self.head], {"socket": str(self.socket)})
        (self.data / "secrets").mkdir(mode=0o700, exist_ok=True)
        for name, value in (("password", self._secrets.password), ("wrong", "not the password")):
            path = self.data / "secrets" / name
            path.touch(mode=0o600)
            path.write_text(value)
        (self.data / "boot").mkdir()
        for name in ("vmlinuz", "minos.img"):  # no machine loads them
            (self.data / "boot" / name).write_bytes(os.urandom(200_001))

    def start_head(self) -> None:
        """Starts the head; returns when its modules run."""
        argv = [sys.executable, "-m", "layercake.cli.main", "serve", "--data-dir", str(self.data)]
        self.serve(lambda log: self.spawn(self.head, argv, log))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *found: object) -> None:
        for child in reversed(self._children):
            child.send_signal(signal.SIGCONT)
            child.terminate()
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        for path in self._mounts:
            subprocess.run(["umount", str(path)], check=False)
        for name in (*self._machines, self.head, self.bmcs):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        self.socket.unlink(missing_ok=True)

    # -- what tests do with it

    def set_clock(self, node: int, seconds: int) -> None:
        """Sets a BMC's clock, in seconds since the epoch (Set SEL Time)."""
        self.ipmitool(
            node,
            "raw",
            "0x0a",
            "0x49",
            *(f"0x{byte:02x}" for byte in seconds.to_bytes(4, "little")),
        )

    def spawn(
        self, namespace: str, argv: Sequence[str], out: Any = subprocess.DEVNULL
    ) -> subprocess.Popen[Any]:
        """A process in a namespace, ended with the site. Not by `ip netns exec`, which hides
        mounts."""
        child = subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{namespace}", *argv],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self._children.append(child)
        return child

    def in_head(self, *argv: str, given: str | None = None) -> str:
        """What a program prints in the head's namespace. Raises CalledProcessError."""
        done = subprocess.run(
            ["ip", "netns", "exec", self.head, *argv],
            capture_output=True,
            text=True,
            check=True,
            input=given,
        )
        return done.stdout

    def machine(self, name: str, mac: str, address: str) -> str:
        """Another machine on the nodes' network: a namespace of its own, whose name is returned."""
        namespace, port = f"lck-{name[:4]}{self._tag}", f"p{len(self._machines)}"
        self._machines.append(namespace)
        ip("netns", "add", namespace)
        ip("-n", namespace, "link", "set", "lo", "up")
        ip(
            "-n",
            self.head,
            "link",
            "add",
            port,
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            namespace,
        )
        ip("-n", namespace, "link", "set", "eth0", "address", mac)
        ip("-n", namespace, "addr", "add", f"{address}/24", "dev", "eth0")
        ip("-n", namespace, "link", "set", "eth0", "up")
        ip("-n", self.head, "link", "set", port, "master", "br0", "up")
        return namespace

    def small_disk(self, path: Path) -> None:
        """Puts a tmpfs of 16 MB there, nearly full."""
        path.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", str(path)], check=True)
        self._mounts.append(path)
        (path / "full").write_bytes(bytes(15 << 20))

    def inventory(
        self, changes: Mapping[str, Mapping[str, Any]] | None = None, *, more: bool = False
    ) -> str:
        """The nodes, with changes of their BMCs: {node: {key: value}}; with `more`, one whose BMC
        is not there."""
        secret = {"username": "admin", "password": {"file": str(self.data / "secrets/password")}}
        bmcs: list[dict[str, Any]] = [{"driver": "ipmi", "address": a, **secret} for a in IPMI]
        bmcs.append(
            {
                "driver": "redfish",
                "address": f"https://{REDFISH}:8000",
                **secret,
                "verify_tls": str(self._secrets.certificate),
            }
        )
        nodes = {
            f"n{i}": {
                "mac": f"52:54:00:99:00:0{i}",
                "ip": f"10.99.0.5{i}",
                "firmware": "bios" if i < 2 else "uefi",
                "bmc": {**bmc, **(changes or {}).get(f"n{i}", {})},
            }
            for i, bmc in enumerate(bmcs)
        }
        if more:
            nodes["n3"] = {
                "mac": "52:54:00:99:00:03",
                "ip": "10.99.0.53",
                "bmc": {"driver": "ipmi", "address": DEAD, **secret},
            }
        return yaml.safe_dump(
            {"defaults": {"images": [], "state": "off"}, "nodes": nodes}, sort_keys=False
        )

    def apply(
        self, changes: Mapping[str, Mapping[str, Any]] | None = None, *, more: bool = False
    ) -> None:
        """Has the head want these nodes."""
        self.api(
            "POST",
            "/v1/inventory/apply",
            {"yaml": self.inventory(changes, more=more), "file": "site.yaml"},
        )

    def check(self, *arguments: str, code: int | None = None) -> dict[str, list[dict[str, Any]]]:
        """What `layercake check --json` says, by the names of the checks."""
        argv = [
            sys.executable,
            "-m",
            "layercake.cli.main",
            "check",
            "--json",
            "--data-dir",
            str(self.data),
            *arguments,
        ]
        done = subprocess.run(
            ["nsenter", f"--net=/run/netns/{self.head}", *argv],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
        assert done.stdout, done.stderr
        answer = json.loads(done.stdout)
        assert "checks" in answer, answer
        assert code is None or done.returncode == code, [
            r for r in answer["checks"] if r["severity"] != "ok"
        ]
        found: dict[str, list[dict[str, Any]]] = {}
        for result in answer["checks"]:
            found.setdefault(result["name"], []).append(result)
        return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CheckSite]:
    """A site that is as it has to be, whose head runs and has its nodes."""
    with CheckSite(tmp_path_factory.mktemp("check")) as made:
        made.up()
        made.start_head()
        made.apply()
        yield made


@pytest.fixture
def site_off(tmp_path: Path) -> Iterator[CheckSite]:
    """A site whose head does not run and has no boot set."""
    with CheckSite(tmp_path) as made:
        made.up()
        yield made


@pytest.fixture
def site_bad(tmp_path: Path) -> Iterator[CheckSite]:
    """One with four nodes: the password of n1 is wrong, n2 boots by the other firmware, and n3 has
    no BMC at its address."""
    with CheckSite(tmp_path) as made:
        made.up(mode="Legacy")
        made.start_head()
        made.apply({"n1": {"password": {"file": str(made.data / "secrets/wrong")}}}, more=True)
        yield made
