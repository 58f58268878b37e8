"""`python -m vrack up DIR --nodes 4` holds a rack up until interrupted; `python -m vrack inventory
DIR` prints its inventory."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from vrack.rack import Rack, RackError
from vrack.recording import Recording
from vrack.spec import NicRom, standard_nodes


def _up(directory: Path, count: int, rom: NicRom, pcap: Path | None) -> int:
    done = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: done.set())
    with (
        Rack(directory, standard_nodes(count, nic_rom=rom)) as rack,
        Recording(rack, pcap) if pcap is not None else contextlib.nullcontext(),
    ):
        print(
            f"namespace  {rack.namespace}   (ip netns exec {rack.namespace} ...; the head's "
            "interface is br0, 10.99.0.1/24)"
        )
        print(f"inventory  {rack.directory / 'inventory.yaml'}")
        for index, node in enumerate(rack.nodes):
            print(
                f"{node.name:<10} {node.firmware.value}, {node.bmc.value} at {node.bmc_address}, "
                f"{node.mac}, {node.ip}, "
                f"console {rack.node_directory(index) / 'console.log'}"
            )
        print("up; interrupt to take it down", flush=True)
        done.wait()
    return 0


def main(argv: Sequence[str]) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="vrack",
        description="A virtual rack: QEMU machines with BMCs of their own. Needs root.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="bring a rack up and hold it until SIGINT or SIGTERM")
    up.add_argument("directory", type=Path)
    up.add_argument(
        "--nodes",
        type=int,
        default=4,
        help="how many machines; half SeaBIOS with IPMI, half OVMF with Redfish",
    )
    up.add_argument(
        "--nic-rom",
        choices=[rom.value for rom in NicRom],
        default=NicRom.IPXE.value,
        help="who does DHCP first on UEFI machines: the NIC's iPXE (fast) or the firmware (TFTP, "
        "as most servers)",
    )
    up.add_argument(
        "--pcap",
        type=Path,
        help="a directory: NAME.pcap there gets what machine NAME says and hears",
    )
    show = commands.add_parser("inventory", help="print the inventory of the rack in a directory")
    show.add_argument("directory", type=Path)
    options = parser.parse_args(argv)
    try:
        if options.command == "up":
            return _up(options.directory, options.nodes, NicRom(options.nic_rom), options.pcap)
        sys.stdout.write((options.directory / "inventory.yaml").read_text())
    except (RackError, OSError, ValueError) as error:
        print(f"vrack: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
