"""The rack's network: one namespace, one bridge, a tap for each machine, and an address for each
BMC."""

from __future__ import annotations

import ipaddress
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from vrack.spec import (
    BRIDGE,
    HEAD_ADDRESS,
    SIDE_ADDRESS,
    SIDE_BRIDGE,
    SIDE_SUBNET,
    SIX_ADDRESS,
    SIX_SUBNET,
    VmSpec,
)

RUN = Path("/run/netns")
BRIDGE_MAC = "02:6c:61:79:65:72"
"""A bridge without an address of its own takes that of a port, and another one when a port comes or
goes."""


def build_commands(machines: Sequence[VmSpec]) -> str:
    """The `ip -batch` text for the inside of a fresh namespace.

    10.98.0.0/16 is made local as a whole (AnyIP), so that every BMC binds an address of its own
    with nothing else to set up. The bridge forwards at once: with the usual forwarding delay, a
    machine's first DHCP requests are lost.
    """
    lines = [
        "link set lo up",
        f"link add {BRIDGE} address {BRIDGE_MAC} type bridge stp_state 0 forward_delay 0",
        f"addr add {HEAD_ADDRESS}/24 dev {BRIDGE}",
        f"addr add fd99::1/64 dev {BRIDGE} nodad",
        f"link set {BRIDGE} up",
        f"link add {SIDE_BRIDGE} type bridge stp_state 0 forward_delay 0",
        f"addr add {SIDE_ADDRESS}/24 dev {SIDE_BRIDGE}",
        f"addr add {SIX_ADDRESS}/64 dev {SIDE_BRIDGE} nodad",
        f"link set {SIDE_BRIDGE} up",
        "route add local 10.98.0.0/16 dev lo",
    ]
    for index, machine in enumerate(machines):
        sides = [net for net in map(ipaddress.ip_network, (SIDE_SUBNET, SIX_SUBNET)) if machine.ip]
        bridge = (
            SIDE_BRIDGE if any(ipaddress.ip_address(machine.ip) in net for net in sides) else BRIDGE
        )
        lines += [f"tuntap add {tap(index)} mode tap", f"link set {tap(index)} master {bridge} up"]
    return "\n".join(lines) + "\n"


def tap(index: int) -> str:
    """The name of the tap of the machine in slot `index`."""
    return f"tap{index}"


def create(name: str, machines: Sequence[VmSpec]) -> None:
    """Makes the namespace with everything in it. Raises subprocess.CalledProcessError."""
    subprocess.run(["ip", "netns", "add", name], check=True, capture_output=True, text=True)
    subprocess.run(
        ["ip", "-n", name, "-batch", "-"],
        input=build_commands(machines),
        check=True,
        capture_output=True,
        text=True,
    )


def set_link(name: str, device: str, up: bool) -> None:
    """Takes one link of the namespace up or down. Raises subprocess.CalledProcessError."""
    subprocess.run(
        ["ip", "-n", name, "link", "set", device, "up" if up else "down"],
        check=True,
        capture_output=True,
        text=True,
    )


def exists(name: str) -> bool:
    """Whether the namespace is there."""
    return (RUN / name).exists()


def processes(name: str) -> list[int]:
    """The ids of the processes that live in the namespace; none if it does not exist."""
    try:
        inside = (RUN / name).stat().st_ino
    except FileNotFoundError:
        return []
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "ns/net").stat().st_ino == inside:
                    found.append(int(entry.name))
            except OSError:
                continue  # it has ended meanwhile, or is a zombie
    return found


def destroy(name: str, spare: Iterable[int] = (), grace_s: float = 1.0) -> None:
    """Ends every process that still lives in the namespace, politely first, then deletes it. Does
    nothing if it is gone.

    Only processes inside a namespace that this rack made under a random name are touched.
    """
    spared = set(spare)
    for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, grace_s)):
        left = [pid for pid in processes(name) if pid not in spared]
        for pid in left:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
        end = time.monotonic() + wait_s
        while left and time.monotonic() < end and any(pid not in spared for pid in processes(name)):
            time.sleep(0.02)
    if exists(name):
        subprocess.run(["ip", "netns", "del", name], check=True, capture_output=True, text=True)
