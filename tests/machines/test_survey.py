"""What a machine reports of its hardware: out of made-up tables and trees, hostile ones too, and
each part fails alone."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from layercake.base.packets import lldp
from layercake.features.machines.hardware import report
from layercake.kraken.errors import InputError
from minos.bmc import inspect as bmc
from minos.survey import smart, smbios
from minos.survey.report import MOST_BYTES, survey
from minos.survey.sanitize import identity, plain


def structure(kind: int, data: bytes, *strings: bytes) -> bytes:
    return bytes((kind, len(data) + 4)) + b"\1\0" + data + b"\0".join(strings) + b"\0\0"


def dimm(megabytes: int, slot: bytes = b"DIMM A1", serial: bytes = b"S1") -> bytes:
    data = bytearray(0x22 - 4)
    struct.pack_into("<H", data, 12 - 4, megabytes)
    data[16 - 4], data[23 - 4], data[24 - 4] = 1, 2, 3
    return structure(17, bytes(data), slot, b"ACME", serial)


def system(serial: bytes, product: bytes = b"X1") -> bytes:
    return structure(1, b"\1\2\0\3" + bytes(range(16)) + b"\0\0\0", b"ACME", product, serial)


TABLE = (
    structure(0, b"\1\2\0\0\3", b"SeaBIOS", b"1.16", b"04/01/2014")
    + system(b"SN-7")
    + dimm(16384)
    + dimm(0, b"DIMM A2")
    + structure(127, b"")
)


def made(path: Path, table: bytes = TABLE) -> tuple[Path, Path]:
    """A machine's /sys and /proc."""
    sys, proc = path / "sys", path / "proc"
    (sys / "firmware/dmi/tables").mkdir(parents=True)
    (sys / "firmware/dmi/tables/DMI").write_bytes(table)
    for name, size, turns in (
        ("sda", 1000, "1"),
        ("nvme0n1", 2000, "0"),
        ("loop0", 8, "0"),
        ("sr0", 8, "1"),
    ):
        for file, text in (
            ("size", str(size)),
            ("queue/rotational", turns),
            ("device/model", f"Disk {name}\x1b[31m"),
            ("device/serial", f"S-{name}"),
        ):
            (sys / "block" / name / file).parent.mkdir(parents=True, exist_ok=True)
            (sys / "block" / name / file).write_text(text)
    for name, mac, speed in (
        ("eth0", "52:54:00:00:00:01", "1000"),
        ("eth1", "52:54:00:00:00:02", "-1"),
    ):
        card = sys / "class/net" / name
        (card / "device").mkdir(parents=True)
        for file, text in (("address", mac), ("carrier", "1"), ("speed", speed), ("type", "1")):
            (card / file).write_text(text)
    (sys / "class/net/lo").mkdir()
    gpu = sys / "bus/pci/devices/0000:81:00.0"
    gpu.mkdir(parents=True)
    for file, text in (("class", "0x030200"), ("vendor", "0x10de"), ("device", "0x20b0")):
        (gpu / file).write_text(text)
    proc.mkdir()
    (proc / "cpuinfo").write_text(
        "processor : 0\nmodel name : CPU 9\ncore id : 0\n\nprocessor : 1\ncore id : 1\n"
    )
    (proc / "meminfo").write_text("MemTotal:       16384 kB\n")
    return sys, proc


def look(path: Path, table: bytes = TABLE, **others: Any) -> dict[str, Any]:
    sys, proc = made(path, table)
    return survey(sys, proc, health=lambda name: smart.OK, **others)


def test_all_of_a_machine(tmp_path: Path) -> None:
    found = look(
        tmp_path,
        ask_bmc=lambda: {"address": "10.2.0.7", "mac": "52:54:00:00:0b:0c", "firmware": "1.07"},
    )
    read = report.read(json.loads(json.dumps(found)))
    assert read.smbios.system.serial == "SN-7" and read.smbios.bios.version == "1.16"
    assert [(d.slot, d.mb, d.serial) for d in read.dimms] == [
        ("DIMM A1", 16384, "S1")
    ] and read.slots == 2
    assert [(d.name, d.bytes, d.rotational, d.model) for d in read.disks] == [
        ("nvme0n1", 1024000, False, "Disk nvme0n1?[31m"),
        ("sda", 512000, True, "Disk sda?[31m"),
    ]
    assert [(c.name, c.mac, c.mbps) for c in read.cards] == [
        ("eth0", "52:54:00:00:00:01", 1000),
        ("eth1", "52:54:00:00:00:02", 0),
    ]
    assert read.gpus[0].vendor == "0x10de" and read.cpu.cores == 2 and read.memory == 16 << 20
    assert read.bmc is not None and read.bmc.address == "10.2.0.7" and not read.failed


@pytest.mark.parametrize(
    ("lockdown", "expected"),
    [
        ("none [integrity] confidentiality\n", "on"),
        ("[none] integrity confidentiality\n", "off"),
        (None, ""),
    ],
)
def test_whether_secure_boot_is_on(tmp_path: Path, lockdown: str | None, expected: str) -> None:
    sys, proc = made(tmp_path)
    (sys / "firmware/efi").mkdir()
    (sys / "kernel/security").mkdir(parents=True)
    if lockdown is not None:
        (sys / "kernel/security/lockdown").write_text(lockdown)
    found = survey(sys, proc, health=lambda name: smart.OK, ask_bmc=dict)
    assert (found["uefi"], found["secure_boot"], "secure boot" in found["failed"]) == (
        True,
        expected,
        lockdown is None,
    )


