"""DHCP: a packet is read, decided on, and its reply built."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from pxe.dhcp import packet as dhcp
from pxe.dhcp.decision import Common, decide
from pxe.dhcp.packet import DhcpError, DhcpPacket
from pxe.nodes import Nodes, from_record
from pxe.windows import Windows
from tests.fuzz import mutate
from tests.fuzz.harness import Target
from tests.support.site import boot_settings

NODES = {
    "6b1f2a3c-0000-4000-8000-000000000001": ("52:54:00:00:01:01", "10.99.0.11", "bios"),
    "6b1f2a3c-0000-4000-8000-000000000002": ("52:54:00:00:01:02", "10.99.0.12", "uefi"),
}
CLIENTS: tuple[dict[int, bytes], ...] = (
    {}, {60: b"PXEClient:Arch:00000:UNDI:002001", 93: b"\0\0"}, {60: b"PXEClient:Arch:00007:UNDI:003001", 93: b"\0\7"},
    {60: b"HTTPClient:Arch:00016:UNDI:003001", 93: b"\0\x10"}, {77: b"iPXE", 93: b"\0\0", 175: b"\xb1\1\1"},
    {77: b"\4iPXE", 97: b"\0" + bytes(16), 61: b"\1" + bytes(6)}, {82: b"\1\4swp1", 12: b"name"},
)


def seeds() -> list[bytes]:
    """Every kind of message of every kind of client: armed, not armed, and a stranger."""
    addresses = {50: b"\x0a\x63\0\x0b", 54: b"\x0a\x63\0\1"}
    return [dhcp.build(DhcpPacket(1, 7, bytes.fromhex("5254000001" + last) + bytes(10), {53: bytes([kind]), **client, **more},
                                  ciaddr=ciaddr))
            for kind in range(1, 9) for client in CLIENTS for last in ("01", "02", "03") for more in ({}, addresses)
            for ciaddr in (bytes(4), b"\x0a\x63\0\x0b")]


@contextlib.contextmanager
def target(directory: Path) -> Iterator[Target]:
    """Two nodes, one of them about to boot."""
    settings = boot_settings(gateway="10.99.0.254", dns=["10.99.0.1"])
    nodes, windows, network = Nodes(), Windows(), Common(settings)
    for number, (key, (mac, ip, firmware)) in enumerate(NODES.items()):
        nodes.put(from_record(key, {"name": f"n{number}", "macs": [mac], "ip": ip, "arch": "x86_64", "firmware": firmware,
                                    "kernel_args": "", "console": ""}))
    windows.arm(next(iter(NODES)), "one-use_token.42", 1000.0, 0.0)

    def take(data: bytes) -> None:
        decision = decide(dhcp.parse(data), nodes, windows, network, 1.0)
        if decision.reply is not None:
            dhcp.parse(dhcp.build(decision.reply))

    words = (b"\x35\1\1", b"\x34\1\3", b"\x52\xff", b"\xff", b"\x4d\5\4iPXE", b"\x3d\0", b"\x5d\2\0\7", b"\x63\x82\x53\x63")
    yield Target(mutate.data(seeds(), words), take, (DhcpError,))
