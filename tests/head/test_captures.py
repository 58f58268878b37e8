"""Captures: which frames of a node the kernel hands on and how much of each is kept, that no secret
is in the archive, and who may have one."""

from __future__ import annotations

import asyncio
import io
import json
import shutil
import socket
import struct
import subprocess
import sys
import tarfile
from typing import Any

import pytest

from layercake.base.packets import bpf
from layercake.features.captures.frames import cut, program
from layercake.features.captures.masking import masked, masked_document
from layercake.features.captures.operations import AT_ONCE, Captures
from layercake.features.captures.sniffer import READY
from layercake.features.consoles.operations import Consoles
from layercake.features.nodes.explain import Explainer
from layercake.kraken.errors import NotFound, Refused
from tests.support.api import served, token
from tests.support.world import World

CARD = "52:54:00:00:00:10"
OTHER = bytes.fromhex("525400000099")
SECRET = "s3cr3t-boot-token"
SNIFFER = [sys.executable, "-m", "layercake.features.captures.sniffer"]


def ethernet(payload: bytes, kind: int = 0x0800, to: bytes = OTHER, by: bytes = OTHER) -> bytes:
    return to + by + struct.pack("!H", kind) + payload


def ipv4(protocol: int, payload: bytes, by: str = "10.9.9.9", to: str = "10.8.8.8") -> bytes:
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), 0, 0, 64, protocol, 0)
    return head + socket.inet_aton(by) + socket.inet_aton(to) + payload


def udp(port: int, payload: bytes, by: int = 50000) -> bytes:
    return struct.pack("!HHHH", by, port, 8 + len(payload), 0) + payload


def tcp(payload: bytes) -> bytes:
    return (
        struct.pack("!HHIIBBHHH", 50000, 80, 1, 1, 8 << 4, 0x18, 512, 0, 0) + b"\1" * 12 + payload
    )


def dhcp(card: str) -> bytes:
    return bytes(28) + bytes.fromhex(card.replace(":", "")) + bytes(210)


def ipv6(payload: bytes, to: str) -> bytes:
    head = struct.pack("!IHBB", 6 << 28, len(payload), 17, 64)
    return (
        head
        + socket.inet_pton(socket.AF_INET6, "fd00::99")
        + (socket.inet_pton(socket.AF_INET6, to) + payload)
    )


MINE = bytes.fromhex(CARD.replace(":", ""))
TAKEN = {
    "to its card": ethernet(ipv4(17, udp(9, b"x")), to=MINE),
    "from its card": ethernet(b"\0" * 46, kind=0x0806, by=MINE),
    "from its address": ethernet(ipv4(6, tcp(b""), by="10.1.0.10")),
    "to its address": ethernet(ipv4(17, udp(53, b"?"), to="10.1.0.10")),
    "to its second address": ethernet(ipv6(udp(547, b"?"), "fd00::10"), kind=0x86DD),
    "a relay's DHCP of its card": ethernet(ipv4(17, udp(67, dhcp(CARD)))),
}
LEFT = {
    "of another": ethernet(ipv4(17, udp(9, b"x"))),
    "ARP of another": ethernet(b"\0" * 28, kind=0x0806),
    "to another address": ethernet(ipv6(udp(547, b"?"), "fd00::11"), kind=0x86DD),
    "another's DHCP": ethernet(ipv4(17, udp(67, dhcp("52:54:00:00:00:11")))),
    "no DHCP": ethernet(ipv4(6, dhcp(CARD))),
}


def test_the_kernel_hands_on_what_is_the_nodes_and_nothing_else() -> None:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with one, other:
        bpf.attach(other, program([CARD], ["10.1.0.10", "fd00::10"]))
        other.setblocking(False)
        for frame in (*LEFT.values(), *TAKEN.values()):
            one.send(frame)
        received: list[bytes] = []
        while len(received) < len(TAKEN):
            received.append(other.recv(2000))
        assert received == list(TAKEN.values())
        with pytest.raises(BlockingIOError):
            other.recv(2000)


