"""Recordings of a rack's network, with machines that are not emulated: each says a number again and
again."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from patience import patience
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet
from scapy.utils import rdpcap
from vrack.client import ask
from vrack.rack import Rack
from vrack.recording import SNAP, Recording

pytestmark = pytest.mark.root
# A machine: its card is the tap (linux/if_tun.h), and what it says an Ethernet frame of a kind for
# experiments (IEEE 802).
MACHINE = r"""
import fcntl, itertools, os, struct, sys, time
card = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(card, 0x400454CA, struct.pack("16sH22x", sys.argv[1].encode(), 0x1002))
for number in itertools.count():
    try:
        os.write(card, b"\xff" * 6 + b"\x52\x54\0\x99\0\0" + b"\x88\xb5" + str(number).encode().ljust(60))
    except OSError:
        pass  # its cable is out
    time.sleep(0.02)
"""


def seen(file: Path, what: Callable[[Packet], object]) -> list[Packet]:
    """The frames of a kind in a recording that goes on, once there is one."""
    end = time.monotonic() + patience(60)
    while not (found := [frame for frame in rdpcap(str(file)) if what(frame)]):
        assert time.monotonic() < end, "it was never recorded"
        time.sleep(0.05)
    return found


def numbers(file: Path, above: int = -1) -> list[int]:
    """What the machine has said so far, above a number, once it has."""
    said = seen(file, lambda f: f[Ether].type == 0x88B5 and int(bytes(f[Ether].payload)) > above)
    return [int(bytes(frame[Ether].payload)) for frame in said]


def test_what_a_machine_says_and_hears_is_recorded_while_its_cable_comes_and_goes(
    tmp_path: Path,
) -> None:
    with Rack(
        tmp_path / "rack",
        2,
        accel="tcg",
        command=lambda _, __, tap, ___: [sys.executable, "-c", MACHINE, tap],
    ) as rack:
        with Recording(rack, tmp_path / "pcap", [0]) as recording:
            file = recording.file(0)
            ask(f"/run/{rack.namespace}.sock", {"op": "power", "node": "n0", "want": "on"})
            said = numbers(file)
            assert said == sorted(set(said))
            rack.run(
                [
                    sys.executable,
                    "-c",
                    f"import socket; socket.socket(2, 2).sendto(b'', ('{rack.nodes[0].ip}', 9))",
                ]
            )
            assert seen(file, lambda f: ARP in f)[0][ARP].pdst == rack.nodes[0].ip, (
                "what it hears, too"
            )
            rack.unplug(0)
            rack.plug(0)
            assert numbers(file, above=numbers(file)[-1])
        whole = file.read_bytes()
        assert (
            list(file.parent.iterdir()) == [file] and int.from_bytes(whole[16:20], "little") == SNAP
        )
    assert file.read_bytes() == whole
