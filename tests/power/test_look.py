"""A look at BMCs: what it reads of real ones, how it tells the dead from the living, and how long a
thousand dead ones take."""

from __future__ import annotations

import asyncio
import secrets
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from patience import patience
from vrack.rack import Rack

from layercake.moduleapi.service import FakeLink
from powerman.driver import Inspection
from powerman.inspect.inspection import inspect_bmc
from powerman.ipmi.facts import ipmi_boot, ipmi_clock
from powerman.ipmi.pyghmi_pool import PyghmiPool
from powerman.redfish.facts import link_of, redfish_boot, redfish_clock
from powerman.service import PowerService
from powerman.settings import PowerSettings
from tests.power.test_real_bmcs import record, spec
from tests.support.fake_bmc import FakeClock, FakeDriver
from tests.support.in_netns import in_netns
from tests.support.site import site


async def looked(
    records: dict[str, dict[str, Any]], limit_s: float = 15.0
) -> dict[str, dict[str, Any]]:
    """What power.look answers, by node."""
    service = PowerService(polls=False)
    await service.start(FakeLink(), site(), PowerSettings())
    try:
        for name, entry in records.items():
            await service.node_changed(name, entry)
        return {row["node"]: row for row in await service.call("power.look", {"limit_s": limit_s})}
    finally:
        await service.stop()


@pytest.mark.root
def test_real_bmcs(bmcs: Rack) -> None:
    given = {
        "ipmi": record(bmcs, 0),
        "redfish": record(bmcs, 1),
        "wrong": record(bmcs, 0, password="no"),
        "also wrong": record(bmcs, 1, password="no"),
        "dead": record(bmcs, 0, port=6230),
        "dead too": record(bmcs, 1, address=f"https://{bmcs.nodes[1].bmc_address}:8009"),
        "none": {"name": "none", "bmc": None},
    }
    found = in_netns(bmcs.namespace, lambda: looked(given))
    assert {name: row["result"] for name, row in found.items()} == {
        "ipmi": "ok",
        "redfish": "ok",
        "wrong": "login-refused",
        "also wrong": "login-refused",
        "dead": "unreachable",
        "dead too": "unreachable",
        "none": "by-hand",
    }
    assert found["ipmi"]["clock_s"] is None, "ipmi_sim's clock begins at 0: it was never set"
    assert abs(found["redfish"]["clock_s"]) < 60
    assert found["redfish"]["mode"] == "uefi"
    assert found["redfish"]["network"]
    assert "no-of-the" not in str(found)


@pytest.mark.root
def test_an_old_bmc_by_pyghmi(bmcs: Rack) -> None:
    async def body() -> Any:
        return await PyghmiPool().run(spec(bmcs, 0), "inspect", 30.0)

    found = Inspection(**in_netns(bmcs.namespace, body))
    assert found.clock is None
    assert found.network


@pytest.fixture
def silence() -> Iterator[str]:
    """A namespace in which whatever is sent to 10.96.0.0/16 is lost."""
    name = f"lcs-{secrets.token_hex(3)}"
    try:
        for words in (
            "netns add {}",
            "-n {} link set lo up",
            "-n {} link add quiet type bridge",
            "-n {} link set quiet up",
            "-n {} addr add 10.96.0.1/16 dev quiet",
            "-n {} neigh add 10.96.255.254 lladdr 02:00:00:00:00:01 dev quiet",
            "-n {} route add 10.95.0.0/16 via 10.96.255.254",
        ):
            subprocess.run(["ip", *words.format(name).split()], check=True, capture_output=True)
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@pytest.mark.root
@pytest.mark.parametrize("driver", ["ipmi", "redfish"])
def test_a_thousand_dead_bmcs_end_in_seconds(silence: str, driver: str) -> None:
    bmc = {"driver": driver, "username": "admin", "password": "unused"}
    given = {
        f"n{i}": {"name": f"n{i}", "bmc": {**bmc, "address": f"10.95.{i // 250}.{i % 250 + 1}"}}
        for i in range(1000)
    }
    start = time.monotonic()
    found = in_netns(silence, lambda: looked(given))
    assert {row["result"] for row in found.values()} <= {"unreachable", "unasked"}
    assert len(found) == 1000
    assert sum(row["result"] == "unreachable" for row in found.values()) >= 700, (
        "most of them were asked"
    )
    # 15 s, and what a busy machine needs to say so for a thousand; one after the other it would be
    # an hour.
    assert time.monotonic() - start < patience(60)


async def test_one_that_is_busy_is_not_dead(world: Any) -> None:
    bmc = world.service.bmc_of("n1")
    async with bmc.turn(5.0):
        found = await inspect_bmc(bmc, 0.05)
    assert found.result == "busy"
    assert (await inspect_bmc(bmc, 5.0, lambda: 400.0)).clock_s == 600.0


