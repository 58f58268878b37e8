"""Cards that nodes have reported, against the boot sets that they boot next."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from layercake.check.cards import cards
from layercake.check.finding import Severity
from layercake.check.site import CheckedNode
from tests.check.made import made

SET = "0.2.0-00000001"


class Head:
    """Says who boots the set next."""

    def get(self, path: str, *, timeout: float = 60.0) -> Any:
        assert path == "/v1/boot"
        return {"sets": [{"name": SET, "boot": ["n0", "n1", "n2"]}]}

    def post(self, path: str, body: Any, *, timeout: float = 60.0) -> Any:
        raise AssertionError(path)


def node(number: int, driver: str, **more: Any) -> CheckedNode:
    mac = f"52:54:00:99:00:0{number}"
    card = {
        "slot": "0000:00:02.0",
        "name": "eth0",
        "mac": mac,
        "driver": driver,
        "id": "",
        "absent": [],
        **more,
    }
    return CheckedNode(
        name=f"n{number}", macs=(mac,), ip=f"10.99.0.5{number}", firmware="bios", cards=(card,)
    )


def boot_set(directory: Path, *modules: str) -> Path:
    place = directory / "boot" / SET
    place.mkdir(parents=True)
    for name in ("vmlinuz", "minos.img"):
        (place / name).touch()
    (place / "minos.json").write_text(
        json.dumps({"profile": {"name": "server"}, "modules": modules, "kernel_release": "6.1"})
    )
    return directory


def test_all_well_and_virtio_is_in_minos_itself(tmp_path: Path) -> None:
    site = made(
        boot_set(tmp_path, "e1000e"), api=Head(), nodes=(node(0, "e1000e"), node(1, "virtio_net"))
    )
    (found,) = cards.look(site)
    assert (found.severity, found.text) == (
        Severity.OK,
        "2 of 2 nodes have reported their cards; all have drivers",
    )


def test_a_set_without_the_driver_of_a_boot_card_is_an_error_with_what_to_do(
    tmp_path: Path,
) -> None:
    site = made(
        boot_set(tmp_path, "e1000e"),
        api=Head(),
        nodes=(node(0, "e1000e"), node(1, "ixgbe"), node(2, "ixgbe")),
    )
    (found,) = cards.look(site)
    assert (found.severity, found.nodes) == (Severity.ERROR, "n[1-2]")
    assert f"boot set {SET}" in found.text and "no driver ixgbe" in found.text
    assert "layercake profile build server --modules ...,ixgbe" in found.hint


def test_a_card_without_a_driver_is_told_with_the_module_that_it_needs(tmp_path: Path) -> None:
    lost = node(1, "", id="8086:10d3", absent=["e1000e"], mac="")
    (found,) = cards.look(made(boot_set(tmp_path), api=Head(), nodes=(node(0, "virtio_net"), lost)))
    assert (found.severity, found.nodes) == (Severity.WARNING, "n1")
    assert "8086:10d3, which needs e1000e" in found.text


def test_without_a_head_nothing_is_known(tmp_path: Path) -> None:
    (found,) = cards.look(made(tmp_path))
    assert found.severity is Severity.OK and "does not" in found.text
