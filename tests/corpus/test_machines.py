"""What machines and programs say that are nearly right, out of files, and structured nonsense made
of it: each parser of foreign data reads what it can and raises nothing that it does not name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from imageapi.node.attach.disks import names
from layercake.features.slurm.scontrol import SlurmNode, parse, parse_json
from layercake.kraken.errors import OperationFailed
from minos.agent.disks import scan
from minos.erase.selection import Own, select_disks
from minos.init import interface_with
from minos.placeholders import is_placeholder
from minos.storage.block_devices import is_same_disk, paths_of_disks
from minos.survey.report import survey
from pxe.dhcp.outcome import mac_of, notes_on_malformed
from pxe.nodes import Nodes
from pxe.packets import dhcp
from pxe.packets.dhcp import DhcpError
from pxe.packets.tftp import TftpError, parse_request

HERE = Path(__file__).parent
PACKETS = sorted(path.name for path in (HERE / "dhcp").glob("*.hex"))


def packet(name: str) -> bytes:
    """The bytes of a file of hexadecimal."""
    lines = (HERE / "dhcp" / name).read_text().splitlines()
    return bytes.fromhex("".join(line for line in lines if not line.startswith("#")))


def grow(root: Path, name: str) -> Path:
    """A tree of sysfs as a file describes it."""
    for line in (HERE / "sysfs" / f"{name}.tree").read_text().splitlines():
        path, _, text = line.partition(" ")
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("-> "):
            (root / path).symlink_to(root / text.removeprefix("-> "))
        else:
            (root / path).write_text(text + "\n")
    return root


@pytest.mark.parametrize(
    ("name", "mac", "kind", "arch"),
    [
        ("infiniband-flexboot.hex", "e41d2da1b2c3", 1, b"\0\7"),
        ("infiniband-six-bytes.hex", "e41d2da1b2c3", 1, b"\0\7"),
        ("cut-off.hex", "020000000001", 1, b"\0\7"),
        ("bootp.hex", "020000000001", 0, None),
    ],
)
def test_packets(name: str, mac: str, kind: int, arch: bytes | None) -> None:
    read = dhcp.parse(packet(name))
    assert (mac_of(read).hex(), read.message_type) == (mac, kind)
    assert read.options.get(dhcp.CLIENT_ARCH) == arch


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("hot-plug", [("sda", ()), ("sdb", ())]),
        ("pmem-xen", [("pmem0", ()), ("rssda", ()), ("xvda", ())]),
        ("two-paths", [("sda", ("sdb",)), ("sdc", ())]),
    ],
)
def test_trees(tmp_path: Path, name: str, own: list[tuple[str, tuple[str, ...]]]) -> None:
    root = grow(tmp_path, name)
    disks, left = select_disks(names, root)
    assert ([(disk.name, disk.others) for disk in disks], left) == (own, [])
    listed = scan.all_of(names, root, tmp_path / "dev")
    assert [(disk.name, disk.others) for disk in listed] == own


def test_slurms_nodes_are_the_same_by_both_formats() -> None:
    lines = parse((HERE / "slurm/22.05.txt").read_text())
    assert lines == parse_json((HERE / "slurm/23.02.json").read_text())
    assert lines["n0"] == SlurmNode(frozenset({"IDLE", "DRAIN"}), "layercake roll 7")


@given(st.sampled_from(PACKETS), st.data())
def test_packets_with_nonsense_in_them(name: str, data: st.DataObject) -> None:
    raw = bytearray(packet(name))
    for _ in range(data.draw(st.integers(0, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(raw[: data.draw(st.integers(0, len(raw)))])
    try:
        read = dhcp.parse(cut)
    except DhcpError as error:
        notes_on_malformed(cut, error.message, Nodes())
        return
    assert mac_of(read) is not None
    assert dhcp.parse(dhcp.build(read)).options == read.options


@given(st.lists(st.binary(max_size=24), min_size=1, max_size=6))
def test_file_names_with_nonsense_in_them(parts: list[bytes]) -> None:
    try:
        read = parse_request(b"\0\1" + b"\0".join(parts) + b"\0")
    except TftpError:
        return
    assert read.name.isascii() and read.name.isprintable()


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["nodes", "name", "state", "state_flags", "reason"]), inner, max_size=5
        )
    ),
    max_leaves=12,
)


@given(_VALUES)
def test_slurms_json_with_nonsense_in_it(value: object) -> None:
    for text in (json.dumps(value), json.dumps({"nodes": value}), json.dumps({"nodes": [value]})):
        try:
            nodes = parse_json(text)
        except OperationFailed:
            continue
        assert all(isinstance(node, SlurmNode) for node in nodes.values())


@given(
    st.lists(
        st.sampled_from(["NodeName=n0 ", "State=", "IDLE", "Reason=", " [a@b]", "Comment=", "\n"])
        | st.text(max_size=4),
        max_size=12,
    )
)
def test_slurms_lines_with_nonsense_in_them(words: list[str]) -> None:
    assert all(isinstance(node, SlurmNode) for node in parse(" ".join(words)).values())


@given(st.text(max_size=40))
def test_marks_with_nonsense_in_them(mark: str) -> None:
    assert is_placeholder(mark) in (True, False)
    assert is_placeholder(mark) == is_placeholder(f" {mark} ")


_OWN = st.builds(
    Own,
    st.sampled_from(["sda", "nvme0n1", "", "cciss!c0d0"]),
    st.integers(0, 2),
    st.just(""),
    st.tuples(st.sampled_from(["", "naa.1234", "naa.0000", "S1", "eui.\xff"]), st.text(max_size=3)),
    path=st.sampled_from(["", "/", "/a/target1:0:0/1:0:0:0/block/sda", "/nvme/nvme0/nvme0n1"]),
)


@given(st.lists(_OWN, max_size=6))
def test_disks_with_nonsense_in_their_names(disks: list[Own]) -> None:
    groups = paths_of_disks(disks)
    assert sum(map(len, groups)) == len(disks)
    assert all(is_same_disk(a, b) == is_same_disk(b, a) for a in disks for b in disks)


_FILES = st.sampled_from(
    ["size", "removable", "ro", "hidden", "device/type", "device/model", "device/wwid", "wwid"]
)
_TEXTS = st.sampled_from([b"", b"1\n", b"0\n", b"-1", b"x" * 30, b"\xff\xfe\n", b"9" * 40, b"\n"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(st.dictionaries(_FILES, _TEXTS, max_size=6), st.data())
def test_trees_with_nonsense_in_them(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes], data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("sys")
    name = data.draw(st.sampled_from(["sda", "nvme0n1", "mmcblk0boot0", "pmem0", "sr0"]))
    block = root / "devices/pci0000:00" / name
    (block / "device").mkdir(parents=True)
    for file, text in files.items():
        (block / file).write_bytes(text)
    for where in ("block", "class/net"):
        (root / where).mkdir(parents=True)
    (root / "block" / name).symlink_to(block)
    (root / "block/gone").symlink_to(root / "nowhere")
    (root / "block/odd").write_text("bond0\n")
    (root / "class/net/bonding_masters").write_text("bond0\n")
    (root / "class/net/eth0").symlink_to(root / "nowhere")
    own, left = select_disks(names, root)
    assert len(own) + len(left) <= 1
    assert len(scan.all_of(names, root, root / "dev")) <= 1
    assert interface_with("", root / "class/net") == ""
    report = survey(root, root / "proc", health=lambda disk: "", ask_bmc=dict)
    assert "disks" not in report["failed"] and report["cards"] == []