async def test_nodes_without_a_bmc_are_named_by_their_names(world: Any, make_record: Any) -> None:
    await world.service.node_changed("id-2", {"name": "n2", "bmc": None})
    await world.service.node_changed("id-3", make_record("n3", driver="ilo"))
    rows = {row.name: row.result for row in await world.service.inspect_bmcs(5.0)}
    assert rows == {"n1": "ok", "n2": "by-hand", "n3": "no-bmc"}


async def test_one_that_hangs_is_given_up(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(self: FakeDriver) -> Inspection:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(FakeDriver, "inspect", hang)
    bmc = world.service.bmc_of("n1")
    found = await inspect_bmc(bmc, 0.05)
    assert found.result == "unreachable"
    assert bmc.outage is None and not world.events("power.unreachable"), (
        "one that is slow is none that is lost"
    )
    assert isinstance(world.clock, FakeClock)


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        ("00000000", None),
        ("ffffffff", None),
        ("10000000", None),
        ("00000060", 0x60000000),
        ("", None),
        ("0000", None),
    ],
)
def test_times_of_an_event_log(answer: str, seconds: float | None) -> None:
    assert ipmi_clock(bytes.fromhex(answer)) == seconds


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("01050000000000", ("", "")),
        ("0105a004000000", ("pxe", "uefi")),
        ("01058004000000", ("pxe", "bios")),
        ("0105c008000000", ("disk", "bios")),
        ("0105", ("", "")),
        ("0105803c000000", ("other", "bios")),
    ],
)
def test_boot_flags(answer: str, said: tuple[str, str]) -> None:
    assert ipmi_boot(bytes.fromhex(answer)) == said


@pytest.mark.parametrize(
    ("manager", "seconds"),
    [
        ({"DateTime": "2026-01-01T00:00:00Z"}, 1767225600.0),
        ({"DateTime": "2026-01-01T01:00:00+01:00"}, 1767225600.0),
        ({"DateTime": "2026-01-01T01:00:00", "DateTimeLocalOffset": "+01:00"}, 1767225600.0),
        ({"DateTime": "2026-01-01T00:00:00"}, 1767225600.0),
        ({}, None),
        ({"DateTime": "yesterday"}, None),
        ({"DateTime": "2026-01-01T00:00:00", "DateTimeLocalOffset": "x"}, None),
        ({"DateTime": "0001-01-01T00:00:00+14:00"}, None),
    ],
)
def test_times_of_a_manager(manager: dict[str, str], seconds: float | None) -> None:
    assert redfish_clock(manager) == seconds


def test_boot_of_a_system() -> None:
    boot: dict[str, Any] = {
        "BootSourceOverrideEnabled": "Once",
        "BootSourceOverrideTarget": "Pxe",
        "BootSourceOverrideMode": "Legacy",
        "BootSourceOverrideTarget@Redfish.AllowableValues": ["Pxe", "Hdd"],
        "BootSourceOverrideMode@Redfish.AllowableValues": ["UEFI", {}, None],
    }
    assert redfish_boot({"Boot": boot}) == ("pxe", "bios", ("uefi",), True)
    assert (
        redfish_boot(
            {"Boot": {**boot, "BootSourceOverrideTarget@Redfish.AllowableValues": ["Hdd"]}}
        )[3]
        is False
    )
    disabled = {"BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideTarget": "Hdd"}
    assert redfish_boot({"Boot": disabled}) == ("", "", (), True)
    cd = {"Boot": {"BootSourceOverrideTarget@Redfish.AllowableValues": ["Pxe", "UsbCd"]}}
    assert [redfish_boot(cd, by)[3] for by in ("network", "media", "uri")] == [True, True, False]
    uri = {"BootSourceOverrideTarget@Redfish.AllowableValues": ["UefiHttp"]}
    assert [
        redfish_boot({"Boot": uri | more}, "uri")[3] for more in ({}, {"HttpBootUri": None})
    ] == [False, True]
    assert redfish_boot({}) == redfish_boot({"Boot": 7}) == ("", "", (), False)


def test_a_link_leads_nowhere_else() -> None:
    assert (
        link_of({"Members": [{"@odata.id": "https://elsewhere/redfish/v1/Systems/1"}]}, "Members")
        == "/redfish/v1/Systems/1"
    )
    for hostile in ("@elsewhere/x", ".elsewhere/x", "0/x", "//[", "/x", "/redfish/v1/ x"):
        assert link_of({"Members": [{"@odata.id": hostile}]}, "Members") == ""
    assert (
        link_of({"Members": []}, "Members")
        == link_of(None, "Members")
        == link_of({"Members": [7]}, "Members")
        == ""
    )
