"""The service beside real DHCP servers of a site (dnsmasq, Kea, ISC dhcpd), configured as the
how-to page has it, on one bridge with real clients (dhclient, atftp, curl, nmap) and packets of
firmware; and two heads in one segment."""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from patience import patience
from scapy.layers.dhcp import BOOTP, DHCP
from scapy.layers.l2 import Ether
from scapy.packet import Packet

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "vm-testbed"))

from vrack.siteserver import Kind, command

from layercake.kraken.errors import Stalled
from layercake.moduleapi.service import MutationRequest
from tests.boot.conftest import MAC, NODE, RECORD, PacketSocket, Running, Wire
from tests.boot.test_interop import (
    HTTP_UEFI,
    IPXE,
    PXE_BIOS,
    PXE_UEFI,
    frame,
    options_of,
    wait_until,
)

pytestmark = pytest.mark.root

HOWTO = Path(__file__).resolve().parents[2] / "docs/howto/beside-another-dhcp-server.md"
NAMES = {Kind.DNSMASQ: "dnsmasq", Kind.KEA: "Kea", Kind.ISC: "ISC dhcpd"}
HEAD, SITE, SECOND = "10.99.0.1", "10.99.0.2", "10.99.0.3"
SITE_MAC = "52:54:00:00:02:01"
BASE = b"http://10.99.0.1:8080/boot"


def configuration(kind: Kind, mode: str) -> str:
    """What the how-to page shows for a server."""
    found = re.search(
        rf"```text\n(?:#|//) {NAMES[kind]}, {mode}\n(.*?)```", HOWTO.read_text(), re.DOTALL
    )
    assert found is not None, (kind, mode)
    return found[1]


class Segment(Wire):
    """A bridge in a namespace of its own, and at its ports the head, the node, a server of the site
    and a second head."""

    def __init__(self) -> None:
        super().__init__()
        tag = self.head[2:]
        self.switch = f"bs{tag}"
        self.site = f"bd{tag}"
        self.second = f"b2{tag}"
        self.second_if = f"v2{tag}"

    def up(self) -> None:
        ends = (
            (self.head, self.head_if, "", f"{HEAD}/24"),
            (self.client, self.client_if, MAC, ""),
            (self.site, "eth0", SITE_MAC, f"{SITE}/24"),
            (self.second, self.second_if, "", f"{SECOND}/24"),
        )
        self.ip("netns", "add", self.switch)
        self.ip(
            "-n",
            self.switch,
            "link",
            "add",
            "br0",
            "type",
            "bridge",
            "stp_state",
            "0",
            "forward_delay",
            "0",
        )
        self.ip("-n", self.switch, "link", "set", "br0", "up")
        for number, (name, card, mac, address) in enumerate(ends):
            self.ip("netns", "add", name)
            self.ip("-n", name, "link", "set", "lo", "up")
            self.ip(
                "-n",
                self.switch,
                "link",
                "add",
                f"p{number}",
                "type",
                "veth",
                "peer",
                "name",
                card,
                "netns",
                name,
            )
            self.ip("-n", self.switch, "link", "set", f"p{number}", "master", "br0", "up")
            if mac:
                self.ip("-n", name, "link", "set", card, "address", mac)
            if address:
                self.ip("-n", name, "addr", "add", address, "dev", card)
            self.ip("-n", name, "link", "set", card, "up")

    def down(self) -> None:
        super().down()
        for name in (self.switch, self.site, self.second):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@pytest.fixture
def wire() -> Iterator[Segment]:
    made = Segment()
    try:
        made.up()
        yield made
    finally:
        made.down()


@contextlib.contextmanager
def serving(wire: Segment, files: dict[str, Any], **boot: Any) -> Iterator[Running]:
    """The head's service with one node."""
    made = Running(wire, files, boot)
    made.start()
    try:
        made.do(made.service.node_changed(NODE, RECORD))
        yield made
    finally:
        made.stop()
    assert made.errors == []


