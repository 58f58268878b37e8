"""Boot paths beside iPXE: what TFTP has for a node under Secure Boot, and for nobody else; which
program firmware is offered; what is said of a card that a boot set has no driver for."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import socket
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from layercake.base.secrets import mark_of
from layercake.kraken.errors import Refused
from layercake.moduleapi.service import FakeLink
from pxe import cards
from pxe.dhcp.decision import Common, unservable
from pxe.machine import Client
from pxe.nodes import Node, Nodes
from pxe.notes import Recorder
from pxe.paths import grub
from pxe.settings import Settings
from pxe.state import BootState
from pxe.tftp_files import TftpFiles
from pxe.tftp_server import TftpServer
from pxe.windows import Step, Windows
from tests.boot.conftest import MAC, NODE, TOKEN
from tests.support.clock import FakeClock

E1000 = "01:80:86:10:0e"


@pytest.fixture
def windows() -> Windows:
    return Windows()


@pytest.fixture
def tftp_files(
    settings: Settings,
    node: Node,
    link: FakeLink,
    clock: FakeClock,
    windows: Windows,
    tmp_path: Path,
) -> TftpFiles:
    (tmp_path / "set").mkdir()
    for name in ("vmlinuz", "minos.img"):
        (tmp_path / "set" / name).write_bytes(name.encode() * 1000)
    nodes = Nodes()
    nodes.update(dataclasses.replace(node, ip="127.0.0.1", boot_set="set", secure_boot=True))
    windows.arm(NODE, TOKEN, 100.0, clock())
    windows.asked(NODE, MAC)
    conf = dataclasses.replace(settings, boot_dir=tmp_path)
    return TftpFiles(
        BootState(conf, nodes, windows, Recorder(link, windows, clock), clock), lambda: 1.8e9
    )


def text(found: Any) -> bytes:
    assert found is not None
    return bytes(found[:])


def test_what_was_sent_of_a_configuration_is_told_by_its_digest(
    tftp_files: TftpFiles, link: FakeLink
) -> None:
    name = f"node/{MAC}.cfg"
    said = text(tftp_files.own("127.0.0.1", name))
    tftp_files.ended("127.0.0.1", name, len(said), 0.1)
    [data] = [event[4] for event in link.events if event[1] == "boot.script-sent"]
    assert data["configuration"] == hashlib.sha256(said).hexdigest()
    assert data["window"] == mark_of(TOKEN) and TOKEN not in str(data)


def test_a_node_gets_its_own_configuration_once(tftp_files: TftpFiles, link: FakeLink) -> None:
    said = text(tftp_files.own("127.0.0.1", f"node/{MAC}.cfg")).decode()
    assert f"layercake.token={TOKEN}" in said and "/boot/set/vmlinuz" in said
    with pytest.raises(Refused, match="asked for twice"):
        tftp_files.own("127.0.0.1", f"node/{MAC}.cfg")
    assert "boot.script-refused" in [e[1] for e in link.events]
    assert TOKEN not in str(link.events)


@pytest.mark.parametrize(
    "name",
    [
        "boot/set/../set/vmlinuz",
        "boot/other/vmlinuz",
        "boot/vmlinuz",
        "boot/set/minos.json",
        "boot/set/",
        "boot//vmlinuz",
        "node/x.cfg",
        f"node/{MAC}",
        "grub/x86_64-efi/command.lst",
        "set/vmlinuz",
        "",
    ],
)
def test_no_other_file_is_had(tftp_files: TftpFiles, name: str) -> None:
    assert tftp_files.own("127.0.0.1", name) is None


def test_a_transfer_that_breaks_off_is_told_of(tftp_files: TftpFiles, link: FakeLink) -> None:
    tftp_files.broke("127.0.0.1", "grubx64.efi", 1_800_000, 3_800_000, "the client fell silent")
    tftp_files.broke("127.0.0.9", "grubx64.efi", 1, 2, "")
    assert [e[2] for e in link.events] == [
        "the transfer of grubx64.efi broke off: 1.8 of 3.8 MB were sent (the client fell silent)"
    ]


def test_firmware_that_asks_for_another_file_by_tftp_is_told_of(
    tftp_files: TftpFiles, link: FakeLink
) -> None:
    for name in ("revocations_sku.efi", "shim_certificate_0.efi", "grub/x86_64-efi/command.lst"):
        tftp_files.other("127.0.0.1", name)
    assert link.events == [], "these are asked for on the way, and done without"
    tftp_files.other("127.0.0.9", "pxelinux.0")
    tftp_files.other("127.0.0.1", "pxelinux.0")
    (told,) = link.events
    assert (
        told[1] == "boot.other-file"
        and told[4]["file"] == "pxelinux.0"
        and "by TFTP for 'pxelinux.0'" in told[2]
    )


def test_another_nodes_configuration_and_a_stranger_get_nothing(tftp_files: TftpFiles) -> None:
    with pytest.raises(Refused, match="another node's"):
        tftp_files.own("127.0.0.1", "node/52:54:00:00:01:99.cfg")
    for name in (f"node/{MAC}.cfg", "boot/set/vmlinuz"):
        with pytest.raises(Refused, match="reserved for no node"):
            tftp_files.own("127.0.0.9", name)
    assert (
        "reserved for no node" in tftp_files.may_fetch("127.0.0.9")
        and tftp_files.may_fetch("127.0.0.1") == ""
    )


def test_a_file_that_is_gone_or_empty_is_said(
    tftp_files: TftpFiles, link: FakeLink, tmp_path: Path
) -> None:
    (tmp_path / "set/minos.img").unlink()
    assert tftp_files.own("127.0.0.1", "boot/set/minos.img") is None
    (tmp_path / "set/vmlinuz").write_bytes(b"")
    assert tftp_files.own("127.0.0.1", "boot/set/vmlinuz") is None
    assert [e[1] for e in link.events] == [
        "boot.file-missing"
    ] * 2 and "vmlinuz is empty" in link.events[1][2]


@pytest.fixture
async def tftp(tftp_files: TftpFiles) -> AsyncIterator[int]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    clock = asyncio.get_running_loop().time
    server = TftpServer(
        ("127.0.0.1", port), {grub.CONFIG: grub.FIRST}, tftp_files, Counter(), clock
    )
    server.open()
    yield port
    server.close()


async def test_boot_files_come_by_tftp_with_the_steps_of_the_boot(
    tftp: int, link: FakeLink, tmp_path: Path
) -> None:
    for name in (grub.CONFIG, f"node/{MAC}.cfg", "boot/set/vmlinuz", "boot/set/minos.img"):
        file = tmp_path / "got"
        done = await asyncio.create_subprocess_exec(
            "curl", "-s", "-o", str(file), f"tftp://127.0.0.1:{tftp}/{name}"
        )
        assert await done.wait() == 0, name
        if name.startswith("boot/"):
            assert file.read_bytes() == (tmp_path / name.removeprefix("boot/")).read_bytes()
    await asyncio.sleep(0)  # the last acknowledgement is read
    assert [e[1] for e in link.events] == [
        "boot.script-sent",
        "boot.kernel-sent",
        "boot.initrd-sent",
    ]


@pytest.mark.parametrize(
    ("client", "signed", "why"),
    [
        (Client.UEFI, True, ""),
        (Client.UEFI, False, "install shim-signed"),
        (Client.UEFI_HTTP, True, ""),
        (Client.UEFI_HTTP, False, "install shim-signed"),
        (Client.BIOS, False, ""),
        (Client.IPXE, False, ""),
        (Client.OTHER, True, "no boot program"),
    ],
)
def test_what_secure_boot_needs(
    settings: Settings, node: Node, client: Client, signed: bool, why: str
) -> None:
    said = unservable(
        dataclasses.replace(node, secure_boot=True), client, Common(settings, signed=signed)
    )
    assert (why in said) if why else said == ""


def test_the_card_that_ipxe_is_on_is_looked_up_in_the_boot_set(tmp_path: Path) -> None:
    assert cards.pci_id(E1000) == "8086:100e"
    assert [
        cards.pci_id(w) for w in ("", "02:80:86:10:0e", "01:80:86:10", "../../x", "01:ZZ:86:10:0e")
    ] == [""] * 5
    assert cards.trouble(tmp_path, "8086:100e") == "", "a set of an older Layercake does not say"
    (tmp_path / cards.CARDS).write_text(
        '{"have": ["8086:10d3", "1af4:*"], "lacking": {"8086:100e": ["e1000"]}}'
    )
    assert "needs module e1000" in cards.trouble(tmp_path, "8086:100e")
    assert "no module for" in cards.trouble(tmp_path, "ffff:0001")
    assert (
        cards.trouble(tmp_path, "8086:10d3")
        == cards.trouble(tmp_path, "1af4:1041")
        == cards.trouble(tmp_path, "")
        == ""
    )


async def test_a_slow_transfer_that_gets_on_prolongs_the_boot(
    tftp_files: TftpFiles, windows: Windows, link: FakeLink, clock: FakeClock
) -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client,
    ):
        probe.bind(("127.0.0.1", 0))
        client.bind(("127.0.0.1", 0))
        client.setblocking(False)
        port, loop = int(probe.getsockname()[1]), asyncio.get_running_loop()
        probe.close()
        server = TftpServer(("127.0.0.1", port), {}, tftp_files, Counter(), clock)
        server.open()
        try:
            await loop.sock_sendto(client, b"\0\1boot/set/vmlinuz\0octet\0", ("127.0.0.1", port))
            for block in range(1, 6):  # one every eight seconds
                data, source = await asyncio.wait_for(loop.sock_recvfrom(client, 600), 5)
                assert data[:4] == b"\0\3" + block.to_bytes(2, "big")
                clock.now += 8.0
                await loop.sock_sendto(client, b"\0\4" + block.to_bytes(2, "big"), source)
            await asyncio.wait_for(loop.sock_recvfrom(client, 600), 5)
        finally:
            server.close()
    assert [e[2] for e in link.events if e[1] == "boot.under-way"] == ["vmlinuz: 0.0 of 0.0 MB"]
    windows.record(NODE, Step.SCRIPT, 1000.0, {})
    assert windows.deadline(NODE, 1000.0, 30.0, 60.0, 600.0) == 1024.0 + 60.0, (
        "from the transfer's last sign of life"
    )
