"""What a rack is made of, without making one."""

from __future__ import annotations

from pathlib import Path

import pytest
from vrack import qemu
from vrack.inventory import inventory
from vrack.spec import BmcKind, Firmware, NicRom, VmSpec, place_all, standard_nodes

from tests.support.inventory import bmc_of, load


def test_half_the_nodes_are_of_each_kind() -> None:
    nodes = place_all(standard_nodes(4))
    assert [(n.name, n.firmware, n.bmc) for n in nodes] == [
        ("n0", Firmware.BIOS, BmcKind.IPMI),
        ("n1", Firmware.UEFI, BmcKind.REDFISH),
        ("n2", Firmware.BIOS, BmcKind.IPMI),
        ("n3", Firmware.UEFI, BmcKind.REDFISH),
    ]
    assert (
        len({n.mac for n in nodes})
        == len({n.uuid for n in nodes})
        == len({n.bmc_address for n in nodes})
        == 4
    )
    assert place_all(standard_nodes(4)) == nodes


def test_impossible_racks_are_refused() -> None:
    with pytest.raises(ValueError, match="same mac"):
        place_all([VmSpec(mac="52:54:00:00:00:01"), VmSpec(mac="52:54:00:00:00:01")])
    with pytest.raises(ValueError, match="no network stack"):
        place_all([VmSpec(Firmware.BIOS, nic_rom=NicRom.FIRMWARE)])
    with pytest.raises(ValueError, match="at most 150"):
        place_all(standard_nodes(151))


def test_the_command_line_of_a_machine() -> None:
    bios, uefi, plain = place_all(
        [VmSpec(), VmSpec(Firmware.UEFI), VmSpec(Firmware.UEFI, nic_rom=NicRom.FIRMWARE)]
    )
    line = {
        node.name: " ".join(qemu.command_line(node, Path("/d"), "tap0", "tcg"))
        for node in (bios, uefi, plain)
    }
    assert "pflash" not in line["n0"]
    assert "/d/vars.fd" in line["n1"]
    assert "romfile=" not in line["n1"]
    assert line["n2"].count("bootindex=1,romfile= ") == 1
    assert all(
        "path=/d/console.log,append=on" in text and "-accel tcg" in text for text in line.values()
    )
    assert "-accel kvm -cpu host" in " ".join(qemu.command_line(bios, Path("/d"), "tap0", "kvm"))


def test_layercake_reads_the_inventory(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    nodes = place_all(standard_nodes(4))
    for ca in (None, tmp_path / "ca.pem"):
        text = inventory(nodes, secret, ca, ["web"])
        assert str(nodes[3].mac) in text
        assert "password: x" not in text
        read = load(text)
        found = read.nodes
        assert {name: (node.ip, node.firmware) for name, node in found.items()} == {
            n.name: (n.ip, n.firmware.value) for n in nodes
        }
        one, two = bmc_of(read, "n0"), bmc_of(read, "n1")
        assert one is not None and two is not None
        assert two.verify_tls == (str(ca) if ca else False)
        assert (one.address, one.port) == ("10.98.1.10", 623)
