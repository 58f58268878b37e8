"""`make demo`: a virtual rack from power-off to running images, a roll to a second image, and away
again.

Everything is real but the metal: firmware, BMC protocols, kernel, minOS, containers. `--keep`
leaves it up to play with. With `--store rbd` (`make demo STORE=rbd`) the images are in a real
Ceph, which the machines read them from as they need them. With `--rack libvirt` (`make demo
RACK=libvirt`) the machines are libvirt's, and their BMCs virtualbmc and sushy-emulator. With
`--discovery` (`make demo DISCOVERY=1`) there are two machines more, which no inventory knows
(discoverydemo.py). With `--heads 2` (`make demo HEADS=2`) a second head takes over in the middle
of a roll (headsdemo.py). With `--pcap DIR` (`make demo PCAP=DIR`) what each machine says and hears
on its network is recorded."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from progress import Progress
from steps import ENDINGS


def main() -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the rack up until interrupted")
    parser.add_argument(
        "--store", choices=("file", "rbd"), default="file", help="where the images are"
    )
    parser.add_argument(
        "--rack",
        choices=("qemu", "libvirt"),
        default="qemu",
        help="what the machines are: QEMU processes with ipmi_sim, or libvirt domains with "
        "virtualbmc",
    )
    parser.add_argument(
        "--discovery", action="store_true", help="with two machines more, which no inventory knows"
    )
    parser.add_argument(
        "--heads", type=int, choices=(1, 2), default=1, help="2: with a second head and a witness"
    )
    parser.add_argument(
        "--pcap",
        type=Path,
        help="a directory: NAME.pcap there gets what machine NAME says and hears",
    )
    options = parser.parse_args()
    for number in ENDINGS:
        signal.signal(number, signal.default_int_handler)
    try:
        from rackdemo import show  # here: it takes a second to load, and Ctrl-C may come before

        with Progress() as progress:
            return show(progress, options)
    except KeyboardInterrupt:
        print("demo: interrupted before it began")
        return 130


if __name__ == "__main__":
    sys.exit(main())
