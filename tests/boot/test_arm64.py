"""arm64 machines: what they fetch is in their boot set, and only they are given it."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from layercake.moduleapi.service import FakeLink
from layercake.modules.notifier import NotifiedNode
from minos.build.debian import programs
from pxe.http_server import HttpServer
from pxe.module import offers
from pxe.nodes import Node, Nodes
from pxe.notes import Recorder
from pxe.paths import arm64
from pxe.settings import Settings
from pxe.state import BootState
from pxe.tftp_files import TftpFiles
from pxe.windows import Windows
from tests.boot.conftest import MAC, NODE, TOKEN
from tests.boot.test_image import fetch, read
from tests.support.clock import FakeClock
from tests.support.site import site


@pytest.fixture
def arm(
    settings: Settings,
    node: Node,
    files: dict[str, Any],
    link: FakeLink,
    clock: FakeClock,
    unused_tcp_port: int,
) -> BootState:
    """A node whose boot is wanted, with a boot set that has the boot programs."""
    boot = Path(files["boot_dir"])
    (boot / "arm").mkdir()
    for name in (*arm64.FILES, "vmlinuz", "minos.img"):
        (boot / "arm" / name).write_bytes(name.encode() * 999)
    conf = dataclasses.replace(
        settings, address="127.0.0.1", http_port=unused_tcp_port, boot_dir=boot
    )
    nodes, windows = Nodes(), Windows()
    nodes.update(dataclasses.replace(node, ip="127.0.0.1", arch="aarch64", boot_set="arm"))
    windows.arm(NODE, TOKEN, 100.0, clock())
    windows.asked(NODE, MAC)
    return BootState(conf, nodes, windows, Recorder(link, windows, clock), clock)


@pytest.fixture
async def web(arm: BootState, files: dict[str, Any]) -> AsyncIterator[BootState]:
    server = HttpServer(
        arm, {"snponly.efi": Path(files["ipxe_dir"], "snponly.efi")}, {}, lambda: 1.8e9
    )
    await server.open()
    yield arm
    await server.close()


def test_builder_and_boot_service_name_the_same_files() -> None:
    assert set(arm64.FILES) == set(programs.PROGRAMS["aarch64"])


def test_tftp_gives_the_boot_programs_of_its_own_set(arm: BootState, link: FakeLink) -> None:
    tftp_files = TftpFiles(arm)
    assert bytes(tftp_files.own("127.0.0.1", "shimaa64.efi") or b"") == b"shimaa64.efi" * 999
    assert bytes(tftp_files.own("127.0.0.1", "grubaa64.efi") or b"") == b"grubnetaa64.efi" * 999, (
        "shim asks for it by this name"
    )
    tftp_files.ended("127.0.0.1", "grubaa64.efi", 9, 0.1)
    assert link.events[-1][1] == "boot.nbp-sent"
    (arm.settings.boot_dir / "arm/shimaa64.efi").unlink()
    assert (
        tftp_files.own("127.0.0.1", "shimaa64.efi") is None
        and link.events[-1][1] == "boot.file-missing"
    )


def test_a_node_of_another_architecture_is_not_given_them(arm: BootState) -> None:
    (mine,) = arm.nodes.all()
    arm.nodes.update(dataclasses.replace(mine, arch="x86_64"))
    assert TftpFiles(arm).own("127.0.0.1", "shimaa64.efi") is None


async def test_the_volume_has_the_programs_of_the_set(
    web: BootState, link: FakeLink, tmp_path: Path
) -> None:
    status, body, _ = await fetch(web)
    assert status == 200
    (tmp_path / "v.img").write_bytes(body)
    assert read(tmp_path / "v.img", "EFI/BOOT/BOOTAA64.EFI") == b"shimaa64.efi" * 999
    assert read(tmp_path / "v.img", "EFI/BOOT/grubaa64.efi") == b"gcdaa64.efi" * 999
    assert "linux /vmlinuz" in read(tmp_path / "v.img", "boot/grub/grub.cfg").decode()
    assert [e[1] for e in link.events] == ["boot.nbp-sent"] * 2 + [
        "boot.script-sent",
        "boot.kernel-sent",
        "boot.initrd-sent",
    ]


async def test_a_set_without_boot_programs_costs_no_script(web: BootState, link: FakeLink) -> None:
    shim = web.settings.boot_dir / "arm/shimaa64.efi"
    shim.unlink()
    assert (await fetch(web))[0] == 404 and [e[1] for e in link.events] == ["boot.file-missing"]
    shim.write_bytes(b"shim")
    assert (await fetch(web))[0] == 200


def test_its_bmc_is_told_the_volume_and_no_medium_of_x86() -> None:
    told = offers(
        NotifiedNode(NODE, "n1", (MAC,), "10.99.0.11", "aarch64", "uefi", ""), None, None, site()
    )
    assert (
        told["boot-uri"].endswith("/boot/52-54-00-00-01-01.img")
        and "is for x86_64" in told["no-medium"]
    )
    told = offers(
        NotifiedNode(NODE, "n1", (), "10.99.0.11", "aarch64", "uefi", ""), None, None, site()
    )
    assert (
        "boot-uri" not in told and "no machine was seen yet that is this node" in told["no-medium"]
    )
