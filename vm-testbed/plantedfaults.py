"""Faults that are planted in a rack, and what `layercake explain` makes of them: `python
vm-testbed/plantedfaults.py`.

Each machine has one fault, but three, which lose their network together when all others have
theirs. Prints what is said of each, and ends with 1 if a cause is not named. `--only PATTERN`
plants those alone whose names match."""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from headclient import HeadRunError
from headrun import HeadRun
from sampleimages import crashing_image, plain_image
from vrack import netns
from vrack.rack import Rack
from vrack.spec import USERNAME, VmSpec

from imageapi.build.squash import squash

LIMIT_S = 900.0
SETTINGS = {
    "sync": {"hello_s": 2.0, "dead_s": 8.0, "probe_s": 3.0},
    "power": {"poll_s": 4.0},
    "boot": {"attempts": 3, "step_s": 120.0, "join_s": 300.0},
    "guard": {"outage_nodes": 2},
}
LARGE_BYTES, HEAD_BYTES = 600 << 20, 4 << 30
ROGUE = "10.99.0.250"
GROUP = "pod"


PLAIN = VmSpec()


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of one machine: what it is, by what its cause is recognised in what is said, and its
    machine."""

    name: str
    said: str
    spec: VmSpec = PLAIN


FAULTS = (
    Fault("dead BMC", r"cannot reach the BMC"),
    Fault("wrong MAC address", r"nothing was heard of its firmware"),
    Fault("no driver for its card", r"driver", VmSpec(nic="e1000")),
    Fault("image that ends at once", r"crash|exit"),
    Fault("image larger than its memory", r"memory|space|large"),
    Fault("rogue DHCP server", r"10\.99\.0\.250|another DHCP server|other server|foreign"),
    Fault("wrong password of its BMC", r"refuses the user or the password"),
    Fault("frozen node", r"frozen|freeze|a person"),
    Fault("hung console", r"console.*has it", VmSpec(sol=True)),
    Fault("cable pulled", r"nothing was heard of its firmware"),
)
OUTAGE = 3


class Planted:
    """A rack with these faults, and its head."""

    def __init__(self, directory: Path, faults: Sequence[Fault]) -> None:
        self.directory, self.faults = directory, faults
        self.rack = Rack(
            directory / "rack", [*(one.spec for one in faults), *(VmSpec() for _ in range(OUTAGE))]
        )
        self.head = HeadRun(self.rack, directory / "head")
        self.index = {one.name: number for number, one in enumerate(faults)}
        self.pod = [f"n{number}" for number in range(len(faults), len(faults) + OUTAGE)]

    def node(self, name: str) -> str:
        return f"n{self.index[name]}"

    def up(self) -> None:
        """The rack, the head, and its images."""
        self.rack.up()
        (self.directory / "head").mkdir(exist_ok=True)
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={HEAD_BYTES}", "tmpfs", self.directory / "head"],
            check=True,
        )
        self.head.init(SETTINGS)
        self.head.start()
        large = self.directory / "large.squashfs"
        tree = self.directory / "large"
        tree.mkdir()
        (tree / "init").symlink_to("payload")
        (tree / "payload").write_bytes(os.urandom(LARGE_BYTES))
        squash(tree, large)
        for name, path in (
            ("plain", plain_image("plain-1")),
            ("crash", crashing_image("crash")),
            ("large", large),
        ):
            self.head.api(
                "POST",
                "/v1/images",
                {"path": str(path), "name": name, "systemd": False, "command": ["/init"]},
                300.0,
            )

    def inventory(self) -> dict[str, Any]:
        """With the faults that are in an inventory."""
        data: dict[str, Any] = yaml.safe_load(self.rack.inventory(images=["plain"]))
        nodes, secrets = data["nodes"], self.rack.secrets
        assert secrets is not None  # noqa: S101 (the rack is up)
        wrong = secrets.password_file.with_name("wrong")
        wrong.write_text("not-the-password\n")
        wrong.chmod(0o600)
        data["groups"][GROUP] = {"domain": True}
        for name in self.pod:
            nodes[name]["groups"].append(GROUP)
        changes: dict[str, dict[str, Any]] = {
            "wrong MAC address": {"mac": "52:54:00:99:99:99"},
            "image that ends at once": {"images": ["crash"]},
            "image larger than its memory": {"images": ["large"]},
        }
        for fault, change in changes.items():
            if fault in self.index:
                nodes[self.node(fault)] |= change
        if "wrong password of its BMC" in self.index:
            nodes[self.node("wrong password of its BMC")]["bmc"]["password"] = {"file": str(wrong)}
        return data

    def plant(self) -> None:
        """The faults that are in the rack."""
        if "dead BMC" in self.index:
            self.rack.pause_bmc(self.index["dead BMC"])
        if "cable pulled" in self.index:
            self.rack.unplug(self.index["cable pulled"])
        if "hung console" in self.index:
            self._hold_console(self.rack.nodes[self.index["hung console"]].bmc_address)
        if "rogue DHCP server" in self.index:
            self._rogue(self.rack.nodes[self.index["rogue DHCP server"]].mac)
        self.head.apply(yaml.safe_dump(self.inventory()))
        if "frozen node" in self.index:
            self.head.cli(
                "freeze", self.node("frozen node"), "--reason", "a planted fault", check=False
            )
        if "rogue DHCP server" in self.index:
            self._be_late(self.index["rogue DHCP server"])

    def _rogue(self, mac: str) -> None:
        """Another machine on the rack's switch that gives one node an address, and a file that is
        not there. It tells iPXE to wait for nobody else (option 175, suboption 176), as the head
        does: whose answer comes first is taken."""
        serve = [
            "exec",
            "dnsmasq",
            "--no-daemon",
            "--port=0",
            "--interface=rogue1",
            "--bind-interfaces",
            "--no-ping",
            "--dhcp-range=10.99.0.240,10.99.0.249",
            "--dhcp-ignore=tag:!known",
            f"--dhcp-host={mac}",
            "--dhcp-boot=pxelinux.0",
            "--dhcp-option-force=encap:175,176,1b",
            f"--dhcp-leasefile={self.directory / 'rogue.leases'}",
        ]
        up = (
            f"until ip address add {ROGUE}/24 dev rogue1; do sleep 0.1; done 2>/dev/null; ip link "
            "set rogue1 up; "
            f"{shlex.join(serve)}"
        )
        inside = self.rack.exec(
            ["unshare", "--net", "sh", "-c", up],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for command in (
            "ip link add rogue0 type veth peer name rogue1",
            "ip link set rogue0 master br0 up",
            f"ip link set rogue1 netns {inside.pid}",
        ):
            done = self.rack.run(command.split())
            if done.returncode:
                raise HeadRunError(
                    f"cannot plant another DHCP server: {command}: {done.stderr.strip()}"
                )

    def _be_late(self, index: int) -> None:
        """The head's answer to a machine that was switched on comes after the other server's; else
        it is a matter of luck."""
        leases = self.directory / "rogue.leases"
        self.head.wait("the machine is on", lambda: self.rack.machine(index)["starts"] > 0, 300)
        pxe = next(
            s["pid"] for s in self.head.api("GET", "/v1/status")["services"] if s["name"] == "pxe"
        )
        os.kill(pxe, signal.SIGSTOP)
        try:
            self.head.wait(
                "the other server has answered",
                lambda: leases.is_file() and leases.read_text(),
                120,
            )
        finally:
            with contextlib.suppress(ProcessLookupError):  # the head has started another
                os.kill(pxe, signal.SIGCONT)

    def _hold_console(self, address: str) -> None:
        """Somebody else has opened a machine's console and left it open: the BMC has one session
        for it."""
        secrets, (ours, its) = self.rack.secrets, pty.openpty()
        assert secrets is not None  # noqa: S101 (the rack is up)
        self.rack.exec(
            [
                "ipmitool",
                "-I",
                "lanplus",
                "-C",
                "3",
                "-H",
                address,
                "-U",
                USERNAME,
                "-f",
                str(secrets.password_file),
                "sol",
                "activate",
            ],
            stdin=its,
            stdout=its,
            stderr=its,
        )
        said = b""
        while b"operational" not in said:
            if not (data := os.read(ours, 4096)):
                raise HeadRunError(f"cannot plant a hung console: {said.decode(errors='replace')}")
            said += data

    def said_of(self, node: str) -> str:
        """What `layercake explain` says of the cause that a node has, "" if it has none."""
        found = self.head.api("GET", "/v1/causes")
        return "; ".join(
            [
                *(
                    f"{c['status']}: {c['text']} ({c['example']})"
                    for c in found["causes"]
                    if node in c["nodes"]
                ),
                *(f"beside that: {one['text']}" for one in found["beside"] if node in one["nodes"]),
            ]
        )

    def named(self, fault: Fault) -> bool:
        """Whether its cause is named."""
        return re.search(fault.said, self.said_of(self.node(fault.name))) is not None

    def outage(self) -> str:
        """Three nodes lose their network together: what is said of that."""
        self.head.wait_converged(LIMIT_S, set(self.pod))
        for number in range(len(self.faults), len(self.faults) + OUTAGE):
            netns.set_link(self.rack.namespace, netns.tap(number), up=False)
        self.head.wait(
            "an outage is called",
            lambda: self.head.api("GET", "/v1/status")["guard"]["outages"],
            120,
        )
        return self.head.cli("status").stdout

    def full(self) -> str:
        """The disk of the head is full: what `layercake explain` says."""
        os.sync()
        left = os.statvfs(self.directory / "head")
        with (self.directory / "head/rubbish").open("wb") as rubbish:
            size = left.f_bavail * left.f_frsize
            while size >= left.f_frsize:  # the head writes meanwhile
                try:
                    os.posix_fallocate(rubbish.fileno(), os.fstat(rubbish.fileno()).st_size, size)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    size //= 2
        netns.set_link(
            self.rack.namespace, netns.tap(len(self.faults)), up=True
        )  # something to be written
        self.head.wait(
            "a full disk is named",
            lambda: re.search(r"the database is unwell.*full", self.explained()),
            120,
        )
        return self.explained()

    def explained(self) -> str:
        """What `layercake explain` says."""
        return self.head.cli("explain", check=False).stdout

    def down(self) -> None:
        """Everything away."""
        self.head.close()
        self.rack.down()
        subprocess.run(["umount", "--lazy", self.directory / "head"], check=False)


def main() -> int:
    """Plants them, waits until each has been named, and says what was said."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="Faults whose names match this.")
    only = parser.parse_args().only
    faults, missed = [one for one in FAULTS if re.search(only, one.name)], 0
    with tempfile.TemporaryDirectory(prefix="layercake-faults-") as directory:
        found = Planted(Path(directory), faults)
        try:
            found.up()
            found.plant()
            for fault in faults:
                try:
                    took = found.head.wait(
                        f"{fault.name} is named", partial(found.named, fault), LIMIT_S
                    )
                    how = f"named (waited {took:.0f} s)"
                except HeadRunError:
                    how, missed = "NOT NAMED", missed + 1
                print(
                    f"{fault.name:<30} {how}  {found.said_of(found.node(fault.name))}", flush=True
                )
            print(found.outage(), flush=True)
            print(found.explained(), flush=True)
            print(found.full(), flush=True)
        finally:
            found.down()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
