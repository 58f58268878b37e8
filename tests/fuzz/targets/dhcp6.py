"""DHCPv6: a packet is read, decided on, and its reply read again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from pxe.ipv6.decision import Network, decide
from pxe.nodes import Nodes, from_record
from pxe.packets import dhcp6 as dhcp
from pxe.packets.dhcp6 import Dhcp6Error
from pxe.windows import Windows
from tests.fuzz import mutate
from tests.fuzz.harness import Target
from tests.fuzz.targets.dhcp import NODES

SERVER = b"\0\3\0\1\2\2\2\2\2\2"
MAC = bytes.fromhex("525400000101")
DUIDS = (b"\0\3\0\1" + MAC, b"\0\1\0\1abcd" + MAC, b"\0\4" + bytes(16))
CLIENTS: tuple[tuple[tuple[int, bytes], ...], ...] = (
    (),
    ((61, b"\0\7"),),
    ((61, b"\0\x10"), (16, b"\0\0\1\x57\0\x0aHTTPClient")),
    ((15, b"\0\4iPXE"), (61, b"\0\7")),
    ((16, b"\0\0\1\x57\0\x09PXEClient"), (2, SERVER)),
)


def seeds() -> list[bytes]:
    """Every kind of message of every kind of client."""
    return [
        dhcp.build(kind, b"xid", ((dhcp.CLIENT_ID, duid), (dhcp.IA_NA, bytes(12)), *client))
        for kind in dhcp.Kind
        for client in CLIENTS
        for duid in DUIDS
    ]


@contextlib.contextmanager
def target(directory: Path) -> Iterator[Target]:
    """Two nodes, one of them about to boot."""
    nodes, windows, network = Nodes(), Windows(), Network(SERVER, "fd99::1", "fd99::/64", 3600)
    for number, (key, (mac, ip, firmware)) in enumerate(NODES.items()):
        nodes.update(
            from_record(
                key,
                {
                    "name": f"n{number}",
                    "macs": [mac],
                    "ip": ip,
                    "arch": "x86_64",
                    "firmware": firmware,
                    "kernel_args": "",
                    "console": "",
                },
            )
        )
    windows.arm(next(iter(NODES)), "one-use_token.42", 1000.0, 0.0)

    def take(data: bytes) -> None:
        source = "fe80::5054:ff:fe00:101" if len(data) % 2 else "fe80::1%lo"
        decision = decide(dhcp.parse(data), source, nodes, windows, network, 1.0)
        if decision.reply:
            dhcp.parse(decision.reply)

    words = (
        b"\0\1\0\x0a",
        b"\0\x0f\0\6\0\4iPXE",
        b"\0\x3d\0\2\0\7",
        b"\0\3\0\x0c",
        b"\0\x10",
        b"\xff\xff",
    )
    yield Target(mutate.data(seeds(), words), take, (Dhcp6Error,))
