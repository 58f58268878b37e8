"""From an empty Debian to a booted rack, with the package, as docs/howto/install-a-head.md says it,
on machines of three types:

    python vm-testbed/walkthrough.py [--suite 12|13]

The head is a clean Debian with systemd and nothing else on it (cleanroot.py), beside a rack of
three machines (vrack): BIOS with an Intel card and IPMI, UEFI with another and Redfish, and UEFI
with Secure Boot and Microsoft's keys. Every command is printed with what it says, and when. Fails
if one does."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

import yaml
from cleanroot import KERNELS, SUITES, CleanRoot, base
from headrun import CACHE, INTERFACE
from patience import patience
from sampleimages import systemd_image
from vrack.rack import Rack
from vrack.spec import BmcKind, Firmware, NicRom, VmSpec

from layercake.debian.build import QUICK, build
from layercake.kraken.errors import LayercakeError, OperationFailed
from minos.build import profiles

MACHINES = (
    VmSpec(Firmware.BIOS, BmcKind.IPMI, nic="e1000"),
    VmSpec(Firmware.UEFI, BmcKind.REDFISH, nic="e1000e"),
    VmSpec(
        Firmware.UEFI, BmcKind.REDFISH, nic_rom=NicRom.FIRMWARE, secure_boot=True, memory_mib=768
    ),
)
SHIM = ("shim-signed", "grub-efi-amd64-signed")
SECRETS = "/etc/layercake/secrets"
LIMIT_S = 900.0


class Walk:
    """One walk: the machine room, and the head's machine in it."""

    def __init__(self, rack: Rack, machine: CleanRoot) -> None:
        self.rack, self.machine = rack, machine
        self._start = time.monotonic()

    def do(self, command: str) -> str:
        """Types a command on the head's machine; what it said. Raises OperationFailed when it
        fails."""
        print(f"\n[{time.monotonic() - self._start:6.1f} s] # {command}", flush=True)
        said = self.machine.run("sh", "-c", command, timeout=LIMIT_S)
        print((said.stdout + said.stderr).rstrip(), flush=True)
        return said.stdout

    def until_converged(self) -> None:
        """Looks at the nodes until all are as they are wanted. Raises OperationFailed with what the
        head has to say of them."""
        end = time.monotonic() + patience(LIMIT_S)
        while time.monotonic() < end:
            nodes = json.loads(self.machine.run("layercake", "node", "list", "--json").stdout)[
                "nodes"
            ]
            if nodes and all(n["status"] == "converged" for n in nodes):
                return
            time.sleep(1)
        raise OperationFailed(
            "the rack does not come up:\n"
            + self.machine.run("sh", "-c", "layercake node explain @all").stdout
        )

    def supply(self, package: Path) -> None:
        """What an administrator brings: the package, the BMCs' password and certificate, an
        inventory, an image; and the kernel's package, for there is no way to Debian's archive
        here."""
        if self.rack.secrets is None:
            raise OperationFailed("cannot write an inventory: the rack is not up")
        self.machine.put(package)
        secrets = self.machine.root / SECRETS[1:]
        secrets.mkdir(parents=True, mode=0o700)
        for file in (self.rack.secrets.password_file, self.rack.secrets.certificate):
            shutil.copy(file, secrets / file.name)
        wanted = yaml.safe_load(self.rack.inventory(["debian-1"]))
        wanted["defaults"]["kernel_args"] = "quiet"
        text = yaml.safe_dump(wanted, sort_keys=False).replace(
            str(self.rack.secrets.password_file.parent), SECRETS
        )
        (self.machine.root / "root/rack.yaml").write_text(text)
        self.machine.put(systemd_image("debian-1"))
        profiles.fetch(profiles.KNOWN["server"], CACHE)
        for file in CACHE.glob("linux-image-*-amd64_*.deb"):
            self.machine.put(file, KERNELS[1:])

    def go(self, package: Path, image: str) -> None:
        """The walk."""
        self.do(
            f"apt-get -qq -y --no-install-recommends install /root/{package.name} {' '.join(SHIM)} "
            ">/dev/null; "
            "layercake --version"
        )
        self.do(
            f"layercake init --interface {INTERFACE} --yes --cache {KERNELS} --set "
            f"secrets={SECRETS}"
        )
        self.do("systemctl start layercake && systemctl is-active layercake && layercake status")
        self.do(f"layercake image add debian-1 /root/{image}")
        self.do("cat /root/rack.yaml")
        self.do("layercake plan /root/rack.yaml")
        self.do("layercake apply --yes /root/rack.yaml")
        self.until_converged()
        self.do("layercake check || true")
        self.do("layercake node list")
        self.do("layercake status")
        for node in self.rack.nodes:
            self.do(
                f"layercake node exec {node.name} -- sh -c 'uname -r; readlink "
                "/sys/class/net/eth0/device/driver; "
                "dmesg | grep -i secureboot || echo no word of Secure Boot'"
            )


def main() -> int:
    """0 if the rack was up in the end."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--suite", choices=SUITES, default="12")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="layercake-walk-") as name:
        directory = Path(name)
        package = build(directory / "package", QUICK)
        rack = Rack(directory / "rack", MACHINES)
        try:
            rack.up()
            with CleanRoot(
                directory / "head",
                base(CACHE / "images", SUITES[args.suite], SHIM),
                network=rack.namespace,
            ) as machine:
                walk = Walk(rack, machine)
                walk.supply(package)
                walk.go(package, systemd_image("debian-1").name)
        except LayercakeError as error:
            print(f"walkthrough: {error}", file=sys.stderr)
            return 1
        finally:
            rack.down()
    return 0


if __name__ == "__main__":
    sys.exit(main())