@pytest.mark.parametrize(
    ("payload", "kept"),
    [
        (b"GET /boot/n0?token=" + SECRET.encode() + b" HTTP/1.1\r\n", b"GET /boot/n0"),
        (b"HTTP/1.1 200 OK\r\n\r\nkernel layercake.token=" + SECRET.encode(), b"HTTP/1.1 200"),
        (SECRET.encode(), b""),
    ],
)
def test_of_http_the_first_line_is_kept_without_its_query(payload: bytes, kept: bytes) -> None:
    frame = ethernet(ipv4(6, tcp(payload)))
    assert cut(frame) == frame[:66] + kept


def test_of_tftp_the_data_is_left_out_and_requests_are_whole() -> None:
    request = ethernet(ipv4(17, udp(69, b"\0\1grub.cfg\0octet\0")))
    data = ethernet(ipv4(17, udp(40000, b"\0\3\0\1set " + SECRET.encode(), by=41000)))
    assert cut(request) == request and cut(data) == data[:46]
    odd = ethernet(ipv4(17, udp(4011, b"\0\3\0\1" + SECRET.encode(), by=41000)))
    assert cut(odd) == odd[:46], "a client may have taken this port for a transfer"
    offer = ethernet(ipv4(17, udp(68, dhcp(CARD), by=67)))
    assert cut(offer) == offer
    rest = bytearray(data)
    rest[21] = 1  # a later fragment of it
    assert cut(bytes(rest)) == bytes(rest[:34])
    other = ethernet(ipv6(udp(40000, b"\0\3\0\1" + SECRET.encode()), "fd00::10"), kind=0x86DD)
    assert cut(other) == other[:66]


def test_a_short_frame_is_no_trouble() -> None:
    for frame in (frame[:n] for frame in TAKEN.values() for n in range(70)):
        assert frame.startswith(cut(frame)), frame


