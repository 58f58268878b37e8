"""Machines that no inventory knows, where their network allows discovery: so many boot at once,
with a ticket and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from layercake.moduleapi.service import FakeLink
from layercake.moduleapi.strangers import LIFE_S, Tickets
from pxe.dhcp.decision import Common, Decision, Outcome, decide
from pxe.dhcp.relay import dotted
from pxe.dynamic.addressing import DynamicAddressing
from pxe.dynamic.discovery import BOOT_S
from pxe.nodes import Nodes, mac_text
from pxe.notes import Recorder
from pxe.packets import dhcp
from pxe.packets.dhcp import DhcpPacket, MessageType
from pxe.paths.boot_spec import spec_for
from pxe.state import BootState
from pxe.windows import Windows
from tests.support.clock import FakeClock
from tests.support.site import boot_settings

NEAR = {
    "name": "near",
    "subnet": "10.99.0.0/24",
    "gateway": "10.99.0.254",
    "guests": ["10.99.0.200-10.99.0.220"],
    "discovery": 3,
    "boot_sets": {"x86_64": "0.2.0-a"},
}
FIRMWARE = {dhcp.VENDOR_CLASS: b"PXEClient:Arch:00007", dhcp.CLIENT_ARCH: b"\0\7"}
IPXE = {**FIRMWARE, dhcp.USER_CLASS: b"iPXE", dhcp.IPXE: b"\1\1\1"}


class Site:
    """A boot service's parts in a network with discovery."""

    def __init__(self, path: Path, network: dict[str, Any]) -> None:
        self.clock, self.link, self.settings = FakeClock(), FakeLink(), boot_settings()
        self.nodes, self.windows, self.net = Nodes(), Windows(), Common(self.settings)
        self.recorder = Recorder(self.link, self.windows, self.clock)
        self.hosting = DynamicAddressing(
            self.settings, path, self.recorder, self.clock, self.nodes, self.windows
        )
        self.state = BootState(self.settings, self.nodes, self.windows, self.recorder, self.clock)
        self.path = path
        self.hosting.update_network("near", network)

    def ask(self, kind: MessageType, number: int, options: dict[int, bytes]) -> Decision:
        mac = (
            bytes.fromhex("0200000000") + bytes((number % 256,))
            if number < 256
            else b"\2\1" + number.to_bytes(4, "big")
        )
        packet = DhcpPacket(1, 7, mac + bytes(10), {53: bytes((kind,)), **options})
        found = decide(packet, self.nodes, self.windows, self.net, self.clock())
        return (
            self.hosting.answer(packet, found, self.net)
            if found.outcome is Outcome.UNKNOWN_MAC
            else found
        )


async def test_an_unknown_machine_boots_by_a_ticket(tmp_path: Path) -> None:
    other = "https://10.99.0.2:8443@10.99.0.2:31415"
    site = Site(tmp_path, {**NEAR, "other_heads": [other]})
    offer = site.ask(MessageType.DISCOVER, 1, FIRMWARE)
    assert (
        offer.outcome is Outcome.OFFERED
        and offer.reply is not None
        and offer.reply.options[dhcp.BOOT_FILE] == b"snponly.efi"
    )
    assert "discovery.boots" in [note.kind.name for note in offer.notes]
    again = site.ask(MessageType.DISCOVER, 1, IPXE)
    assert again.reply is not None and again.reply.yiaddr == offer.reply.yiaddr
    assert again.reply.options[dhcp.BOOT_FILE].startswith(b"http://")
    node, window = site.state.booting("10.99.0.200")
    words = spec_for(
        node, node.macs[0], window.token, site.settings, 1_800_000_000.0
    ).command_line.split()
    assert "layercake.discover=1" in words and f"layercake.token={window.token}" in words
    assert f"layercake.other_heads={other}" in words
    assert "layercake.boot=0.2.0-a" in words and "layercake.name=machine-020000000001" in words
    import time

    assert (
        LIFE_S - 60
        < Tickets(tmp_path, time.time).check(window.token, mac_text(node.macs[0]), node.ip)
        <= LIFE_S
    )


