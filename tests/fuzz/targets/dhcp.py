"""DHCP: a packet is read, decided on, and its reply built; of nodes on the head's link, and of one
behind a relay; of guests of both networks; and the same beside a server of the site."""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterator
from pathlib import Path

from pxe.dhcp import proxydhcp
from pxe.dhcp.answers import Answers
from pxe.dhcp.decision import Common, Decision, Outcome, decide
from pxe.dhcp.foreign_servers import parse_answer_frame
from pxe.dhcp.relay import Relays, relay_of
from pxe.dynamic import decision as of_guests
from pxe.dynamic.networks import DynamicNetworks
from pxe.nodes import Nodes, from_record
from pxe.packets import dhcp
from pxe.packets.dhcp import DhcpError, DhcpPacket
from pxe.windows import Windows
from tests.fuzz import mutate
from tests.fuzz.harness import Target
from tests.support.site import boot_settings

NODES = {
    "6b1f2a3c-0000-4000-8000-000000000001": ("52:54:00:00:01:01", "10.99.0.11", "bios"),
    "6b1f2a3c-0000-4000-8000-000000000002": ("52:54:00:00:01:02", "10.99.0.12", "uefi"),
    "6b1f2a3c-0000-4000-8000-000000000003": ("52:54:00:00:01:04", "10.120.0.50", "uefi"),
}
FAR = {
    "name": "far",
    "subnet": "10.120.0.0/24",
    "gateway": "10.120.0.1",
    "domain": "far.test",
    "mtu": 9000,
    "routes": {"10.130.0.0/16": "10.120.0.1"},
    "relays": ["192.168.9.1"],
}
OWN = {"name": "own", "subnet": "10.99.0.0/24", "gateway": "10.99.0.254"}
GUESTS = {"far": range(0x0A7800C8, 0x0A7800CC), "own": range(0x0A6300C8, 0x0A6300CC)}
RELAY, BEYOND = b"\x0a\x78\0\1", b"\xc0\xa8\x09\1"
AGENTS = (
    b"",
    b"\1\4swp1\2\6\0\1\2\3\4\5",
    b"\5\4" + RELAY,
    b"\x0b\4" + RELAY,
    b"\5\4" + RELAY + b"\x0b\4" + BEYOND,
    b"\xff" * 255,
)
FRAME = bytes(12) + b"\x08\0\x45" + bytes(8) + b"\x11" + bytes(18)
"""The headers of Ethernet, IPv4 and UDP, as far as they are looked at."""
CLIENTS: tuple[dict[int, bytes], ...] = (
    {},
    {60: b"PXEClient:Arch:00000:UNDI:002001", 93: b"\0\0"},
    {60: b"PXEClient:Arch:00007:UNDI:003001", 93: b"\0\7"},
    {60: b"HTTPClient:Arch:00016:UNDI:003001", 93: b"\0\x10"},
    {77: b"iPXE", 93: b"\0\0", 175: b"\xb1\1\1"},
    {77: b"\4iPXE", 97: b"\0" + bytes(16), 61: b"\1" + bytes(6)},
    {82: b"\1\4swp1", 12: b"name"},
)


def seeds() -> list[bytes]:
    """Every kind of message of every kind of client: armed, not armed, and a stranger."""
    addresses = {50: b"\x0a\x63\0\x0b", 54: b"\x0a\x63\0\1"}
    guest = {50: b"\x0a\x63\0\xc8", 54: b"\x0a\x63\0\1"}
    return [
        dhcp.build(
            DhcpPacket(
                1,
                7,
                bytes.fromhex("5254000001" + last) + bytes(10),
                {53: bytes([kind]), **client, **more},
                ciaddr=ciaddr,
            )
        )
        for kind in range(1, 9)
        for client in CLIENTS
        for last in ("01", "02", "03")
        for more in ({}, addresses, guest)
        for ciaddr in (bytes(4), b"\x0a\x63\0\x0b", b"\x0a\x63\0\xc8")
    ] + [
        dhcp.build(
            DhcpPacket(
                1,
                7,
                bytes.fromhex("5254000001" + last) + bytes(10),
                {53: bytes([kind]), **more, 82: agent},
                giaddr=giaddr,
                hops=hops,
            )
        )
        for kind in (1, 3, 8)
        for last in ("01", "04")
        for agent in AGENTS
        for giaddr in (RELAY, BEYOND, b"\xe0\0\0\1")
        for hops in (1, 16, 255)
        for more in ({}, {54: RELAY, 50: b"\x0a\x78\0\x32"})
    ]


