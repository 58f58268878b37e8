"""The part of the demo with DISCOVERY=1: two machines that no inventory knows are discovered, taken
in by the switch ports that they are at, get host keys, a RAID over their disks as a scratch, and a
config that is then changed live, and ssh knows them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from headclient import HeadRunError
from headrun import HeadRun
from sampleimages import ssh_image
from vrack import netns
from vrack.rack import Rack
from vrack.spec import VmSpec

LIMIT_S = 600.0
SWITCH = "sw1"
LOOK = "cat /etc/motd; hostname; df -h /scratch"
GUESTS = "10.99.0.200-10.99.0.209"
MOTD = "this is {{ node.name }}, one of {{ nodes | length }}; its port is known, and its config is "


SCRATCH = {
    "scratch": {
        "match": {"transport": "virtio"},
        "count": 2,
        "raid": 0,
        "volumes": {"scratch": {"type": "xfs", "mount": "/scratch", "mode": "1777"}},
    }
}
DISK_BYTES = 1 << 30


def machines(directory: Path) -> list[VmSpec]:
    """The two, each with two empty disks (sparse files)."""
    found = []
    for number in (1, 2):
        more: tuple[str, ...] = ()
        for name in (f"d{number}a", f"d{number}b"):
            file = directory / f"{name}.raw"
            with file.open("wb") as disk:
                disk.truncate(DISK_BYTES)
            more += (
                "-drive",
                f"if=none,id={name},format=raw,file={file}",
                "-device",
                f"virtio-blk-pci,drive={name},serial={name}",
            )
        found.append(VmSpec(more=more))
    return found


class Discovery:
    """Two machines more, the last of the rack. `run` and `say` are the demo's own ways to show what
    happens."""

    def __init__(
        self,
        rack: Rack,
        head: HeadRun,
        directory: Path,
        run: Callable[..., None],
        say: Callable[[str], None],
    ) -> None:
        self.rack, self.head, self.directory, self.layercake, self.say = (
            rack,
            head,
            directory,
            run,
            say,
        )
        self.files = directory / "files"
        self.inventory = directory / "rack.yaml"
        self.new = [len(rack.nodes) - 2, len(rack.nodes) - 1]
        self._switches: list[subprocess.Popen[Any]] = []

    def settings(self) -> dict[str, Any]:
        """What the head is set up with."""
        self.files.mkdir()
        (self.files / "motd.j2").write_text(f"{MOTD}old\n")
        return {
            "files": {"directory": str(self.files)},
            "images": {"privileges": {"ssh-1": ["mounts"]}},
        }

    def add_image(self) -> None:
        """What there has to be in the store more: an image with sshd, which sees the scratch of its
        node."""
        container = self.directory / "container.yaml"
        container.write_text(
            yaml.safe_dump(
                {"mounts": [{"kind": "bind", "source": "/scratch", "target": "/scratch"}]}
            )
        )
        self.layercake(
            "image", "add", "ssh-1", str(ssh_image("ssh-1")), "--container", str(container)
        )

    def known(self, text: str) -> str:
        """The inventory without the two, with a network where machines are discovered, and a group
        for them."""
        key = self.directory / "id_ed25519"
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "demo", "-f", str(key)],
            check=True,
        )
        data = yaml.safe_load(text)
        for index in self.new:
            del data["nodes"][self.rack.nodes[index].name]
        data["networks"] = {"rack": {"subnet": "10.99.0.0/24", "guests": [GUESTS], "discovery": 2}}
        data["groups"]["login"] = {
            "images": ["ssh-1"],
            "authorized_keys": [key.with_suffix(".pub").read_text().strip()],
            "files": {"/etc/motd": {"source": "motd.j2", "on_change": "write"}},
            "disks": SCRATCH,
        }
        return yaml.safe_dump(data, sort_keys=False)

    def run(self) -> None:
        """From two machines that nobody knows to two nodes."""
        self.say(
            "two more machines are switched on; no inventory knows them, and a switch says on "
            "their cables which port that is"
        )
        for number, index in enumerate(self.new):
            script = Path(netns.__file__).with_name("switchport.py")
            port = f"Gi1/0/{48 - number}"
            self._switches.append(
                self.rack.exec([sys.executable, str(script), netns.tap(index), SWITCH, port])
            )
            self._power(index, "on")
        self.head.wait(
            "both have reported", lambda: len(self._reported()) == len(self.new), LIMIT_S
        )
        self.layercake("machine", "list")
        self.layercake("machine", "show", self.rack.nodes[self.new[0]].mac)
        first, last = (self.rack.nodes[index] for index in self.new)
        names = f"n[{self.new[0]}-{self.new[1]}]"
        self.layercake(
            "machine",
            "adopt",
            "--name",
            names,
            "--ip",
            first.ip,
            "--order",
            "switch-port",
            "--group",
            "ipmi",
            "--group",
            "login",
            "--into",
            str(self.inventory),
            "--yes",
        )
        self._with_bmcs()
        print(
            "".join(
                line
                for line in self.inventory.read_text().splitlines(keepends=True)
                if SWITCH in line
            ),
            flush=True,
        )
        self.say(
            "applying the inventory, where the last one has no MAC address: they start anew as "
            "nodes, with sshd"
        )
        self.layercake("apply", str(self.inventory), "--yes", "--timeout", str(LIMIT_S))
        self.layercake("node", "list")
        self.layercake("files", "show", first.name)
        self.layercake("machine", "disks", first.name)
        self._log_in(first.ip, "old")
        self.say("changing their config while they run")
        (self.files / "motd.j2").write_text(f"{MOTD}new\n")
        self.layercake("files", "diff", names)
        self.layercake("apply", str(self.inventory), "--yes", "--timeout", str(LIMIT_S))
        for node in (first, last):
            self.head.wait(f"{node.name} has it", lambda ip=node.ip: "new" in self._motd(ip), 60)  # type: ignore[misc]
            self._log_in(node.ip, "new")

    def _reported(self) -> list[str]:
        found = self.head.api("GET", "/v1/machines")["machines"]
        return [
            one["mac"]
            for one in found
            if one["port"] and one["mac"] in {self.rack.nodes[i].mac for i in self.new}
        ]

    def _power(self, index: int, what: str) -> None:
        """A person's own way to a machine."""
        secrets = self.rack.secrets
        assert secrets is not None  # noqa: S101 (the rack is up)
        done = self.rack.run(
            [
                "ipmitool",
                "-I",
                "lanplus",
                "-C",
                "3",
                "-H",
                self.rack.nodes[index].bmc_address,
                "-U",
                "admin",
                "-f",
                str(secrets.password_file),
                "chassis",
                "power",
                what,
            ]
        )
        if done.returncode:
            raise HeadRunError(f"cannot switch machine {index} {what}: {done.stderr}")

    def _with_bmcs(self) -> None:
        """Writes where their BMCs are, for those of these machines cannot be asked for it from
        inside; and that the others were rolled. Of the last one its switch port has to do, which it
        has heard itself, by the inventory's leave: it is left without a MAC address."""
        text = self.inventory.read_text().replace("- debian-1\n", "- debian-2\n")
        for index in self.new:
            node = self.rack.nodes[index]
            text = text.replace(
                f'mac: "{node.mac}"', f'mac: "{node.mac}", bmc: {{address: {node.bmc_address}}}'
            )
        last = self.rack.nodes[self.new[-1]]
        text = text.replace(f'mac: "{last.mac}", ', "replace: auto, ")
        self.inventory.write_text(text)

    def _ssh(self, ip: str) -> subprocess.CompletedProcess[str]:
        hosts = self.directory / "known_hosts"
        hosts.write_text(self.head.cli("ssh-known-hosts").stdout)
        return self.rack.run(
            [
                "ssh",
                "-i",
                str(self.directory / "id_ed25519"),
                "-o",
                f"UserKnownHostsFile={hosts}",
                "-o",
                "StrictHostKeyChecking=yes",
                "-o",
                "BatchMode=yes",
                "-o",
                "ConnectTimeout=20",
                f"root@{ip}",
                LOOK,
            ],
            60,
        )

    def _motd(self, ip: str) -> str:
        return self._ssh(ip).stdout

    def _log_in(self, ip: str, word: str) -> None:
        self.head.wait(f"sshd of {ip} answers", lambda: self._ssh(ip).returncode == 0, 120)
        done = self._ssh(ip)
        print(
            f"\n$ layercake ssh-known-hosts > known_hosts; ssh root@{ip} "
            f"'{LOOK}'\n{done.stdout}{done.stderr}",
            end="",
            flush=True,
        )
        if word not in done.stdout:
            raise HeadRunError(f"{ip} says {json.dumps(done.stdout)}: its config is not {word}")