@contextlib.contextmanager
def site_server(
    wire: Segment, kind: Kind, config: str, packets: PacketSocket, directory: Path
) -> Iterator[None]:
    """A server of the site; from when it answers the node."""
    argv, log = command(kind, config, directory), directory / "server.log"
    with log.open("w") as out:
        server = subprocess.Popen(["ip", "netns", "exec", wire.site, *argv], stdout=out, stderr=out)
    try:
        wait_until(
            lambda: (
                server.poll() is not None
                or bool(replies(packets, frame("discover", []), lambda r: by(r, SITE)))
            ),
            30,
        )
        assert server.poll() is None, log.read_text()
        yield
    finally:
        server.terminate()
        server.wait(20)


def by(reply: Packet, server: str) -> bool:
    return bool(options_of(reply).get("server_id") == server)


def attempt(mutation: str, node: str, timeout: float = 10.0) -> MutationRequest:
    """What the head asks of the service."""
    return MutationRequest(
        1, node, mutation, 1, timeout, {"token": "one-use_token.43", "window_s": 100.0}
    )


def acked(reply: Packet) -> bool:
    return bool(options_of(reply)["message-type"] == 5)


def replies(
    packets: PacketSocket, asked: bytes, *wanted: Callable[[Packet], bool], seconds: float = 2.0
) -> list[Packet]:
    """The first answer of each kind that is wanted, as far as they come within so long; all others
    are left out."""
    number = BOOTP(bytes(Ether(asked)[BOOTP])).xid
    packets.sock.settimeout(seconds)
    packets.sock.send(asked)
    found: dict[int, Packet] = {}
    end = time.monotonic() + patience(seconds)
    with contextlib.suppress(TimeoutError):
        while len(found) < len(wanted) and time.monotonic() < end:
            data, address = packets.sock.recvfrom(4096)
            packet = Ether(data)
            if (
                address[2] == socket.PACKET_OUTGOING
                or not packet.haslayer(DHCP)
                or packet[BOOTP].xid != number
            ):
                continue
            for place, one in enumerate(wanted):
                if one(packet):
                    found.setdefault(place, packet)
    return [found[place] for place in sorted(found)]


@pytest.mark.parametrize("kind", Kind)
def test_the_sites_server_gives_the_address_and_the_head_what_to_boot(
    wire: Segment, packets: PacketSocket, files: dict[str, Any], tmp_path: Path, kind: Kind
) -> None:
    with (
        serving(wire, files, dhcp="proxy", dhcp_servers=(SITE,)) as running,
        site_server(wire, kind, configuration(kind, "proxy"), packets, tmp_path / "site"),
    ):
        running.arm()
        for number, (firmware, file) in enumerate(
            (
                (PXE_UEFI, b"snponly.efi"),
                (HTTP_UEFI, BASE + b"/snponly.efi"),
                (IPXE, BASE + b"/52-54-00-00-01-01"),
            ),
            100,
        ):
            asked = frame("discover", firmware, xid=number, flags=0x8000)
            address, boot = replies(
                packets, asked, lambda r: by(r, SITE), lambda r: by(r, HEAD), seconds=10
            )
            assert (address[BOOTP].yiaddr, address[BOOTP].file.rstrip(b"\0")) == ("10.99.0.11", b"")
            assert (boot[BOOTP].yiaddr, boot[BOOTP].file.rstrip(b"\0")) == ("0.0.0.0", file)
            assert options_of(boot)["vendor_class_id"] == (
                b"HTTPClient" if firmware is HTTP_UEFI else b"PXEClient"
            )
            chosen = [*firmware, ("requested_addr", "10.99.0.11"), ("server_id", SITE)]
            (ack,) = replies(packets, frame("request", chosen, xid=number), acked, seconds=10)
            assert by(ack, SITE)
        wait_until(
            lambda: running.kinds().count("boot.address-taken") == 3
        )  # a request is read when its time has come
        assert not {"boot.other-address", "dhcp.other-server", "boot.no-address"} & set(
            running.kinds()
        )
        _asks_again_and_fetches(wire, files, tmp_path)
        _nobody_else_hears_of_the_head(wire, running, tmp_path)


