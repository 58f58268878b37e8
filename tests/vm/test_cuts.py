"""Boots that are disturbed in the middle: a cable that is pulled, a machine that begins anew
(vm-testbed/cuts.py tries far more), a bad network."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cuts import PHASES, Cutter, Result
from scapy.layers.dhcp import DHCP
from scapy.layers.l2 import Ether
from scapy.utils import RawPcapReader
from vrack.faults import FaultyNetwork
from vrack.switch import Faults

from tests.vm.conftest import BOOT_S, Site

pytestmark = pytest.mark.vm
BAD = Faults(loss=5.0, duplicate=2.0, reorder=5.0, jitter_ms=1.0)
_COOKIE = b"\x63\x82\x53\x63"
"""What the options of DHCP begin with (RFC 2131 section 3)."""


def booted(site: Site, *cuts: Callable[[], Result]) -> list[Result]:
    """The outcomes of cuts at the same time, each of another node, which are off before and
    converged in the end."""
    site.head.api("POST", "/v1/nodes/state", {"range": "n[0-1]", "state": "off"})
    site.head.wait_converged(180)
    with ThreadPoolExecutor(len(cuts)) as threads:
        results = [future.result() for future in [threads.submit(cut) for cut in cuts]]
    site.head.wait_converged(BOOT_S)
    return results


def test_a_cable_that_is_out_for_ten_seconds_costs_no_second_start(site: Site) -> None:
    """In the middle of the kernel by HTTP, and of the boot program by TFTP."""
    bios, uefi = Cutter(site.rack, site.head, 0, "n0"), Cutter(site.rack, site.head, 1, "n1")
    results = booted(
        site,
        lambda: bios.run("bios", PHASES["kernel"], 10),
        lambda: uefi.run("uefi", PHASES["nbp"], 10),
    )
    assert [(result.joined_s is not None, result.starts) for result in results] == [
        (True, 1),
        (True, 1),
    ]
    assert not [
        kind
        for result in results
        for kind in result.told
        if kind in ("boot.stalled", "join.disputed")
    ]


def test_a_machine_that_begins_anew_in_the_middle_gets_in(site: Site) -> None:
    start = time.time()
    bios, uefi = Cutter(site.rack, site.head, 0, "n0"), Cutter(site.rack, site.head, 1, "n1")
    results = booted(
        site,
        lambda: bios.run("bios", PHASES["start"], 0),
        lambda: uefi.run("uefi", PHASES["kernel"], 0),
    )
    for name, result in zip(("n0", "n1"), results, strict=True):
        events = [e for e in site.head.history(name) if e["at"] >= start]
        tried = [
            e
            for e in events
            if e["kind"] == "mutation.started" and e["data"]["mutation"] == "boot-wait"
        ]
        assert result.joined_s is not None and result.starts == 2 and len(tried) == 1, (
            "it was not the head that started it again"
        )
        assert "boot.begun-anew" in result.told and "boot.script-refused" not in result.told
        assert sum(e["kind"] == "boot.script-sent" for e in events) == 2


def test_nodes_boot_where_one_frame_in_twenty_is_lost(site: Site, tmp_path: Path) -> None:
    """It takes more time and perhaps another attempt; nobody is quarantined, and what the firmware
    said is on record."""
    site.head.api("POST", "/v1/nodes/state", {"range": "n[0-1]", "state": "off"})
    site.head.wait_converged(180)
    with FaultyNetwork(site.rack, (0, 1), BAD, records=tmp_path) as network:
        site.head.api("POST", "/v1/nodes/state", {"range": "n[0-1]", "state": "up"})
        site.head.wait_converged(2 * BOOT_S)
        counts = network.look()
    assert counts["lost"] > 100 and counts["doubled"] > 50 and counts["late"] > 100
    assert {node["status"] for node in site.head.nodes().values()} == {"converged"}
    for name in ("n0", "n1"):
        with RawPcapReader(str(tmp_path / f"{name}.pcap")) as frames:
            packets = [Ether(frame) for frame, _ in frames if _COOKIE in frame[:300]]
        said = {packet[DHCP].options[0][1] for packet in packets if DHCP in packet}
        assert {1, 2, 3, 5} <= said, "discover, offer, request and ack"
