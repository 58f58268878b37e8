"""Images in a cluster, as the node reads their description: what is let through to the kernel, and
in what words."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from imageapi.node.attach import rbd, verity
from imageapi.spec.attachment import parse_rbd, parse_verity
from imageapi.spec.image import parse_image
from layercake.kraken.errors import InputError, OperationFailed, Unreachable

ATTACH = {
    "kind": "rbd",
    "monitors": ["10.99.0.1:6789", "[fd99::1]:6789"],
    "pool": "layercake",
    "image": "image.ab",
    "snapshot": "v1",
    "user": "node",
    "secret": "ceph-layercake",
}
VERITY = {
    "root_hash": "ab" * 32,
    "hash_offset": 8192,
    "data_blocks": 2,
    "salt": "00ff",
    "block_size": 4096,
}
IMAGE: dict[str, Any] = {
    "name": "app",
    "digest": f"blake2b:{'a' * 64}",
    "size": 5000,
    "url": "http://h/x",
    "container": {},
}


def test_description_survives_the_way_to_disk_and_back() -> None:
    spec = parse_image({**IMAGE, "attach": ATTACH, "verity": VERITY})
    assert spec.to_wire()["attach"] == ATTACH
    assert spec.to_wire()["verity"] == VERITY
    assert parse_image(spec.to_wire()) == spec
    assert "attach" not in parse_image(IMAGE).to_wire()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("pool", "a b"),
        ("image", "x,secret=y"),
        ("snapshot", "v1\nv2"),
        ("user", ""),
        ("secret", "../admin"),
        ("secret", None),
        ("monitors", []),
        ("monitors", "10.0.0.1:6789"),
        ("monitors", ["10.0.0.1:6789 name=admin"]),
        ("monitors", ["host:6789"]),
        ("kind", "ceph"),
    ],
)
def test_hostile_attachments_are_refused(field: str, value: object) -> None:
    with pytest.raises(InputError, match="cannot use image attach"):
        parse_image({**IMAGE, "attach": {**ATTACH, field: value}, "verity": VERITY})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("root_hash", "AB" * 32),
        ("root_hash", ""),
        ("salt", "0"),
        ("salt", "- 1 ignore_corruption"),
        ("hash_offset", 4096),
        ("hash_offset", 8193),
        ("hash_offset", "8192"),
        ("data_blocks", 0),
        ("data_blocks", True),
        ("block_size", 512),
    ],
)
def test_hostile_hash_trees_are_refused(field: str, value: object) -> None:
    with pytest.raises(InputError, match="cannot use image verity"):
        parse_image({**IMAGE, "attach": ATTACH, "verity": {**VERITY, field: value}})


def test_what_comes_from_a_cluster_must_have_a_hash_tree() -> None:
    with pytest.raises(InputError, match="hash tree"):
        parse_image({**IMAGE, "attach": ATTACH})


def test_the_kernels_line_names_the_key_and_does_not_hold_it() -> None:
    source = parse_rbd(ATTACH)
    assert rbd.command(source, "client.node") == (
        "10.99.0.1:6789,[fd99::1]:6789 name=node,key=client.node,ro,mount_timeout=10 layercake "
        "image.ab v1"
    )
    newer = parse_rbd({**ATTACH, "monitors": ["10.99.0.1:3300"]})
    assert "ms_mode=prefer-crc" in rbd.command(newer, "client.node")


@pytest.mark.parametrize(
    ("number", "kind", "text"),
    [
        (110, Unreachable, "does not answer"),
        (5, Unreachable, "does not answer"),
        (13, OperationFailed, "refuses the key"),
        (1, OperationFailed, "refuses the key of client.node"),
        (2, OperationFailed, "no such image or snapshot"),
        (22, OperationFailed, "Invalid argument"),
    ],
)
def test_the_kernels_error_numbers_are_explained(
    number: int, kind: type[Exception], text: str
) -> None:
    error = rbd.explain(number, parse_rbd(ATTACH))
    assert type(error) is kind
    assert text in str(error) and "layercake/image.ab@v1" in str(error)


def test_device_mapper_messages_have_the_kernels_layout() -> None:
    tree = parse_verity(VERITY)
    assert (
        verity.table("/dev/rbd0", tree)
        == f"1 /dev/rbd0 /dev/rbd0 4096 4096 2 2 sha256 {'ab' * 32} 00ff"
    )
    data = verity.encode("view", uuid="u-1", flags=1, target=(16, "1 2"))
    assert len(data) == 4096
    assert data[0:4] == (4).to_bytes(4, "little")
    assert int.from_bytes(data[12:16], "little") == 4096, "data_size"
    assert int.from_bytes(data[16:20], "little") == 312, "data_start: sizeof(struct dm_ioctl)"
    assert int.from_bytes(data[20:24], "little") == 1, "target_count"
    assert data[48:52] == b"view"
    assert data[176:179] == b"u-1"
    assert data[312:328] == (0).to_bytes(8, "little") + (16).to_bytes(8, "little")
    assert data[336:342] == b"verity"
    assert data[352:356] == b"1 2\0"
    assert verity.decode(data).uuid == "u-1"


def test_nothing_is_attached_where_there_is_no_driver() -> None:
    assert rbd.find(parse_rbd(ATTACH)) == []
    assert not verity.corrupted("layercake-none")
    verity.detach("layercake-none")
    rbd.detach(parse_rbd(ATTACH))


@pytest.mark.root
def test_a_device_file_without_a_driver_behind_it_is_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "control"
    os.mknod(
        file, 0o600 | stat.S_IFCHR, os.makedev(10, 254)
    )  # a number of miscellaneous devices that nothing has
    with pytest.raises(OSError, match="No such device"):
        file.read_bytes()
    monkeypatch.setattr(verity, "CONTROL", file)
    assert not verity.corrupted("layercake-none")
    verity.detach("layercake-none")