def test_packets_are_captured_as_they_come() -> None:
    """With the loopback interface, whose addresses need no setup."""
    order = {"macs": [], "addresses": ["127.9.8.7"], "seconds": 2, "bytes": 1 << 20}
    process = subprocess.Popen(
        [*SNIFFER, json.dumps(order)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stderr is not None and process.stderr.readline() == READY
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.9.8.7", 0))
        sock.sendto(b"question", ("127.0.0.1", 53))
        sock.sendto(SECRET.encode(), ("127.0.0.1", 40001))
    packets, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert packets.count(b"question") == 1 and b"s3cr" in packets and b"s3cr3" not in packets
    if (tcpdump := shutil.which("tcpdump")) is not None:
        read = subprocess.run(
            [tcpdump, "-nr", "-"], input=packets, capture_output=True, check=True, timeout=30
        )
        assert b"127.9.8.7" in read.stdout


def test_packets_are_bounded_in_bytes() -> None:
    order = {"macs": [], "addresses": ["127.9.8.6"], "seconds": 60, "bytes": 2000}
    process = subprocess.Popen(
        [*SNIFFER, json.dumps(order)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stderr is not None and process.stderr.readline() == READY
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.9.8.6", 0))
        for _ in range(20):
            sock.sendto(bytes(500), ("127.0.0.1", 53))
    packets, _ = process.communicate(timeout=30)
    assert process.returncode == 0 and 1000 < len(packets) <= 2000


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        (f"Command line: quiet layercake.token={SECRET} ro", "layercake.token=*** ro"),
        (f"GET /x?ticket={SECRET}", "ticket=***"),
        (f'{{"password": "{SECRET} with blanks"}}', '"password": ***}'),
        (f"Authorization: Bearer {SECRET}", "Authorization: ***"),
        (f"curl -H bearer {SECRET}", "bearer ***"),
        (f"admin_passwd: {SECRET}", "admin_passwd: ***"),
    ],
)
def test_the_values_of_secrets_are_left_out(text: str, safe: str) -> None:
    assert safe in masked(text) and "s3cr3t" not in masked(text)


def test_a_document_keeps_its_shape_and_its_references() -> None:
    document = {
        "bmc": {"password": {"file": "/etc/bmc"}, "user": "root"},
        "token": SECRET,
        "kernel_args": [f"a token={SECRET}", "tokens are fine"],
        "tokenizer": "x",
    }
    assert masked_document(document) == {
        "bmc": {"password": {"file": "/etc/bmc"}, "user": "root"},
        "token": "***",
        "kernel_args": ["a token=***", "tokens are fine"],
        "tokenizer": "x",
    }


async def answer(call: str, params: Any) -> Any:
    if call == "boot.steps":
        return {"armed": False, "opened_s_ago": 100.0, "steps": [{"kind": "boot.offer-sent"}]}
    if call == "console.log":
        return [
            {"at": NOW - 500, "text": "the boot before"},
            {"at": NOW - 50, "text": f"Command line: layercake.token={SECRET}"},
        ]
    raise NotFound(f"cannot call {call}: nobody answers")


NOW = 0.0


def files_of(data: bytes) -> dict[str, str]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        found = {}
        for entry in archive:
            file = archive.extractfile(entry)
            assert file is not None and entry.mode == 0o600
            found[entry.name] = file.read().decode(errors="replace")
        return found


async def test_an_archive_has_all_of_it_and_no_secret(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "NOW", world.head.store.wall())
    world.answer_calls(monkeypatch, answer)
    headers = await token(world.head, "ann", "admin")
    async with served(world.head, local=False) as client:
        asked = await client.post("/v1/nodes/n0/capture", json={"seconds": 1}, headers=headers)
        assert asked.status == 200, await asked.text()
        files = files_of(await asked.read())
        audit = await client.get("/v1/audit", headers=headers)
        assert "/v1/nodes/n0/capture" in await audit.text()
    assert set(files) == {
        f"n0/{name}"
        for name in (
            "README",
            "packets.pcap",
            "boot-steps.json",
            "console.txt",
            "events.jsonl",
            "explain.txt",
            "inventory.json",
        )
    }
    assert "layercake.token=***" in files["n0/console.txt"]
    assert "the boot before" not in files["n0/console.txt"]
    assert json.loads(files["n0/inventory.json"])["name"] == "n0"
    assert "for ann" in files["n0/README"] and "Not in it" not in files["n0/README"]
    assert not any(SECRET in text for text in files.values())


async def test_what_cannot_be_had_is_named_and_the_rest_is_there(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nobody(call: str, params: Any) -> Any:
        raise NotFound(f"cannot call {call}: nobody answers")

    world.answer_calls(monkeypatch, nobody)
    head = world.head
    without = ("setpriv", "--bounding-set", "-net_raw", "--inh-caps", "-net_raw")
    captures = Captures(
        head.store,
        head.database.history,
        head.modules.ask,
        head.part(Consoles),
        head.part(Explainer),
        (*without, *SNIFFER),
    )
    files = files_of(await captures.capture("n0", 1, "ann"))
    assert set(files) == {"n0/README", "n0/events.jsonl", "n0/explain.txt", "n0/inventory.json"}
    said = files["n0/README"].partition("Not in it:")[2]
    assert "packets.pcap: this head cannot capture packets: Operation not permitted" in said
    assert "boot-steps.json: cannot call" in said and "console.txt: cannot call" in said


async def test_only_an_administrator_of_the_node_gets_one(world: World) -> None:
    async with served(world.head, local=False) as client:
        for who, role, groups in (("op", "operator", ()), ("other", "admin", ("gpu",))):
            headers = await token(world.head, who, role, *groups)
            asked = await client.post("/v1/nodes/n0/capture", json={}, headers=headers)
            assert asked.status == 403, who
        headers = await token(world.head, "ann", "admin")
        for seconds in (0, 601):
            asked = await client.post(
                "/v1/nodes/n0/capture", json={"seconds": seconds}, headers=headers
            )
            assert asked.status == 400


async def test_there_are_only_so_many_at_a_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.answer_calls(monkeypatch, answer)
    captures = world.head.part(Captures)
    under_way = [asyncio.create_task(captures.capture("n0", 60, "ann")) for _ in range(AT_ONCE)]
    await asyncio.sleep(0)
    with pytest.raises(Refused, match="4 captures are under way"):
        await captures.capture("n1", 1, "ann")
    for task in under_way:
        task.cancel()
    await asyncio.gather(*under_way, return_exceptions=True)
    assert files_of(await captures.capture("n1", 1, "ann")), "who leaves makes room"
