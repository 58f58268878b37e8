"""What real firmware asked in a real boot, asked again, packet by packet: it must get what it went
on by (tests/golden).

The DHCP frames of the captures go out as they were sent, requests of TFTP and HTTP from the same
addresses; the answers are read by scapy and by clients of our own, none of which knows our codecs.
"""

from __future__ import annotations

import itertools
import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest
from goldenfile import answers, asks, described, distilled, essence, http, payload, ports, tftp
from patience import patience
from scapy.layers.dhcp import BOOTP, DHCP
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet
from scapy.utils import rdpcap
from vrack.netns import BRIDGE_MAC

from tests.boot.conftest import MAC, NODE, RECORD, PacketSocket, Running, Wire

KEPT = Path(__file__).resolve().parents[1] / "golden"
CAPTURES = sorted(path.stem for path in KEPT.glob("*.json"))
SIX = "fd99::a63:b"
LIMIT_S = 20.0


def address(namespace: str, interface: str, text: str) -> None:
    subprocess.run(
        ["ip", "-n", namespace, "addr", "add", text, "dev", interface, "nodad"], check=True
    )


def until(running: Running, seen: Callable[[], bool], what: str) -> None:
    """The service has done what its client has seen already: asks it until then."""
    end = time.monotonic() + patience(LIMIT_S)
    while not seen():
        assert time.monotonic() < end, what
        running.stats()


@pytest.fixture
def cable(wire: Wire) -> Wire:
    """The wire, with the addresses of the captures at both ends, which can be used at once."""
    for name, interface, mac in (
        (wire.head, wire.head_if, BRIDGE_MAC),
        (wire.client, wire.client_if, MAC),
    ):
        own = [
            "ip",
            "netns",
            "exec",
            name,
            "sh",
            "-c",
            f"echo 0 > /proc/sys/net/ipv6/conf/{interface}/accept_dad",
        ]
        subprocess.run(own, check=True)
        for words in (["down"], ["address", mac], ["up"]):
            subprocess.run(["ip", "-n", name, "link", "set", interface, *words], check=True)
    address(wire.head, wire.head_if, "fd99::1/64")
    return wire


class Machine:
    """Asks what the machine of a capture asked, as that did."""

    def __init__(self, wire: Wire, packets: PacketSocket) -> None:
        self._wire, self._packets = wire, packets
        self._open = ExitStack()
        self._lines: dict[int, socket.socket] = {}
        self._addressed = False
        self.fetched = 0
        """How many files it has had by TFTP."""

    def close(self) -> None:
        self._open.close()

    def ask(self, frame: Packet) -> dict[str, Any] | None:
        """The essence of the answer."""
        protocol, known_by = asks(frame) or ("", b"")
        if protocol in ("dhcp", "dhcpv6"):
            found = self._packets.exchange(
                bytes(frame), lambda data: answers(Ether(data)) == (protocol, known_by)
            )
            return None if found is None else essence(protocol, Ether(found))
        if not self._addressed:
            self._wire.give_address()
            address(self._wire.client, self._wire.client_if, f"{SIX}/64")
            self._addressed = True
        return self._tftp(frame) if protocol == "tftp" else self._http(frame)

    def _socket(self, frame: Packet, kind: socket.SocketKind) -> socket.socket:
        family = socket.AF_INET6 if frame.haslayer("IPv6") else socket.AF_INET
        made: socket.socket = self._wire.there(lambda: socket.socket(family, kind))
        made.settimeout(LIMIT_S)
        self._open.enter_context(made)
        made.bind((SIX if family == socket.AF_INET6 else "10.99.0.11", 0))
        return made

    def _tftp(self, frame: Packet) -> dict[str, Any]:
        """The first packet that comes; then the file is fetched to its end (RFC 1350, 2347, 2349,
        7440)."""
        sock = self._socket(frame, socket.SOCK_DGRAM)
        sock.sendto(payload(frame), ("fd99::1" if frame.haslayer("IPv6") else "10.99.0.1", 69))
        data, peer = sock.recvfrom(4096)
        first = tftp(data)
        block = 512
        window = 1
        size = 0
        options = {}
        if first["kind"] == "ERROR":
            return first
        if first["kind"] == "OACK":
            words = data[2:-1].decode("ascii").split("\0")
            options = dict(zip(words[::2], words[1::2], strict=True))
            block, window = int(options.get("blksize", 512)), int(options.get("windowsize", 1))
            sock.sendto(b"\0\4\0\0", peer)
            data = sock.recv(4096)
        for number in itertools.count(1):
            assert data[:4] == b"\0\3" + (number & 0xFFFF).to_bytes(2, "big")
            size += len(data) - 4
            if len(data) - 4 < block or number % window == 0:
                sock.sendto(b"\0\4" + data[2:4], peer)
            if len(data) - 4 < block:
                break
            data = sock.recv(4096)
        self.fetched += 1
        assert "tsize" not in options or int(options["tsize"]) == size
        return first

    def _http(self, frame: Packet) -> dict[str, Any]:
        """On the connection that it was asked on, if that is open still."""
        _, port, _ = ports(frame)
        if port not in self._lines:
            self._lines[port] = self._socket(frame, socket.SOCK_STREAM)
            self._lines[port].connect(("10.99.0.1", 8080))
        self._lines[port].sendall(payload(frame))
        answer = HTTPResponse(
            self._lines[port], method=payload(frame).split(b" ")[0].decode("ascii")
        )
        answer.begin()
        body = answer.read()
        assert answer.length in (None, 0) and (
            answer.status != 200 or body or payload(frame).startswith(b"HEAD")
        )
        return http(answer.status, {name.lower(): value for name, value in answer.getheaders()})