def _asks_again_and_fetches(wire: Segment, files: dict[str, Any], tmp_path: Path) -> None:
    wire.give_address()

    def at_4011() -> bytes:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind(("10.99.0.11", 68))
            sock.settimeout(10)
            sock.sendto(
                bytes(Ether(frame("request", PXE_UEFI, ciaddr="10.99.0.11"))[BOOTP]), (HEAD, 4011)
            )
            return sock.recv(2048)

    again = BOOTP(wire.there(at_4011))
    assert (options_of(again)["message-type"], again.yiaddr, again.ciaddr) == (
        5,
        "0.0.0.0",
        "10.99.0.11",
    )
    assert again.file.rstrip(b"\0") == b"snponly.efi"
    out = tmp_path / "got"
    assert wire.run("atftp", "--get", "-r", "snponly.efi", "-l", str(out), HEAD).returncode == 0
    assert out.read_bytes() == Path(files["ipxe_dir"], "snponly.efi").read_bytes()
    assert wire.run("curl", "-sSf", f"{BASE.decode()}/52-54-00-00-01-01").stdout.startswith(
        b"#!ipxe\n"
    )


def _nobody_else_hears_of_the_head(wire: Segment, running: Running, tmp_path: Path) -> None:
    """A system of the node gets the site's lease and nothing of the head."""
    before = running.stats().get("dhcp.offered", 0)
    conf, leases = tmp_path / "dhclient.conf", tmp_path / "leases"
    conf.write_text("initial-delay 0;\ntimeout 30;\n")
    leases.touch()
    done = wire.run(
        "dhclient",
        "-4",
        "-1",
        "-v",
        "-sf",
        "/bin/true",
        "-cf",
        str(conf),
        "-lf",
        str(leases),
        "-pf",
        str(tmp_path / "pid"),
        wire.client_if,
    )
    wire.run("sh", "-c", f"kill $(cat {tmp_path / 'pid'})")
    assert done.returncode == 0, done.stderr.decode()
    assert "fixed-address 10.99.0.11;" in leases.read_text()
    assert f"option dhcp-server-identifier {SITE};" in leases.read_text()
    assert running.stats().get("dhcp.offered", 0) == before