async def test_so_many_at_once_and_then_the_others(tmp_path: Path) -> None:
    site = Site(tmp_path, NEAR)
    first = [site.ask(MessageType.DISCOVER, n, FIRMWARE).outcome for n in range(1, 5)]
    assert first == [Outcome.OFFERED] * 3 + [Outcome.UNKNOWN_MAC]
    full = site.ask(MessageType.DISCOVER, 5, FIRMWARE)
    assert full.reply is None and "discovery.waits" in [note.kind.name for note in full.notes]
    assert site.hosting.discovery.reported(bytes.fromhex("020000000002"))
    assert not site.hosting.discovery.reported(bytes.fromhex("020000000002"))
    assert site.ask(MessageType.DISCOVER, 4, FIRMWARE).outcome is Outcome.OFFERED
    site.clock.now += BOOT_S + 1
    assert [site.ask(MessageType.DISCOVER, n, FIRMWARE).outcome for n in (5, 6, 7)] == [
        Outcome.OFFERED
    ] * 3
    addresses = {lease.address for lease in site.hosting.leases(0).leases}
    assert len(addresses) == 7, "whoever has reported keeps its address while it waits"
    lost = [text for _, kind, text, *_ in site.link.events if kind == "discovery.lost"]
    assert len(lost) == 3 and all(
        "has not reported" in text and "shim-signed" in text for text in lost
    )


async def test_five_thousand_at_once(tmp_path: Path) -> None:
    site = Site(tmp_path, NEAR)
    outcomes = [site.ask(MessageType.DISCOVER, 1000 + n, FIRMWARE).outcome for n in range(5000)]
    assert outcomes.count(Outcome.OFFERED) == 3 and outcomes.count(Outcome.UNKNOWN_MAC) == 4997
    assert (
        len(site.nodes) == 3
        and len(site.hosting.discovery) == 3
        and site.hosting.counts()["near"].used == 3
    )


ARM = {dhcp.VENDOR_CLASS: b"PXEClient:Arch:00011", dhcp.CLIENT_ARCH: b"\0\x0b"}


async def test_uefi_gets_signed_programs_where_they_are_there(tmp_path: Path) -> None:
    site = Site(tmp_path, NEAR)
    site.net = Common(site.settings, signed=True)
    files = [
        (kind, site.ask(MessageType.DISCOVER, number, options).reply)
        for number, (kind, options) in enumerate(
            {
                "uefi": FIRMWARE,
                "http": {dhcp.VENDOR_CLASS: b"HTTPClient:Arch:00016", dhcp.CLIENT_ARCH: b"\0\x10"},
                "bios": {dhcp.VENDOR_CLASS: b"PXEClient:Arch:00000", dhcp.CLIENT_ARCH: b"\0\0"},
            }.items(),
            1,
        )
    ]
    found = {
        kind: reply.options[dhcp.BOOT_FILE].decode().rpartition("/")[2]
        for kind, reply in files
        if reply is not None
    }
    assert found == {
        "uefi": "shimx64.efi",
        "http": "02-00-00-00-00-02.img",
        "bios": "undionly.kpxe",
    }


async def test_a_machine_of_another_architecture_boots_what_there_is_for_it(tmp_path: Path) -> None:
    site = Site(tmp_path, NEAR)
    none = site.ask(MessageType.DISCOVER, 1, ARM)
    assert none.reply is None and len(site.nodes) == 0
    assert any("no boot set" in note.text and "aarch64" in note.text for note in none.notes)
    site.hosting.update_network(
        "near", {**NEAR, "boot_sets": {"x86_64": "0.2.0-a", "aarch64": "0.2.0-b"}}
    )
    offer = site.ask(MessageType.DISCOVER, 1, ARM)
    assert offer.reply is not None and offer.reply.options[dhcp.BOOT_FILE] == b"shimaa64.efi"
    node, window = site.state.booting(dotted(offer.reply.yiaddr))
    words = spec_for(
        node, node.macs[0], window.token, site.settings, 1_800_000_000.0
    ).command_line.split()
    assert (node.arch, node.boot_set) == (
        "aarch64",
        "0.2.0-b",
    ) and "console=ttyAMA0,115200" in words


async def test_only_where_it_is_allowed(tmp_path: Path) -> None:
    site = Site(tmp_path, {**NEAR, "discovery": 0})
    offer = site.ask(MessageType.DISCOVER, 1, FIRMWARE)
    assert offer.reply is not None and dhcp.BOOT_FILE not in offer.reply.options
    site.hosting.update_network("near", NEAR)
    running = site.ask(MessageType.DISCOVER, 2, {})
    assert running.reply is not None and dhcp.BOOT_FILE not in running.reply.options, (
        "a system that runs is a guest as before"
    )
    site.ask(MessageType.DISCOVER, 3, FIRMWARE)
    assert len(site.nodes) == 1
    site.hosting.remove_network("near")
    assert len(site.nodes) == 0
