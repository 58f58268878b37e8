"""The testbed's switch: who gets a frame, with which tag, and what is lost, doubled and late. No
socket, no clock."""

from __future__ import annotations

import random
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "vm-testbed"))

from vrack.switch import Faults, Pcap, Port, Switch, shifted, tagged, untagged

A, B, C = (bytes.fromhex(f"52540000000{n}") for n in (1, 2, 3))
EVERYONE = b"\xff" * 6


def frame(to: bytes, source: bytes) -> bytes:
    return to + source + b"\x08\x00" + bytes(46)


def switch(**faults: Faults) -> Switch:
    return Switch(faults, random.Random(7))


def test_frames_go_where_their_owner_was_heard_and_else_everywhere() -> None:
    made, ports = switch(), {name: Port(name, name) for name in "abc"}
    assert [to for to, _ in made.ways(ports, "a", frame(B, A))] == ["b", "c"]
    assert [to for to, _ in made.ways(ports, "b", frame(A, B))] == ["a"]
    assert [to for to, _ in made.ways(ports, "a", frame(B, A))] == ["b"]
    assert [to for to, _ in made.ways(ports, "c", frame(EVERYONE, C))] == ["a", "b"]
    assert made.ways(ports, "a", frame(A, A)) == []


def test_vlans_are_apart_and_tags_come_and_go() -> None:
    ports = {
        port.name: port
        for port in (
            Port("access", "", 40),
            Port("trunk", "", 1, (40, 50)),
            Port("up", "", 40),
            Port("own", ""),
        )
    }
    made, plain = switch(), frame(EVERYONE, A)
    assert made.ways(ports, "access", plain) == [("trunk", tagged(plain, 40)), ("up", plain)]
    assert made.ways(ports, "trunk", tagged(plain, 40)) == [("access", plain), ("up", plain)]
    assert made.ways(ports, "own", plain) == [("trunk", plain)]
    assert made.ways(ports, "trunk", tagged(plain, 50)) == []
    assert (
        made.ways(ports, "access", tagged(plain, 40)) == [] and made.counts["foreign-vlan"] == 1
    ), "a VLAN missing at a port"
    assert untagged(tagged(plain, 4094)) == (4094, plain) and untagged(plain) == (0, plain)


def test_a_tag_moves_what_the_header_points_at() -> None:
    header = struct.pack("=BBHHHH", 1, 1, 54, 1448, 34, 16)
    assert struct.unpack("=BBHHHH", shifted(header)) == (1, 1, 58, 1448, 38, 16)
    assert shifted(bytes(10)) == bytes(10)


def test_as_many_are_lost_doubled_and_late_as_was_asked() -> None:
    made = switch(a=Faults(loss=5.0, duplicate=2.0, reorder=10.0))
    found = [made.times(("a", "up")) for _ in range(20_000)]
    assert 0.045 < sum(not waits for waits in found) / 20_000 < 0.055
    assert 0.016 < sum(len(waits) == 2 for waits in found) / 20_000 < 0.024
    assert 0.09 < sum(bool(waits) and max(waits) == 0.005 for waits in found) / 20_000 < 0.11
    assert made.times(("up", "b")) == [0.0], "who has no faults is not disturbed"
    made.faults["a"] = Faults(cut=True)
    assert made.times(("b", "a")) == []


def test_delays_add_up_and_what_is_due_comes_in_order() -> None:
    made = switch(a=Faults(delay_ms=10.0), b=Faults(delay_ms=20.0))
    assert made.times(("a", "b")) == [0.03]
    assert made.wait(5.0) is None
    made.hold(6.0, "a", b"", b"second")
    made.hold(5.5, "a", b"", b"first")
    assert made.wait(5.0) == 0.5 and made.due(5.4) == []
    assert [data for _, _, data in made.due(6.0)] == [b"first", b"second"]


def test_recordings_are_read_by_others(tmp_path: Path) -> None:
    from scapy.utils import rdpcap

    file = Pcap(tmp_path / "a.pcap")
    file.add(frame(B, A), 1_700_000_000.25)
    file.close()
    (read,) = rdpcap(str(tmp_path / "a.pcap"))
    assert (bytes(read), float(read.time)) == (frame(B, A), 1_700_000_000.25)