@contextlib.contextmanager
def target(directory: Path) -> Iterator[Target]:
    """Three nodes, one of them about to boot, one behind a relay; and four addresses for guests in
    each of two networks."""
    settings = boot_settings(gateway="10.99.0.254", dns=["10.99.0.1"])
    nodes, windows, common = Nodes(), Windows(), Common(settings)
    for number, (key, (mac, ip, firmware)) in enumerate(NODES.items()):
        network = FAR if ip.startswith("10.120") else None
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
                    "network": network,
                },
                settings,
            )
        )
    windows.arm(next(iter(NODES)), "one-use_token.42", 1000.0, 0.0)

    answers = Answers(nodes, windows, Relays(lambda: 1.0), common, lambda: 1.0)
    guests, passed = DynamicNetworks(settings), 0.0
    for told in (OWN, FAR):
        some = GUESTS[str(told["name"])]
        ranges = [f"{ipaddress.IPv4Address(some[0])}-{ipaddress.IPv4Address(some[-1])}"]
        guests.update_network(str(told["name"]), {**told, "guests": ranges}, 0.0)

    def as_guest(packet: DhcpPacket, unknown: Decision) -> None:
        nonlocal passed
        passed += 200.0  # what a guest declines comes back before long
        decision = of_guests.answer(packet, unknown, guests, common, passed)
        if any(count.used > 4 for count in guests.counts(passed).values()):
            raise AssertionError("more addresses are given than there are")
        if decision.reply is None:
            return
        again = dhcp.parse(dhcp.build(decision.reply))
        if (
            again.file
            or again.siaddr != bytes(4)
            or {dhcp.BOOT_FILE, dhcp.TFTP_SERVER, dhcp.VENDOR_OPTIONS} & again.options.keys()
        ):
            raise AssertionError("a stranger was given something to boot")
        given = int.from_bytes(again.yiaddr, "big")
        if given and not any(given in some for some in GUESTS.values()):
            raise AssertionError("a guest got an address that is not for guests")
        if packet.giaddr != bytes(4) and decision.address != packet.giaddr:
            raise AssertionError("the answer does not go to the relay that asked")

    def take(data: bytes) -> None:
        parse_answer_frame(FRAME + data)
        proxydhcp.taken(dhcp.parse(data), nodes)
        for proxy in (proxydhcp.answer, proxydhcp.answer_again):
            proxied = proxy(dhcp.parse(data), nodes, windows, common, 1.0).reply
            if proxied is not None and (
                dhcp.parse(dhcp.build(proxied)).yiaddr != bytes(4)
                or dhcp.LEASE_TIME in proxied.options
            ):
                raise AssertionError("a proxy gave an address away")
        decision = decide(dhcp.parse(data), nodes, windows, common, 1.0)
        for answer in (answers.to(data), answers.to(data)):  # as it is made, and as it is kept
            if (answer.payload(data) if answer.way else None) != (
                dhcp.build(decision.reply) if decision.reply else None
            ):
                raise AssertionError("what is sent is not what was decided")
        if decision.outcome is Outcome.UNKNOWN_MAC:
            as_guest(dhcp.parse(data), decision)
        if decision.reply is None:
            return
        packet, again = dhcp.parse(data), dhcp.parse(dhcp.build(decision.reply))
        if again.options.get(dhcp.RELAY_AGENT) != packet.options.get(dhcp.RELAY_AGENT):
            raise AssertionError("what the relay said does not come back as it was")
        if packet.giaddr != bytes(4) and decision.address != packet.giaddr:
            raise AssertionError("the answer does not go to the relay that asked")
        relay = relay_of(packet)
        if (
            again.yiaddr[:3] == RELAY[:3]
            and relay is not None
            and relay.link[:3] != RELAY[:3]
            and relay.link != BEYOND
        ):
            raise AssertionError("an address of another network was given away")

    words = (
        b"\x35\1\1",
        b"\x34\1\3",
        b"\x52\xff",
        b"\xff",
        b"\x4d\5\4iPXE",
        b"\x3d\0",
        b"\x52\6\5\4" + RELAY,
        b"\x52\6\x0b\4" + RELAY,
        b"\x5d\2\0\7",
        b"\x63\x82\x53\x63",
    )
    yield Target(mutate.data(seeds(), words), take, (DhcpError,))