@pytest.mark.parametrize("kind", Kind)
def test_where_dhcp_is_off_the_sites_server_sends_firmware_to_the_head(
    wire: Segment, packets: PacketSocket, files: dict[str, Any], tmp_path: Path, kind: Kind
) -> None:
    with (
        serving(wire, files, dhcp="off") as running,
        site_server(wire, kind, configuration(kind, "off"), packets, tmp_path / "site"),
    ):
        ports = subprocess.run(
            ["ip", "netns", "exec", wire.head, "ss", "-Hlnu"],
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        assert ":69 " in ports and ":67 " not in ports and ":4011 " not in ports
        with pytest.raises(Stalled, match="no request for a file seen in 0 s"):
            running.do(running.service.mutate(attempt("boot-wait", NODE, 0.01)))
        running.arm()
        for number, (firmware, file) in enumerate(
            (
                (PXE_BIOS, b"undionly.kpxe"),
                (PXE_UEFI, b"snponly.efi"),
                (HTTP_UEFI, BASE + b"/snponly.efi"),
                (IPXE, BASE + b"/${netX/mac:hexhyp}"),
            ),
            200,
        ):
            wanted = [*firmware, ("param_req_list", [1, 43, 60, 66, 67])]
            (offer,) = replies(
                packets, frame("discover", wanted, xid=number), lambda r: by(r, SITE), seconds=10
            )
            options = options_of(offer)
            assert (options.get("boot-file-name", b"") or offer[BOOTP].file).rstrip(b"\0") == file
            if firmware is HTTP_UEFI:
                assert options["vendor_class_id"] == b"HTTPClient"
            elif firmware is not IPXE:
                assert offer[BOOTP].siaddr == HEAD
        wire.give_address()
        for _ in range(2):
            script = wire.run("curl", "-sSf", f"{BASE.decode()}/52-54-00-00-01-01")
            assert script.stdout.startswith(b"#!ipxe\n"), script.stderr
        assert running.kinds() == [
            "boot.stalled",
            "boot.script-sent",
            "boot.begun-anew",
            "boot.script-sent",
        ]


def test_another_address_and_a_rogue_are_told(
    wire: Segment, packets: PacketSocket, files: dict[str, Any], tmp_path: Path
) -> None:
    rogue = configuration(Kind.DNSMASQ, "proxy").replace("10.99.0.11", "10.99.0.77")
    with (
        serving(wire, files, dhcp="proxy", dhcp_servers=("10.99.0.9",)) as running,
        site_server(wire, Kind.DNSMASQ, rogue, packets, tmp_path / "site"),
    ):
        running.arm()
        (offer,) = replies(
            packets, frame("discover", PXE_UEFI, flags=0x8000), lambda r: by(r, SITE), seconds=10
        )
        wait_until(lambda: "dhcp.other-server" in running.kinds(), 10)
        chosen = [*PXE_UEFI, ("requested_addr", offer[BOOTP].yiaddr), ("server_id", SITE)]
        replies(packets, frame("request", chosen), acked, seconds=10)
        wait_until(lambda: "boot.other-address" in running.kinds(), 10)
        told = {e[1]: e for e in running.link.events}
        assert told["dhcp.other-server"][4] == {"server": SITE, "server_mac": SITE_MAC, "mac": MAC}
        assert (told["boot.other-address"][4]["took"], told["boot.other-address"][4]["server"]) == (
            "10.99.0.77",
            SITE,
        )
        assert running.kinds().count("dhcp.other-server") == 1


def test_where_the_head_gives_addresses_a_rogue_is_told_too(
    wire: Segment, packets: PacketSocket, files: dict[str, Any], tmp_path: Path
) -> None:
    with (
        serving(wire, files) as running,
        site_server(
            wire, Kind.DNSMASQ, configuration(Kind.DNSMASQ, "proxy"), packets, tmp_path / "site"
        ),
    ):
        both = replies(
            packets,
            frame("discover", [], xid=7),
            lambda r: by(r, SITE),
            lambda r: by(r, HEAD),
            seconds=10,
        )
        assert len(both) == 2
        chosen = [("requested_addr", "10.99.0.11"), ("server_id", SITE)]
        assert (
            replies(packets, frame("request", chosen, xid=8), lambda r: by(r, HEAD), seconds=1)
            == []
        ), "it has chosen another"
        wait_until(lambda: "dhcp.other-server" in running.kinds(), 10)
        assert running.link.events[-1][4]["server"] == SITE


@pytest.mark.parametrize("mode", ["serve", "proxy"])
def test_two_heads_answer_for_their_own_nodes_alone(
    wire: Segment, packets: PacketSocket, files: dict[str, Any], mode: str
) -> None:
    other_mac, other_node = "52:54:00:00:01:02", NODE[:-1] + "2"
    place: Any = SimpleNamespace(head=wire.second, head_if=wire.second_if)
    second = Running(place, files, {"dhcp": mode}, {"address": SECOND})
    second.start()
    try:
        with serving(wire, files, dhcp=mode) as first:
            second.do(
                second.service.node_changed(
                    other_node, {**RECORD, "name": "n2", "macs": [other_mac], "ip": "10.99.0.12"}
                )
            )
            first.arm()
            second.do(second.service.mutate(attempt("boot-arm", other_node)))
            for number, (mac, own, other) in enumerate(
                ((MAC, HEAD, SECOND), (other_mac, SECOND, HEAD)), 300
            ):
                asked = frame("discover", PXE_BIOS, mac=mac, xid=number, flags=0x8000)
                found = replies(
                    packets, asked, partial(by, server=own), partial(by, server=other), seconds=1.5
                )
                assert [options_of(r)["server_id"] for r in found] == [own], (
                    "one answers, the other is silent"
                )
            assert "dhcp.other-server" not in (*first.kinds(), *second.kinds())
    finally:
        second.stop()
    assert second.errors == []


def test_nmap_sees_the_sites_server_and_not_the_head(
    wire: Segment, packets: PacketSocket, files: dict[str, Any], tmp_path: Path
) -> None:
    """It asks as a machine that nobody knows, which the site's server gives an address out of a
    range."""
    config = (
        configuration(Kind.DNSMASQ, "proxy").replace("10.99.0.0,static", "10.99.0.120,10.99.0.140")
        + "no-ping\n"
    )
    with (
        serving(wire, files, dhcp="proxy", dhcp_servers=(SITE,)),
        site_server(wire, Kind.DNSMASQ, config, packets, tmp_path / "site"),
    ):
        wire.give_address()
        said = wire.run(
            "nmap",
            "--script",
            "broadcast-dhcp-discover",
            "-e",
            wire.client_if,
            "--script-args",
            "broadcast-dhcp-discover.timeout=3",
        ).stdout.decode()
    assert re.findall(r"Server Identifier: (\S+)", said) == [SITE], said
