"""`make vagrant`: the Vagrantfile as docs/howto/try-with-vagrant.md says it, from nothing to a rack
that is up, and away again.

    python vm-testbed/vagrantwalk.py [--driver kvm|qemu]

It is a fresh checkout's Vagrantfile, Debian's vagrant-libvirt, Layercake's package, and a box that
is made here (vagrantbox.py), with which the head needs no network. libvirtd is one of its own, in a
network namespace and in mounts of its own: nothing of this machine's libvirt, networks and boxes is
touched. Every command is printed with what it says, and when. Fails if one does, or if something is
left over."""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cleanroot import KERNELS
from patience import patience
from sampleimages import systemd_image
from vagrantbox import box
from vrack import netns
from vrack.libvirt_room import TOOLS, missing_tools
from vrack.metal import end, spawn
from vrack.qemu import pick_accel

from layercake.debian.build import QUICK, build
from layercake.kraken.errors import LayercakeError, OperationFailed

ROOT = Path(__file__).resolve().parents[1]
NODES = 2
BOX, IMAGE = "layercake/head", "debian-1"
LIBVIRTD_LIMIT_S, COMMAND_LIMIT_S, ROLL_CALL_S = 120.0, 2400.0, 1500.0
INIT = (
    f"sudo layercake init --interface eth1 --profile virtual --cache {KERNELS} --set "
    "boot.ra_prefix=fd99::/64"
)
INVENTORY = "/etc/layercake/rack.yaml"
_PROGRESS = re.compile(r"(\x1b\[K)?(Progress: |$)")
"""Vagrant's lines of progress, of which it writes several a second, one over the other."""


