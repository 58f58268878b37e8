"""The service as the head drives it: arming, waiting, disarming, and saying why a boot stalled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from layercake.kraken.errors import InputError, LayercakeError, NotFound, OperationFailed, Stalled
from layercake.kraken.mutation import Where
from layercake.moduleapi.service import FakeLink, MutationRequest
from pxe import mutations
from pxe.dhcp.decision import Decision, decide
from pxe.dhcp.relay import Relay
from pxe.dhcp.server import DhcpServer
from pxe.packets import dhcp
from pxe.service import PxeService
from pxe.settings import BootSettings
from pxe.state import BootState
from pxe.tftp_server import TftpServer
from pxe.windows import Step, Windows
from tests.support.site import boot_settings, site

NODE = "6b1f2a3c-0000-4000-8000-000000000001"
RECORD = {
    "name": "n1",
    "macs": ["52:54:00:00:01:01"],
    "ip": "127.0.0.11",
    "firmware": "bios",
    "kernel_args": "",
    "console": "",
}
Ask = Callable[..., MutationRequest]


@pytest.fixture
async def service(
    files: dict[str, Any],
    link: FakeLink,
    clock: Any,
    monkeypatch: pytest.MonkeyPatch,
    unused_tcp_port: int,
) -> AsyncIterator[PxeService]:
    """Started without its root-only sockets; those are tested on a real wire."""
    for server in (DhcpServer, TftpServer):
        monkeypatch.setattr(server, "open", lambda self: None)
        monkeypatch.setattr(server, "close", lambda self: None)
    made = PxeService(clock)
    await made.start(
        link,
        site(interface="lo", address="127.0.0.1", data_dir=files["data_dir"]),
        BootSettings(http_port=unused_tcp_port, ipxe_dir=files["ipxe_dir"]),
    )
    await made.node_changed(NODE, RECORD)
    await made.ready()
    yield made
    await made.stop()


async def armed(service: PxeService) -> bool:
    return bool((await service.call("boot.steps", {"node": NODE}))["armed"])


def test_the_declarations_are_those_of_the_architecture() -> None:
    arm, wait = mutations.MUTATIONS
    assert (arm.name, arm.changes, arm.requires, arm.timeout, arm.on_timeout) == (
        "boot-arm",
        {"boot": ("UNKNOWN", "WAIT")},
        {"power": ("ON",)},
        10.0,
        None,
    )
    assert (wait.name, wait.changes, wait.requires, wait.timeout, wait.on_timeout) == (
        "boot-wait",
        {"boot": ("WAIT", "INIT"), "run": ("UNKNOWN", "INIT")},
        {"power": ("ON",)},
        180.0,
        ("power", "HANG"),
    )
    assert {arm.where, wait.where} == {Where.HEAD}
    assert [v.values for v in mutations.VARIABLES] == [("UNKNOWN", "WAIT", "INIT")]
    assert arm.doc
    assert wait.doc


async def test_arm_answers_at_once_and_the_window_ends(
    service: PxeService, make_request: Ask, clock: Any
) -> None:
    assert not await armed(service)
    assert await service.mutate(make_request("boot-arm")) == {"boot": "WAIT"}
    assert await armed(service)
    clock.now += 101
    assert not await armed(service)


async def test_a_window_is_open_when_the_card_of_a_node_is_found(
    service: PxeService, make_request: Ask
) -> None:
    await service.node_changed(NODE, {**RECORD, "macs": []})
    assert await service.mutate(make_request("boot-arm")) == {"boot": "WAIT"}
    await service.node_changed(NODE, RECORD)
    assert await armed(service)
    assert (await service.call("boot.heard", {"macs": RECORD["macs"]})).keys() == set(
        RECORD["macs"]
    ), "the card is a node's now"


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"token": "", "window_s": 9},
        {"token": "a b" * 9, "window_s": 9},
        {"token": 7, "window_s": 9},
        {"token": "a" * 20},
        {"token": "a" * 20, "window_s": 0},
        {"token": "a" * 20, "window_s": True},
        {"token": "a" * 20, "window_s": float("nan")},
    ],
)
async def test_arm_with_bad_parameters_arms_nothing(
    service: PxeService, params: dict[str, Any]
) -> None:
    with pytest.raises(InputError):
        await service.mutate(MutationRequest(1, NODE, "boot-arm", 1, 10.0, params))
    assert not await armed(service)


async def test_arm_of_an_unknown_node_and_an_unknown_mutation(
    service: PxeService, make_request: Ask
) -> None:
    with pytest.raises(OperationFailed, match="no usable record"):
        await service.mutate(
            MutationRequest(1, "other", "boot-arm", 1, 10.0, {"token": "a" * 20, "window_s": 9})
        )
    with pytest.raises(InputError, match="no such mutation"):
        await service.mutate(make_request("boot-dance"))


async def test_arm_fails_where_the_boot_could_not_work(
    service: PxeService, make_request: Ask, files: dict[str, Any]
) -> None:
    await service.node_changed(NODE, {**RECORD, "kernel_args": "${evil}"})
    with pytest.raises(InputError, match="kernel_args"):
        await service.mutate(make_request("boot-arm"))
    assert not await armed(service)
    await service.node_changed(NODE, RECORD)
    Path(files["boot_dir"], "minos.img").unlink()
    with pytest.raises(
        OperationFailed, match=r"cannot boot n1: .*minos\.img is not there"
    ) as failed:
        await service.mutate(make_request("boot-arm"))
    assert "profile build NAME" in failed.value.hint, (
        "it has no boot set: none may be of its profile"
    )
    assert not await armed(service)


async def test_a_bad_record_takes_the_node_out_and_is_told(
    service: PxeService, make_request: Ask, link: FakeLink
) -> None:
    await service.node_changed(NODE, {**RECORD, "macs": ["nonsense"]})
    assert [(e[0], e[1], e[3]) for e in link.events] == [(NODE, "service.bad-record", "error")]
    with pytest.raises(OperationFailed):
        await service.mutate(make_request("boot-arm"))


@pytest.mark.parametrize(
    ("values", "still"),
    [
        ([{"boot": "WAIT", "power": "ON"}], True),
        (
            [{"boot": "UNKNOWN", "power": "ON"}],
            True,
        ),  # on its way from before the head heard of boot-arm
        ([{"boot": "WAIT", "power": "ON"}, {"boot": "UNKNOWN", "power": "ON"}], False),
        ([{"boot": "INIT", "power": "ON"}], False),
        ([{"boot": "UNKNOWN", "power": "OFF"}], False),
        ([{"boot": "UNKNOWN", "power": "HANG"}], False),
    ],
)
async def test_what_the_head_says_disarms(
    service: PxeService, make_request: Ask, values: list[dict[str, str]], still: bool
) -> None:
    await service.mutate(make_request("boot-arm"))
    for value in values:
        await service.node_state(NODE, value)
    assert await armed(service) is still


async def test_wait_arms_too_and_ends_when_the_node_joins(
    service: PxeService, make_request: Ask
) -> None:
    task = asyncio.create_task(service.mutate(make_request("boot-wait", timeout=60.0)))
    await asyncio.sleep(0)
    assert await armed(service)
    await service.node_state(NODE, {"boot": "INIT", "run": "INIT", "power": "ON"})
    assert await task == {}
    assert not await armed(service)


async def test_wait_goes_on_with_the_window_of_arm(
    service: PxeService, make_request: Ask, state: BootState
) -> None:
    await service.mutate(make_request("boot-arm"))
    service.windows.record(NODE, Step.DISCOVER, 1000.0, {})
    task = asyncio.create_task(service.mutate(make_request("boot-wait", timeout=60.0)))
    await asyncio.sleep(0)
    assert [s["kind"] for s in (await service.call("boot.steps", {"node": NODE}))["steps"]] == [
        "boot.discover-seen"
    ]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not await armed(service)


async def test_cancelling_an_old_wait_leaves_a_new_window_open(
    service: PxeService, make_request: Ask
) -> None:
    old = asyncio.create_task(service.mutate(make_request("boot-wait", timeout=60.0)))
    await asyncio.sleep(0)
    await service.mutate(make_request("boot-arm", 2, token="another-token"))
    old.cancel()
    with pytest.raises(asyncio.CancelledError):
        await old
    assert await armed(service)


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ([], r"no DHCPDISCOVER seen in 0 s"),
        (
            [(Step.OFFER, True)],
            r"DHCP offer sent 65 s ago, no boot program or script was asked for",
        ),
        ([(Step.NBP, True)], r"boot program sent 65 s ago, iPXE never asked for its script"),
        ([(Step.SCRIPT, True)], r"boot script sent 65 s ago, the kernel was never fetched"),
        ([(Step.KERNEL, False)], r"vmlinuz asked for 65 s ago, its transfer never ended"),
        ([(Step.INITRD, True)], r"kernel and initramfs sent 65 s ago, the agent never joined"),
    ],
)
async def test_a_wait_that_runs_out_says_how_far_the_boot_came(
    service: PxeService,
    make_request: Ask,
    link: FakeLink,
    monkeypatch: pytest.MonkeyPatch,
    steps: list[tuple[Step, bool]],
    text: str,
) -> None:
    monkeypatch.setattr(service, "_clock", time.monotonic)
    await service.mutate(make_request("boot-arm"))
    for step, done in steps:
        service.windows.record(NODE, step, time.monotonic() - 65, {"file": "vmlinuz"}, done=done)
    with pytest.raises(Stalled, match="cannot boot n1: " + text) as stalled:
        await service.mutate(make_request("boot-wait", timeout=0.01))
    assert stalled.value.after == (text.split(" 65 s ago")[0] if steps else "power-on")
    assert [(e[1], e[3]) for e in link.events] == [("boot.stalled", "warning")]
    assert not await armed(service)


async def test_a_boot_that_two_machines_want_is_started_anew_at_once(
    service: PxeService, make_request: Ask
) -> None:
    """Who has its script cannot join any more: it was waited for all the same."""
    task = asyncio.create_task(service.mutate(make_request("boot-wait", timeout=600.0)))
    await asyncio.sleep(0)
    window = service.windows.by_node[NODE]
    window.asked.add("52:54:00:00:01:01")
    service.windows.record(NODE, Step.SCRIPT, 0.0, {})
    assert [bool(service.windows.hand_out(window, "52:54:00:00:01:01")) for _ in range(2)] == [
        False,
        True,
    ]
    with pytest.raises(Stalled, match="another has its address") as stalled:
        await asyncio.wait_for(task, 10)
    assert stalled.value.after == "boot script sent" and not await armed(service)


async def test_a_wait_that_the_engine_ends_at_its_time_out_is_told_too(
    service: PxeService, make_request: Ask, link: FakeLink
) -> None:
    task = asyncio.create_task(service.mutate(make_request("boot-wait", timeout=0.5)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [e[1] for e in link.events] == ["boot.stalled"]


async def test_steps_have_ages_and_never_the_token(
    service: PxeService, make_request: Ask, clock: Any
) -> None:
    await service.mutate(make_request("boot-arm"))
    service.windows.record(NODE, Step.NBP, clock.now, {"bytes": 7}, done=True)
    clock.now += 4
    report = await service.call("boot.steps", {"node": NODE})
    seen = {
        "kind": "boot.nbp-sent",
        "text": "boot program sent",
        "done": True,
        "age_s": 4.0,
        "data": {"bytes": 7},
    }
    assert report["steps"] == [seen]
    assert (report["left_s"], report["opened_s_ago"]) == (96.0, 4.0)
    assert "one-use" not in repr(report) + repr(service.windows.by_node)


async def test_calls(service: PxeService) -> None:
    assert (await service.call("boot.stats", {}))["nodes"] == 1
    assert (await service.call("boot.steps", {"node": "nobody"}))["steps"] == []
    with pytest.raises(NotFound, match="no such call"):
        await service.call("dance", {})


async def test_a_removed_node_is_forgotten(service: PxeService, make_request: Ask) -> None:
    await service.mutate(make_request("boot-arm"))
    await service.node_removed(NODE)
    assert (await service.call("boot.steps", {"node": NODE}))["opened_s_ago"] is None
    assert (await service.call("boot.stats", {}))["nodes"] == 0


async def test_start_fails_readably_and_leaves_nothing_open(
    files: dict[str, Any], link: FakeLink
) -> None:
    where = site(interface="lo", address="192.0.2.7", data_dir=files["data_dir"])
    with pytest.raises(LayercakeError, match=r"cannot listen for HTTP on 192\.0\.2\.7 port 8080"):
        await PxeService().start(link, where, BootSettings(ipxe_dir=files["ipxe_dir"]))
    with pytest.raises(OperationFailed, match="ipxe"):
        await PxeService().start(link, where, BootSettings(ipxe_dir="/nonexistent"))


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"interface": "a b"}, "interface"),
        ({"address": "10.99.0.256"}, "address"),
        ({"prefix": 31}, "prefix"),
        ({"gateway": "x"}, "gateway"),
        ({"dns": ["::1"]}, "dns"),
    ],
)
def test_bad_facts_of_the_head_are_named(change: dict[str, Any], name: str) -> None:
    with pytest.raises(InputError, match=f"setting {name}"):
        boot_settings(**change)


def test_each_step_prolongs_the_wait_but_not_for_ever() -> None:
    windows = Windows()
    windows.arm("a", "token-token", 900.0, 0.0)
    assert windows.deadline("a", 0.0, 180.0) == 180.0
    assert windows.deadline("a", 0.0, 20.0) == 20.0
    for at, until in ((100.0, 180.0), (170.0, 230.0), (229.0, 289.0), (530.0, 540.0)):
        windows.record("a", Step.DISCOVER, at, {})
        windows.record("a", Step.KERNEL, at + 1, {}, done=False)  # begun is not got on
        assert windows.deadline("a", 0.0, 180.0) == until


def test_after_the_firmware_each_step_has_a_limit_of_its_own() -> None:
    windows = Windows()
    windows.arm("a", "token-token", 9000.0, 0.0)
    assert windows.deadline("a", 0.0, 1200.0, 60.0, 3600.0) == 1200.0
    for at, until in ((100.0, 160.0), (150.0, 210.0), (1500.0, 1560.0), (3590.0, 3600.0)):
        windows.record("a", Step.DISCOVER, at, {})
        assert windows.deadline("a", 0.0, 1200.0, 60.0, 3600.0) == until


async def test_a_node_of_an_architecture_without_boot_sets_is_refused_in_words(
    service: PxeService, make_request: Ask
) -> None:
    await service.node_changed(NODE, {**RECORD, "arch": "riscv64"})
    with pytest.raises(OperationFailed, match="cannot boot n1: no boot path for riscv64"):
        await service.mutate(make_request("boot-arm"))
    await service.node_changed(NODE, {**RECORD, "arch": "aarch64", "firmware": "uefi"})
    with pytest.raises(OperationFailed, match=r"cannot boot n1: .*/gcdaa64\.efi is not there"):
        await service.mutate(make_request("boot-arm"))


async def test_a_visit_says_all_that_nodes_fetch_and_who_could_not_boot(
    service: PxeService, files: dict[str, Any]
) -> None:
    boot = Path(files["boot_dir"])
    (boot / "second").mkdir()
    for name in ("vmlinuz", "hardware.img"):
        (boot / "second" / name).write_bytes(b"x")
    for number in (2, 3):
        own = {
            "name": f"n{number}",
            "ip": f"127.0.0.1{number}",
            "macs": [f"52:54:00:00:01:0{number}"],
        }
        await service.node_changed(f"id-{number}", {**RECORD, **own, "boot_set": "second"})
    said = service.visit(10.0)
    assert sorted(said.files) == ["minos.img", "second/hardware.img", "second/vmlinuz", "vmlinuz"]
    assert {node: why for node, (why, _) in said.missing.items()} == dict.fromkeys(
        ("n2", "n3"), f"{boot}/second/minos.img is not there"
    )


@pytest.fixture
def no_shim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pxe.service._LIBRARY", tmp_path)


async def test_a_visit_says_that_secure_boot_needs_shim(no_shim: None, service: PxeService) -> None:
    assert not service.visit(10.0).missing
    await service.node_changed(NODE, {**RECORD, "secure_boot": True})
    ((why, do),) = service.visit(10.0).missing.values()
    assert "shim and GRUB are not there" in why and "restart the head" in do


async def test_a_machine_that_boots_from_its_disk_is_told_of(
    service: PxeService, make_request: Ask, link: FakeLink
) -> None:
    def asks(**options: bytes) -> dhcp.DhcpPacket:
        mac = bytes.fromhex("525400000101")
        found = {dhcp.MESSAGE_TYPE: b"\x01", **{getattr(dhcp, k): v for k, v in options.items()}}
        return dhcp.DhcpPacket(dhcp.REQUEST, 7, mac + bytes(10), found)

    recorder = service.running().recorder
    service.look_for_disk_boot(asks(), recorder)
    assert not link.events, "no boot is wanted"
    await service.mutate(make_request("boot-arm"))
    service.look_for_disk_boot(asks(VENDOR_CLASS=b"PXEClient:Arch:00000"), recorder)
    assert not link.events, "that is firmware"
    for _ in range(3):
        service.look_for_disk_boot(asks(), recorder)
    assert [kind for _, kind, *_ in link.events] == ["boot.from-disk"]
    assert "has booted from its disk" in link.events[0][2]


def test_a_window_of_the_same_token_after_its_end_is_a_new_boot() -> None:
    windows = Windows()
    windows.arm("a", "token-token", 10.0, 0.0)
    windows.record("a", Step.OFFER, 1.0, {})
    windows.arm("a", "token-token", 10.0, 5.0)
    assert len(windows.report("a", 6.0)["steps"]) == 1
    windows.arm("a", "token-token", 10.0, 20.0)
    assert windows.report("a", 21.0)["steps"] == []


async def test_a_flood_of_strangers_is_not_even_read(
    service: PxeService, link: FakeLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60,000 DISCOVERs of made-up MAC addresses: fifty are told, the rest is counted; a node is
    heard all the same."""
    (server,) = [s for s in service.sockets if isinstance(s, DhcpServer)]
    read: list[bytes] = []

    def counted(packet: dhcp.DhcpPacket, *rest: Any) -> Decision:
        read.append(packet.mac)
        return decide(packet, *rest)

    monkeypatch.setattr(server.answers, "_decide", counted)
    discover = {dhcp.MESSAGE_TYPE: bytes((dhcp.MessageType.DISCOVER,))}
    for number in range(60_000):
        mac = b"\x02" + number.to_bytes(5, "big") + bytes(10)
        server.receive(
            dhcp.build(dhcp.DhcpPacket(dhcp.REQUEST, number, mac, discover))
            if number < 100
            else strange(number)
        )
        server.work()
    server.receive(
        dhcp.build(
            dhcp.DhcpPacket(
                dhcp.REQUEST, 1, bytes.fromhex("525400000101").ljust(16, b"\0"), discover
            )
        )
    )
    server.work()
    assert len([e for e in link.events if e[1] == "dhcp.unknown-mac"]) == 50
    assert len(read) == 51 and read[-1] == bytes.fromhex("525400000101")
    assert service.stats()["dhcp.unknown-mac"] == 60_000


def strange(number: int) -> bytes:
    """A packet that begins like one of a stranger's."""
    return bytes(28) + b"\x02" + number.to_bytes(5, "big") + bytes(300)


async def test_a_boot_behind_a_relay_of_which_nothing_comes_says_when_the_relay_was_heard(
    service: PxeService, make_request: Ask, clock: Any
) -> None:
    far = {"name": "far", "subnet": "10.120.0.0/24", "gateway": "10.120.0.1"}
    await service.node_changed(NODE, {**RECORD, "ip": "10.120.0.50", "network": far})
    request = make_request("boot-wait")
    assert service.stalled(request).endswith(
        "; no relay of its network far was heard since the boot service began"
    )
    service.relay_sightings.record("far", Relay(b"\x0a\x78\0\1", b"\x0a\x78\0\1", None, {}))
    clock.now += 300
    assert service.stalled(request).endswith(
        "; the relay of its network far, 10.120.0.1, was heard 300 s ago"
    )
    await service.node_changed(NODE, {**RECORD, "ip": "10.120.0.50", "network": None})
    assert "relay" not in service.stalled(request)