def test_each_part_fails_alone(tmp_path: Path) -> None:
    def silent() -> dict[str, Any]:
        raise TimeoutError("the BMC does not answer command 0x1")

    sys, proc = made(tmp_path)
    (sys / "firmware/dmi/tables/DMI").unlink()
    (proc / "meminfo").write_text("")
    found = survey(sys, proc, health=lambda name: smart.OK, ask_bmc=silent)
    assert found["failed"] == {
        "smbios": "No such file or directory",
        "memory": "/proc/meminfo says nothing of MemTotal",
        "bmc": "the BMC does not answer command 0x1",
    }
    assert len(found["disks"]) == 2 and found["cpu"]["logical"] == 2


def test_a_report_is_bounded(tmp_path: Path) -> None:
    found = look(tmp_path, b"".join(dimm(1024, b"D" * 200, b"S" * 200) for _ in range(3000)))
    assert len(json.dumps(found)) <= MOST_BYTES and "dimms" in found["failed"]


@pytest.mark.parametrize(
    "table",
    [b"", b"\x01", b"\x01\xff\0\0", b"\x11\x04\0\0", bytes(1000), b"\xff" * 5000, TABLE[:40]],
)
def test_tables_that_are_broken(table: bytes) -> None:
    assert smbios.parse(table)["dimms"] == []


@pytest.mark.parametrize(
    "word",
    [
        "",
        "To be filled by O.E.M.",
        "To Be Filled By O.E.M",
        "Default string",
        "0000000",
        "none",
        "N/A",
        "System Serial Number",
        "        ",
        "FFFFFFFF",
        "xxxxx",
        "........",
        "0123456789",
        "Not Specified",
    ],
)
def test_serial_numbers_that_are_none(word: str) -> None:
    assert identity(word) == ""


def test_words_are_made_harmless() -> None:
    assert plain("a\x1b[31m\nb\u202e" + "c" * 200) == "a?[31m b?" + "c" * 71
    assert identity(" CZ-1234 ") == "CZ-1234"


def frame(*tlvs: tuple[int, bytes]) -> bytes:
    return bytes.fromhex("0180c200000e52540000000188cc") + b"".join(
        (kind << 9 | len(value)).to_bytes(2, "big") + value for kind, value in tlvs
    )


def test_lldp_with_hostile_strings() -> None:
    found = lldp.parse(
        frame(
            (1, b"\x07sw"),
            (2, b"\x05Gi1/0/7\x00\x1b]0;x\x07"),
            (3, b"\0\x78"),
            (5, b"a" * 500),
            (0, b""),
        )
    )
    assert found is not None and found.port == "Gi1/0/7??]0;x?" and len(found.switch) == lldp.MOST
    assert lldp.parse(frame((1, b"\x07sw"), (2, b"\x0512"), (3, b"\0\0"))) is None, (
        "it says good-bye"
    )
    whole = frame((1, b"\x04\x52\x54\0\0\0\x09"), (2, b"\x03\x52\x54\0\0\0\x0a"), (3, b"\0\x78"))
    assert lldp.parse(whole) == lldp.Neighbour(
        "52:54:00:00:00:09", "52:54:00:00:00:0a", "52:54:00:00:00:09"
    )
    assert not any(lldp.parse(whole[:size]) for size in range(14, 32))


def test_a_bmc_from_inside() -> None:
    answers = {
        (6, 1, b""): bytes((0x20, 1, 2, 0x17, 2, 0xBF, 0xA2, 2, 0, 1, 0)),
        (6, 0x42, b"\1"): b"\1\4",
        (12, 2, b"\1\3\0\0"): b"\x11\x0a\2\0\7",
        (12, 2, b"\1\5\0\0"): b"\x11\x52\x54\0\0\x0b\x0c",
        (12, 2, b"\1\x04\0\0"): b"\x11\2",
    }

    def ask(netfn: int, command: int, data: bytes) -> bytes:
        if (netfn, command, data) not in answers:
            raise OSError("the BMC answers with code cc")
        return answers[netfn, command, data]

    found = bmc.survey(ask)
    assert (found["address"], found["mac"], found["source"], found["firmware"]) == (
        "10.2.0.7",
        "52:54:00:00:0b:0c",
        "dhcp",
        "2.17",
    )


def test_smart_of_ata() -> None:
    def sense(mid: int, high: int) -> bytes:
        return b"\x72" + bytes(6) + b"\x0e\x09\x0c" + bytes(7) + bytes((mid, 0, high)) + bytes(12)

    assert (
        smart.verdict(sense(0x4F, 0xC2)) == smart.OK
        and smart.verdict(sense(0xF4, 0x2C)) == smart.FAILING
    )
    assert smart.verdict(bytes(32)) == smart.NOT_READ


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        [],
        {"dimms": 7},
        {"disks": [7]},
        {"cards": [{"link": "yes"}]},
        {"a": {"b": {"c": {"d": {"e": {"f": {"g": 1}}}}}}},
    ],
)
def test_reports_that_are_none(value: object) -> None:
    with pytest.raises(InputError, match="cannot take the report"):
        report.read(value)


def test_the_head_cleans_again() -> None:
    found = report.read(
        {
            "smbios": {"system": {"serial": "\x1b]0;pwned\x07" + "s" * 500}},
            "memory": -5,
            "slots": 1e300,
            "disks": [{"name": "sda", "later": 1}] * 5000,
            "later": {"x": 1},
        }
    )
    assert (
        found.smbios.system.serial.startswith("?]0;pwned?")
        and len(found.smbios.system.serial) <= 80
    )
    assert found.memory == 0 and len(found.disks) == report.MOST_LIST