class Walk:
    """One walk in `directory`: a libvirtd, and beside it what a person at this host would type."""

    def __init__(self, directory: Path, driver: str) -> None:
        self.checkout, self._libvirt = directory / "checkout", directory / "libvirt"
        self._driver = driver
        self._namespace = f"lcv-{secrets.token_hex(3)}"
        self._libvirtd: subprocess.Popen[bytes] | None = None
        self._start = time.monotonic()
        self.environment = {
            "PATH": f"{TOOLS}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LC_ALL": "C.UTF-8",
            "COLUMNS": "120",
            "HOME": str(directory),
            "VAGRANT_HOME": str(directory / "home"),
            "VAGRANT_CHECKPOINT_DISABLE": "1",
            "VAGRANT_DEFAULT_PROVIDER": "libvirt",
            "HEAD_BOX": BOX,
            "DRIVER": driver,
            "NODES": str(NODES),
            "NODE_MEMORY": "512",
        }

    def up(self) -> None:
        """Starts libvirtd. Raises OperationFailed."""
        if missing := missing_tools():
            raise OperationFailed(
                f"cannot start libvirt: there is no {', '.join(missing)}", hint="make vagrant"
            )
        for words in (
            ("netns", "add", self._namespace),
            ("-n", self._namespace, "link", "set", "lo", "up"),
        ):
            subprocess.run(["ip", *words], check=True)
        self._libvirt.mkdir()
        log = self._libvirt / "libvirtd.log"
        script = ROOT / "vm-testbed/vrack/libvirtd.sh"
        no_kvm = [] if self._driver == "kvm" else ["no-kvm"]
        self._libvirtd = spawn(
            ["ip", "netns", "exec", self._namespace, str(script), str(self._libvirt), *no_kvm], log
        )
        until = time.monotonic() + patience(LIBVIRTD_LIMIT_S)
        while (
            not (self._libvirt / "run/libvirt-sock").exists()
            or self.virsh("version").returncode != 0
        ):
            if self._libvirtd.poll() is not None or time.monotonic() > until:
                raise OperationFailed(
                    f"cannot start libvirtd:\n{log.read_text(errors='replace')[-1000:]}"
                )
            time.sleep(0.2)

    def _inside(self, *command: str) -> list[str]:
        """A command where libvirtd is: in its network, and with its directories."""
        if self._libvirtd is None:
            raise OperationFailed("cannot enter libvirtd's namespaces: it does not run")
        return [
            "nsenter",
            f"--target={self._libvirtd.pid}",
            "--mount",
            "--net",
            "--",
            "env",
            "-C",
            str(self.checkout),
            *command,
        ]

    def virsh(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Asks libvirtd."""
        return subprocess.run(
            self._inside("virsh", "-q", "-c", "qemu:///system", *words),
            env=self.environment,
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
        )

    def say(self, text: str) -> None:
        """A line of what is done, with its second."""
        print(f"\n[{time.monotonic() - self._start:6.1f} s] {text}", flush=True)

    def do(self, *command: str, quietly: bool = False) -> str:
        """Types a command on the host, and shows what it says as it comes; its output. Raises
        OperationFailed when it fails."""
        self.say(f"# {shlex.join(command)}")
        said: list[str] = []
        bounded = self._inside("timeout", str(COMMAND_LIMIT_S), *command)
        with subprocess.Popen(
            bounded,
            env=self.environment,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process:
            for line in process.stdout or ():
                if not quietly and not _PROGRESS.match(line):
                    print(line.rstrip(), flush=True)
                said.append(line)
        if process.returncode != 0:
            raise OperationFailed(f"{shlex.join(command)}: exit {process.returncode}")
        return "".join(said)

    def on_head(self, command: str, *, quietly: bool = False) -> str:
        """Types a command on the head."""
        return self.do("vagrant", "ssh", "head", "--no-tty", "-c", command, quietly=quietly)

    def go(self, box_file: Path, image: Path) -> None:
        """The walk."""
        self.do("vagrant", "box", "add", "--name", BOX, str(box_file))
        self.do("vagrant", "up", "--no-parallel")
        self._must_be_on("head")
        self.on_head(INIT)
        self.on_head("sudo systemctl start layercake && sudo layercake status")
        self.on_head(f"sudo layercake plan {INVENTORY}")
        self.on_head(f"sudo layercake apply --yes --timeout {ROLL_CALL_S:.0f} {INVENTORY}")
        self.on_head("sudo layercake node list")
        self.do("vagrant", "upload", str(image), f"/tmp/{IMAGE}.squashfs", "head")
        self.on_head(f"sudo layercake image add {IMAGE} /tmp/{IMAGE}.squashfs")
        self.on_head(f"sudo sed -i 's/images: \\[\\]/images: [{IMAGE}]/' {INVENTORY}")
        self.on_head(f"sudo layercake apply --yes --timeout {ROLL_CALL_S:.0f} {INVENTORY}")
        self.on_head("sudo layercake node list")
        nodes = json.loads(self.on_head("sudo layercake node list --json", quietly=True))["nodes"]
        if [(node["status"], [i["name"] for i in node["images"]["running"]]) for node in nodes] != [
            ("converged", [IMAGE])
        ] * NODES:
            raise OperationFailed(
                "the rack does not come up:\n" + self.on_head("sudo layercake node explain @all")
            )
        for index, firmware in enumerate(("BIOS", "UEFI")):
            found = self.on_head(
                f"sudo layercake node exec n{index} -- sh -c '[ -d /sys/firmware/efi ] && echo "
                "UEFI || echo BIOS'"
            )
            if found.strip() != firmware:
                raise OperationFailed(
                    f"n{index} is to boot by {firmware}, and has booted by {found.strip()}"
                )
            self.on_head(
                f"sudo layercake node exec n{index} --container {IMAGE} -- systemctl "
                "is-system-running --wait"
            )
        self.do(
            "vagrant", "up", "--no-parallel"
        )  # again: of a rack that is up it switches nothing off
        self._must_be_on("head", *(f"n{index}" for index in range(NODES)))
        self.do("vagrant", "destroy", "-f")
        for words in (("list", "--all", "--name"), ("net-list", "--all", "--name")):
            if left := self.virsh(*words).stdout.split():
                raise OperationFailed(f"`vagrant destroy` leaves over: {left}")
        if left := [
            name
            for name in map(_program, netns.processes(self._namespace))
            if name in ("vbmcd", "sushy-emulator")
        ]:
            raise OperationFailed(f"`vagrant destroy` leaves over: {left}")
        self.say("the rack was up, and is gone")

    def _must_be_on(self, *names: str) -> None:
        on = {
            name.removeprefix("layercake_") for name in self.virsh("list", "--name").stdout.split()
        }
        if on != set(names):
            raise OperationFailed(
                f"{', '.join(names)} must be on, and nothing else; on are: {', '.join(sorted(on))}"
            )

    def troubles(self) -> None:
        """Prints the ends of the logs: what one wants to read when the walk fails."""
        kept = self.checkout / ".vagrant/rack"
        for log in (
            *sorted(kept.glob("*.log")),
            self._libvirt / "libvirtd.log",
            *sorted(self._libvirt.glob("log/qemu/*")),
        ):
            if log.is_file():
                print(f"--- {log.name}\n{log.read_text(errors='replace')[-2000:]}", file=sys.stderr)

    def down(self) -> None:
        """Ends all that runs in the namespace, and removes it."""
        netns.destroy(self._namespace, grace_s=10.0)
        if self._libvirtd is not None:
            end(self._libvirtd, 5.0)


def _program(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:  # it has ended meanwhile
        return ""
    return next(
        (
            name
            for word in words[:2]
            if (name := Path(os.fsdecode(word)).name) in ("vbmcd", "sushy-emulator")
        ),
        "",
    )


def _stop(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """0 if the rack was up, and nothing of it is left."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--driver", choices=("kvm", "qemu"), help="by whether KVM works here, if not given"
    )
    driver = parser.parse_args().driver or ("kvm" if pick_accel() == "kvm" else "qemu")
    signal.signal(signal.SIGTERM, _stop)
    with tempfile.TemporaryDirectory(prefix="layercake-vagrant-") as name:
        walk = Walk(Path(name), driver)
        try:
            walk.say(f"Layercake's package, and a box: DRIVER={driver}")
            walk.checkout.mkdir()
            shutil.copy(ROOT / "Vagrantfile", walk.checkout)
            package, box_file = build(walk.checkout / "build", QUICK), box()
            print(
                f"{package.name}: {package.stat().st_size >> 20} MiB\n{box_file}: "
                f"{box_file.stat().st_size >> 20} MiB"
            )
            walk.up()
            try:
                walk.go(box_file, systemd_image(IMAGE))
            except LayercakeError:
                walk.troubles()
                raise
        except LayercakeError as error:
            print(f"vagrantwalk: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("vagrantwalk: stopped", file=sys.stderr)
            return 130
        finally:
            walk.down()
    return 0


if __name__ == "__main__":
    sys.exit(main())
