"""Makes the golden captures of tests/golden anew: `python vm-testbed/golden.py --path bios`,
without --path all of them.

A virtual machine boots by a path (cuts.PATHS) until it has joined. What its firmware asked, and
what it was answered, are taken out of the recording (goldenfile.py). tests/boot/test_golden.py asks
the same again."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cuts import PATHS, SETTINGS
from goldenfile import described, distilled, payload
from headclient import HeadRunError
from headrun import HeadRun
from scapy.utils import rdpcap, wrpcap
from vrack.rack import Rack, RackError
from vrack.recording import Recording
from vrack.spec import Firmware, NicRom, VmSpec

KEPT = Path(__file__).resolve().parents[1] / "tests/golden"
MAC, IP = "52:54:00:00:01:01", "10.99.0.11"
"""Those of the node in tests/boot."""
CAPTURED = ("bios", "pxe", "uefi", "six", "http", "secure", "uri")
LIMIT_S = 400.0


def packages(machine: VmSpec) -> dict[str, str]:
    """{Debian package: version} of all firmware that a machine runs before its kernel."""
    names = ["qemu-system-x86", "seabios" if machine.firmware is Firmware.BIOS else "ovmf"]
    names += ["shim-signed", "grub-efi-amd64-signed"] if machine.secure_boot else []
    in_card = machine.nic_rom is NicRom.IPXE
    names += ["ipxe-qemu"] if in_card else []
    names += ["ipxe"] if not machine.secure_boot and not (in_card and machine.card_ipxe) else []
    said = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package} ${Version}\n", *names],
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(sorted(line.split(" ") for line in said.stdout.splitlines()))


def recorded(machine: VmSpec, directory: Path) -> tuple[Path, str]:
    """A recording of one boot, until the node has joined, and the name of its boot set. Raises
    HeadRunError, RackError."""
    rack = Rack(directory / "rack", [machine])
    head = HeadRun(rack, directory / "head")
    try:
        rack.up()
        head.init(SETTINGS)
        head.start()
        with Recording(rack, directory) as recording:
            head.apply(rack.inventory())
            head.wait("it joins", lambda: head.history("n0", "node.joined"), LIMIT_S)
        starts = rack.machine(0)["starts"]
        if starts != 1:
            raise HeadRunError(f"cannot keep this boot: the machine was started {starts} times")
        return recording.file(0), str(head.api("GET", "/v1/boot")["sets"][0]["name"])
    finally:
        head.close()
        rack.down()


def keep(path: str, directory: Path) -> None:
    """Writes PATH.pcap and PATH.json to a directory. Raises HeadRunError, RackError, OSError."""
    what, machine = PATHS[path]
    machine = replace(machine, mac=MAC, ip=IP)
    with tempfile.TemporaryDirectory(prefix="layercake-golden-") as scratch:
        file, boot_set = recorded(machine, Path(scratch))
        found = distilled(rdpcap(str(file)), MAC)
    if any(b"layercake.token" in payload(frame) for frame, _ in found):
        raise HeadRunError("cannot keep this boot: there is a token in what the machine said")
    node: dict[str, Any] = {
        "firmware": machine.firmware.value,
        "secure_boot": machine.secure_boot,
        "card_ipxe": machine.card_ipxe,
        "boot_set": boot_set,
    }
    steps = [{"asks": described(frame), "answer": answer} for frame, answer in found]
    directory.mkdir(parents=True, exist_ok=True)
    wrpcap(str(directory / f"{path}.pcap"), [frame for frame, _ in found])
    (directory / f"{path}.json").write_text(
        json.dumps(
            {"what": what, "packages": packages(machine), "node": node, "steps": steps}, indent=1
        )
        + "\n"
    )
    print(f"{path}: {len(steps)} packets", flush=True)


def main(argv: Sequence[str]) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--path",
        action="append",
        choices=CAPTURED,
        help="by which path; more than once (default: all)",
    )
    parser.add_argument("--output", type=Path, default=KEPT)
    options = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        for path in options.path or CAPTURED:
            keep(path, options.output)
    except (HeadRunError, RackError, OSError, subprocess.SubprocessError) as error:
        print(f"golden: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