@pytest.fixture
def machine(cable: Wire, packets: PacketSocket) -> Iterator[Machine]:
    made = Machine(cable, packets)
    yield made
    made.close()


@pytest.fixture(params=CAPTURES)
def capture(request: pytest.FixtureRequest) -> dict[str, Any]:
    said: dict[str, Any] = json.loads((KEPT / f"{request.param}.json").read_text())
    return said | {
        "name": request.param,
        "frames": list(rdpcap(str(KEPT / f"{request.param}.pcap"))),
    }


def test_captures_say_what_they_are_and_are_small(capture: dict[str, Any]) -> None:
    assert [described(frame) for frame in capture["frames"]] == [
        step["asks"] for step in capture["steps"]
    ]
    assert (KEPT / f"{capture['name']}.pcap").stat().st_size < 16_384 and capture["packages"]
    assert not any(b"layercake.token" in payload(frame) for frame in capture["frames"])


def test_a_capture_is_made_of_what_a_machine_sent_and_the_first_answer_to_it() -> None:
    (discover, *_), get = rdpcap(str(KEPT / "bios.pcap")), rdpcap(str(KEPT / "bios.pcap"))[2]
    reply = Ether(src=BRIDGE_MAC, dst=MAC) / IP(src="10.99.0.1", dst="10.99.0.11")
    offer = BOOTP(op=2, xid=discover[BOOTP].xid, yiaddr="10.99.0.11") / DHCP(
        options=[("message-type", "offer"), "end"]
    )
    page = (
        b"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: "
        b"2\r\n\r\nno"
    )
    other = reply / UDP(sport=67, dport=68) / offer.copy()
    other[BOOTP].xid += 1
    sent = reply / TCP(sport=8080, dport=get[TCP].sport) / page
    early = discover.copy()
    early[BOOTP].xid += 2
    dhcp = reply / UDP(sport=67, dport=68) / offer
    heard = [early, discover, other, dhcp, get, sent, get, reply / UDP(sport=68, dport=67) / offer]
    (first, offered), (second, refused) = distilled([Ether(bytes(frame)) for frame in heard], MAC)
    assert (payload(first), payload(second)) == (payload(discover), payload(get))
    assert (offered["kind"], offered["yiaddr"], offered["to"]) == ("OFFER", "10.99.0.11", MAC)
    assert refused == {"kind": 403, "type": "text/plain", "length": True, "ranges": ""}


def test_firmware_gets_what_it_went_on_by(
    capture: dict[str, Any],
    cable: Wire,
    files: dict[str, Any],
    machine: Machine,
    make_running: type[Running],
) -> None:
    chosen = Path(files["boot_dir"], capture["node"]["boot_set"])
    chosen.mkdir()
    for name in ("vmlinuz", "minos.img"):
        (chosen / name).write_bytes(Path(files["boot_dir"], name).read_bytes())
    running = make_running(cable, files, {"ra_prefix": "fd99::/64"})
    running.start()
    try:
        running.do(running.service.node_changed(NODE, {**RECORD, **capture["node"]}))
        running.arm()
        for frame, step in zip(capture["frames"], capture["steps"], strict=True):
            assert machine.ask(frame) == step["answer"], step["asks"]
            until(
                running,
                lambda: running.stats().get("tftp.done", 0) == machine.fetched,
                "the last ACK of the file has come",
            )
        until(
            running,
            lambda: {"boot.script-sent", "boot.initrd-sent"} <= {*running.kinds()},
            "it is as far as its agent's join",
        )
    finally:
        running.stop()
    assert running.errors == []
