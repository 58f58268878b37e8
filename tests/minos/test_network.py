"""The node's network: netlink messages, finding the card, and the real thing in a network
namespace."""

from __future__ import annotations

import errno
import secrets
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from minos import init, netlink, syscalls
from minos.identity import parse_identity
from minos.init import interface_with

ROOT = Path(__file__).resolve().parents[2]


def test_an_address_message_is_as_the_kernel_reads_it() -> None:
    data = netlink.new_address(3, socket.AF_INET, bytes([10, 0, 0, 5]), 24, 7)
    length, kind, flags, sequence, _ = struct.unpack_from("=IHHII", data)
    assert (length, kind, sequence) == (len(data), 20, 7)
    assert flags & 0x5 == 0x5
    assert struct.unpack_from("=BBBBI", data, 16) == (2, 24, 0, 0, 3)
    assert data[24:] == struct.pack("=HH4B", 8, 2, 10, 0, 0, 5) + struct.pack(
        "=HH4B", 8, 1, 10, 0, 0, 5
    )


def test_acknowledgements_are_told_apart() -> None:
    ok = struct.pack("=IHHIIi", 36, 2, 0, 9, 0, 0) + bytes(16)
    assert netlink.error_of(ok, 9) == 0
    assert netlink.error_of(ok, 8) is None
    assert (
        netlink.error_of(struct.pack("=IHHIIi", 36, 2, 0, 9, 0, -errno.EPERM) + bytes(16), 9)
        == errno.EPERM
    )
    assert netlink.error_of(b"short", 9) is None


def test_the_card_is_found_by_its_mac(tmp_path: Path) -> None:
    for name, mac in (
        ("lo", "00:00:00:00:00:00"),
        ("eth0", "52:54:00:00:00:01"),
        ("eth1", "52:54:00:00:00:02"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "address").write_text(f"{mac}\n")
    assert interface_with("52:54:00:00:00:02", tmp_path) == "eth1"
    assert interface_with("", tmp_path) == "eth0"
    assert interface_with("52:54:00:00:00:03", tmp_path) == ""


def test_what_is_no_interface_or_goes_away_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "bonding_masters").write_text("bond0\n")
    (tmp_path / "eth0").mkdir()  # its files are gone
    (tmp_path / "eth1").symlink_to(tmp_path / "gone")
    (tmp_path / "eth2/address").mkdir(parents=True)
    (tmp_path / "eth3").mkdir()
    (tmp_path / "eth3/address").write_bytes(b"\xff\xfe\n")
    (tmp_path / "eth4").mkdir()
    (tmp_path / "eth4/address").write_text("52:54:00:00:00:0a\n")
    assert interface_with("52:54:00:00:00:0A", tmp_path) == "eth4"
    assert interface_with("52:54:00:00:00:0b", tmp_path) == ""
    assert interface_with("", tmp_path / "none") == ""


@pytest.mark.parametrize(
    ("words", "host", "line"),
    [
        ("layercake.name=n1 layercake.ip=10.77.0.5/24", "n1", "10.77.0.5 n1"),
        (
            "layercake.name=n1 layercake.ip=10.77.0.5/24 layercake.domain=far.test",
            "n1",
            "10.77.0.5 n1.far.test n1",
        ),
        (
            "layercake.name=n1.far.test layercake.ip=10.77.0.5/24",
            "n1.far.test",
            "10.77.0.5 n1.far.test n1",
        ),
        (
            f"layercake.name=n1.{'x' * 63}.test layercake.ip=10.77.0.5/24",
            "n1",
            f"10.77.0.5 n1.{'x' * 63}.test n1",
        ),
    ],
)
def test_a_machine_finds_its_own_names_without_asking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, host: str, line: str
) -> None:
    set_: list[str] = []
    monkeypatch.setattr(syscalls, "set_hostname", set_.append)
    init.set_names(parse_identity(words), tmp_path)
    assert set_ == [host]
    lines = (tmp_path / "hosts").read_text().splitlines()
    assert lines == ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback", line]


SCRIPT = """
import sys, socket, pathlib
sys.path.insert(0, {root!r})
from minos import hardware, init
from minos.identity import parse_identity
init.Path = lambda *a: pathlib.Path({resolv!r}) if a == ("/etc/resolv.conf",) else pathlib.Path(*a)
words = "layercake.mac=52:54:00:00:99:01 layercake.ip=10.77.0.5/24 layercake.gateway=10.77.0.1 layercake.dns=10.77.0.1 "
words += "layercake.domain=far.test layercake.mtu=1400 layercake.routes=10.130.0.0/15@10.77.0.254,10.7.7.7/32@10.77.0.253"
print(init.set_up_network(parse_identity(words), hardware.Plug(hardware.EMPTY, print)))
"""


@pytest.mark.root
def test_a_card_is_brought_up_with_address_and_route(tmp_path: Path) -> None:
    name = f"mn{secrets.token_hex(3)}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        # ip netns exec mounts the namespace's own /sys, where the card is looked for.
        link = [
            "link",
            "add",
            "c0",
            "address",
            "52:54:00:00:99:01",
            "type",
            "veth",
            "peer",
            "name",
            "c1",
        ]
        subprocess.run(["ip", "-n", name, *link], check=True)
        script = SCRIPT.format(root=str(ROOT), resolv=str(tmp_path / "resolv.conf"))
        command = ["ip", "netns", "exec", name, sys.executable, "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.stdout == "c0 10.77.0.5/24\n", done.stderr
        shown = subprocess.run(
            ["ip", "-n", name, "addr", "show"], capture_output=True, text=True, check=True
        ).stdout
        assert "mtu 1400" in shown
        assert "inet 10.77.0.5/24" in shown and "inet 127.0.0.1/8" in shown
        routes = subprocess.run(
            ["ip", "-n", name, "route"], capture_output=True, text=True, check=True
        ).stdout
        assert "default via 10.77.0.1 dev c0" in routes
        assert (
            "10.130.0.0/15 via 10.77.0.254 dev c0" in routes
            and "10.7.7.7 via 10.77.0.253 dev c0" in routes
        )
        assert (tmp_path / "resolv.conf").read_text() == "search far.test\nnameserver 10.77.0.1\n"
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)
