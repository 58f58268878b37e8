"""The service and its drivers against real ipmi_sim and real sushy-emulator, each of which switches
a real process."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from patience import patience
from vrack.rack import Rack
from vrack.spec import BmcKind, Firmware, VmSpec

from layercake.kraken.errors import LayercakeError, OperationFailed, Unreachable
from layercake.moduleapi.service import FakeLink, MutationRequest
from powerman.driver import LoginRefused, PowerDriver, PowerState, Unsupported
from powerman.drivers.command import Programs
from powerman.drivers.sim import SimLine
from powerman.drivers.table import Shared, make_driver
from powerman.ipmi.line import Line, Pace
from powerman.ipmi.pyghmi_pool import PyghmiPool
from powerman.ipmi.session import probe
from powerman.redfish.web import Web
from powerman.service import PowerService
from powerman.settings import BmcSpec, PowerSettings
from tests.support.in_netns import in_netns
from tests.support.site import site

pytestmark = [pytest.mark.root, pytest.mark.waits]

BOTH = pytest.mark.parametrize("slot", [0, 1], ids=["ipmi", "redfish"])


def record(rack: Rack, slot: int, **changes: Any) -> dict[str, Any]:
    """What the head would tell powerman of a node of the rack."""
    node, secrets = rack.nodes[slot], rack.secrets
    assert secrets is not None
    ipmi = node.bmc is BmcKind.IPMI
    bmc = {
        "driver": node.bmc.value,
        "address": node.bmc_address if ipmi else f"https://{node.bmc_address}:8000",
        "port": 623 if ipmi else 8000,
        "username": "admin",
        "password": secrets.password,
        "verify_tls": str(secrets.certificate),
    }
    return {"name": node.name, "firmware": node.firmware.value, "bmc": {**bmc, **changes}}


def spec(rack: Rack, slot: int, **changes: Any) -> BmcSpec:
    """A spec for a driver alone."""
    return BmcSpec.from_record(rack.nodes[slot].name, record(rack, slot, **changes))


@contextlib.asynccontextmanager
async def driver_of(a_spec: BmcSpec) -> AsyncIterator[PowerDriver]:
    """The driver that the service would make."""
    shared = Shared(Web(), PyghmiPool(), SimLine(Path("/nowhere")), Programs({}))
    driver = make_driver(a_spec, shared)
    try:
        yield driver
    finally:
        await driver.close()
        await shared.web.close()


def with_driver(
    rack: Rack, a_spec: BmcSpec, body: Callable[[PowerDriver], Coroutine[Any, Any, Any]]
) -> Any:
    """Runs a body with a driver inside the rack's network."""

    async def inside() -> Any:
        async with driver_of(a_spec) as driver:
            return await body(driver)

    return in_netns(rack.namespace, inside)


def with_service(
    rack: Rack,
    records: dict[str, dict[str, Any]],
    body: Callable[[PowerService, FakeLink], Coroutine[Any, Any, Any]],
    **settings: Any,
) -> Any:
    """Runs a body with a started service inside the rack's network."""

    async def inside() -> Any:
        service, link = PowerService(), FakeLink()
        await service.start(
            link, site(), PowerSettings(**{"poll_s": 3600.0, "workers": 16, **settings})
        )
        try:
            for name, entry in records.items():
                await service.node_changed(name, entry)
            return await body(service, link)
        finally:
            await service.stop()

    return in_netns(rack.namespace, inside)


async def mutate(
    service: PowerService, name: str, node: str, timeout: float = 60.0
) -> dict[str, str]:
    """One attempt."""
    return dict(await service.mutate(MutationRequest(1, node, name, 1, timeout, {})))


@BOTH
def test_a_real_bmc_without_a_power_cap_says_so(bmcs: Rack, slot: int) -> None:
    async def body(driver: PowerDriver) -> None:
        assert driver.cap is not None
        with pytest.raises(Unsupported, match="has no power limit"):
            await driver.cap.set(300)
        assert await driver.state() is PowerState.OFF  # nothing was harmed by the question

    with_driver(bmcs, spec(bmcs, slot), body)


@BOTH
def test_on_off_and_reset_by_a_real_bmc(bmcs: Rack, slot: int) -> None:
    name = bmcs.nodes[slot].name

    async def body(service: PowerService, link: FakeLink) -> None:
        assert await mutate(service, "power-discover", name) == {"power": "OFF"}
        assert await mutate(service, "power-on", name) == {"power": "ON"}
        assert bmcs.vm_alive(slot)
        assert bmcs.machine(slot)["last_boot"].lower() == "pxe"
        assert await mutate(service, "power-discover", name) == {"power": "ON"}
        assert await mutate(service, "power-reset", name) == {"power": "OFF"}
        assert not bmcs.vm_alive(slot)
        assert await mutate(service, "power-on", name) == {"power": "ON"}
        assert await mutate(service, "power-off", name) == {"power": "OFF"}
        assert not bmcs.vm_alive(slot)
        assert [kind for _, kind, *_ in link.events] == []

    with_service(bmcs, {name: record(bmcs, slot)}, body)


@BOTH
def test_cycle_and_reset_start_the_machine_anew(bmcs: Rack, slot: int) -> None:
    async def body(driver: PowerDriver) -> None:
        await driver.on()
        starts = bmcs.machine(slot)["starts"]
        await driver.reset()
        assert bmcs.machine(slot)["starts"] == starts + 1
        await driver.off()
        assert await driver.state() is PowerState.OFF

    with_driver(bmcs, spec(bmcs, slot), body)


@BOTH
def test_a_machine_that_dies_is_off_for_its_bmc(bmcs: Rack, slot: int) -> None:
    async def body(driver: PowerDriver) -> None:
        await driver.on()
        assert await driver.state() is PowerState.ON
        bmcs.kill_vm(slot)
        assert await driver.state() is PowerState.OFF

    with_driver(bmcs, spec(bmcs, slot), body)


@BOTH
@pytest.mark.parametrize(
    "changes", [{"password": "not-this-one"}, {"username": "nobody"}], ids=["password", "user"]
)
def test_a_wrong_login_is_a_clear_error(bmcs: Rack, slot: int, changes: dict[str, str]) -> None:
    async def body(driver: PowerDriver) -> None:
        for operation in (driver.state, driver.on, driver.sensors):
            with pytest.raises(LoginRefused, match="refuses the user or the password") as caught:
                await operation()
            assert "not-this-one" not in str(caught.value)

    with_driver(bmcs, spec(bmcs, slot, **changes), body)


@BOTH
def test_how_long_it_takes_is_counted_by_driver(bmcs: Rack, slot: int) -> None:
    name = bmcs.nodes[slot].name

    async def body(service: PowerService, link: FakeLink) -> Any:
        await service.call("power.refresh", {"node": name})
        await service.call("power.sensors", {"node": name})
        with contextlib.suppress(LayercakeError):
            await service.call("power.refresh", {"node": "wrong"})
        return await service.call("power.latency", {})

    [driver] = with_service(
        bmcs, {name: record(bmcs, slot), "wrong": record(bmcs, slot, password="wrong")}, body
    )
    assert (driver["driver"], sum(driver["counts"]), driver["failed"]) == (
        bmcs.nodes[slot].bmc.value,
        2,
        1,
    )
    assert 0 < driver["sum"] < 60


@BOTH
def test_sensors(bmcs: Rack, slot: int) -> None:
    async def body(driver: PowerDriver) -> None:
        found = {sensor.name: sensor for sensor in await driver.sensors()}
        hot = found["CPUTemp" if slot == 0 else "CPU Temp"]
        assert (
            hot.unit == "°C"
            and hot.value is not None
            and 20 < hot.value < 90
            and hot.health == "ok"
        )

    with_driver(bmcs, spec(bmcs, slot), body)


def test_the_event_log_by_pyghmi(bmcs: Rack, tmp_path: Path) -> None:
    events = tmp_path / "events"
    events.write_text(
        "0x04 0x01 0x30 0x01 0x09 0xff 0xff\n"
    )  # temperature, upper critical, going high
    login = ["-H", bmcs.nodes[0].bmc_address, "-U", "admin", "-P", spec(bmcs, 0).password]
    added = bmcs.run(["ipmitool", "-I", "lanplus", "-C", "3", *login, "sel", "add", str(events)])
    assert added.returncode == 0, added.stderr

    async def body(driver: PowerDriver) -> None:
        entries = await driver.event_log()
        assert len(entries) == 1
        assert "upper critical" in entries[0].text.lower()

    with_driver(bmcs, spec(bmcs, 0), body)


@BOTH
def test_what_the_bmc_knows_of_its_machine(bmcs: Rack, slot: int) -> None:
    async def body(driver: PowerDriver) -> None:
        found = {(fact.part, fact.what): fact.value for fact in await driver.hardware()}
        if slot == 0:  # by its own board: 9.8 in BCD (vrack.ipmi_bmc, mc_add)
            assert found[("BMC", "Firmware")] == "9.08"
        else:
            assert found[("BMC", "FirmwareVersion")]

    with_driver(bmcs, spec(bmcs, slot), body)


def test_what_is_new_in_an_event_log_is_told(bmcs: Rack, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    seen.write_text("0x04 0x04 0x31 0x01 0x07 0xff 0xff\n")  # fan, upper non-critical
    login = ["-H", bmcs.nodes[0].bmc_address, "-U", "admin", "-P", spec(bmcs, 0).password]

    async def body(service: PowerService, link: FakeLink) -> None:
        await service.call("power.refresh", {"node": "n0"})
        for _ in range(2):
            service.logs.nodes["n0"].next_at = 0.0
            await service.logs.look_due()
        assert not [text for _, kind, text, *_ in link.events if kind == "power.bmc-log"]
        added = await asyncio.create_subprocess_exec(
            "ipmitool", "-I", "lanplus", "-C", "3", *login, "sel", "add", str(seen)
        )
        assert await added.wait() == 0
        for _ in range(2):
            service.logs.nodes["n0"].next_at = 0.0
            await service.logs.look_due()
        (text,) = [text for _, kind, text, *_ in link.events if kind == "power.bmc-log"]
        assert "upper non-critical" in text.lower()

    with_service(bmcs, {"n0": record(bmcs, 0)}, body)


def test_a_system_without_event_log_says_so(bmcs: Rack) -> None:
    async def body(driver: PowerDriver) -> None:
        with pytest.raises(Unsupported, match="keeps none"):
            await driver.event_log()

    with_driver(bmcs, spec(bmcs, 1), body)


def test_a_bmc_older_than_ipmi_2_is_pyghmis(bmcs: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(driver: PowerDriver) -> None:
        async def old(line: Line, pace: Pace) -> Any:
            return replace(await probe(line, pace), ipmi_2_0=False)

        monkeypatch.setattr("powerman.ipmi.driver.probe", old)
        await driver.boot_network()
        await driver.on()
        assert await driver.state() is PowerState.ON
        assert bmcs.machine(0)["last_boot"] == "pxe"
        await driver.off()
        assert await driver.state() is PowerState.OFF

    with_driver(bmcs, spec(bmcs, 0), body)


def test_a_certificate_that_nobody_signed_is_not_trusted(bmcs: Rack) -> None:
    async def body(driver: PowerDriver) -> None:
        with pytest.raises(OperationFailed, match="cannot trust") as caught:
            await driver.state()
        assert "verify_tls" in caught.value.hint

    with_driver(bmcs, spec(bmcs, 1, verify_tls=True), body)


@BOTH
def test_a_bmc_that_hangs_for_a_while(bmcs: Rack, slot: int) -> None:
    name = bmcs.nodes[slot].name

    async def body(service: PowerService, link: FakeLink) -> None:
        assert await mutate(service, "power-discover", name) == {"power": "OFF"}
        bmcs.pause_bmc(slot)
        began = time.monotonic()
        with pytest.raises(Unreachable):
            await mutate(service, "power-on", name, timeout=10.0)
        assert time.monotonic() - began < patience(10)
        bmcs.resume_bmc(slot)
        assert await mutate(service, "power-on", name) == {"power": "ON"}
        assert await mutate(service, "power-off", name) == {"power": "OFF"}
        assert [kind for _, kind, *_ in link.events] == ["power.unreachable", "power.recovered"]

    with_service(bmcs, {name: record(bmcs, slot, timeout_s=4.0)}, body)


def _dud(*_: object) -> list[str]:
    """A machine that does not stay on, whatever its BMC says that it did."""
    return ["true"]


@pytest.fixture(scope="module")
def liars(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rack]:
    """BMCs that answer every command with success, in front of machines that never come on."""
    nodes = [VmSpec(Firmware.BIOS, BmcKind.IPMI), VmSpec(Firmware.UEFI, BmcKind.REDFISH)]
    with Rack(tmp_path_factory.mktemp("liars"), nodes, accel="tcg", command=_dud) as rack:
        yield rack


@BOTH
def test_defect_4_power_is_read_back(liars: Rack, slot: int) -> None:
    name = liars.nodes[slot].name

    async def body(service: PowerService, link: FakeLink) -> None:
        said = ""
        async with asyncio.timeout(240):
            # On a busy machine its BMC may see it on for the moment that it takes to end, or may
            # not have answered by then.
            while "took the command, and still says OFF" not in said:
                try:
                    await mutate(service, "power-on", name, timeout=3.0)
                except LayercakeError as error:
                    said = error.message
        assert liars.machine(slot)["starts"] > 0  # the BMC did what it was told

    with_service(liars, {name: record(liars, slot)}, body)


@contextlib.contextmanager
def silent(namespace: str, count: int) -> Iterator[list[dict[str, Any]]]:
    """Records of BMCs that take packets and connections and never say a word, half IPMI and half
    Redfish."""

    async def listen() -> list[socket.socket]:
        sockets = []
        for i in range(count):
            s = socket.socket(type=socket.SOCK_STREAM if i % 2 else socket.SOCK_DGRAM)
            s.bind((f"10.98.2.{i + 1}", 8000 if i % 2 else 623))
            if i % 2:
                s.listen()
            sockets.append(s)
        return sockets

    sockets = in_netns(namespace, listen)
    try:
        yield [
            {
                "name": f"dead{i}",
                "firmware": "bios",
                "bmc": {
                    "driver": "redfish" if i % 2 else "ipmi",
                    "username": "admin",
                    "password": "x",
                    "port": 8000 if i % 2 else 623,
                    "address": f"https://10.98.2.{i + 1}:8000" if i % 2 else f"10.98.2.{i + 1}",
                },
            }
            for i in range(count)
        ]
    finally:
        for s in sockets:
            s.close()


def test_a_dead_bmc_stalls_nobody(tmp_path: Path) -> None:
    nodes = [
        VmSpec(Firmware.BIOS, BmcKind.IPMI),
        VmSpec(Firmware.UEFI, BmcKind.REDFISH),
        VmSpec(Firmware.BIOS, BmcKind.IPMI),
    ]

    async def body(service: PowerService, link: FakeLink) -> None:
        async def timed(name: str) -> float:
            began = time.monotonic()
            await mutate(service, "power-discover", name, timeout=15.0)
            return time.monotonic() - began

        dead_tasks = [asyncio.create_task(timed(entry["name"])) for entry in dead]
        await asyncio.sleep(0.2)  # the dead have taken whatever they can take
        live = await asyncio.gather(*(timed(node.name) for node in rack.nodes))
        assert max(live) < 2.0, live  # alone 0.02 and 0.1 s; a dead one takes 4 to 8 s
        assert not any(task.done() for task in dead_tasks)
        results = await asyncio.gather(*dead_tasks, return_exceptions=True)
        assert all(isinstance(result, Unreachable) for result in results)
        assert sum(kind == "power.unreachable" for _, kind, *_ in link.events) == len(dead)

    with (
        Rack(tmp_path, nodes, accel="tcg", command=lambda *_: ["sleep", "1000000"]) as rack,
        silent(rack.namespace, 20) as dead,
    ):
        records = {entry["name"]: entry for entry in dead} | {
            n.name: record(rack, i) for i, n in enumerate(rack.nodes)
        }
        with_service(rack, records, body, workers=4)


def test_no_secret_leaves_the_service(bmcs: Rack) -> None:
    password = spec(bmcs, 0).password

    async def body(service: PowerService, link: FakeLink) -> None:
        said: list[str] = []
        for name in ("n0", "n1"):
            await mutate(service, "power-on", name)
            await mutate(service, "power-off", name)
            said.append(repr(await service.call("power.sensors", {"node": name})))
            await service.node_changed(name, record(bmcs, int(name[1:]), timeout_s=2.0))
            bmcs.pause_bmc(int(name[1:]))
            try:
                await mutate(service, "power-discover", name)
            except LayercakeError as error:
                said.append(str(error))
            finally:
                bmcs.resume_bmc(int(name[1:]))
        said += [repr(link.events), repr(link.discoveries)]
        assert not any(password in text for text in said)

    with_service(bmcs, {f"n{i}": record(bmcs, i) for i in (0, 1)}, body)


def test_the_password_of_a_real_bmc_is_turned_and_tried(bmcs: Rack) -> None:
    assert bmcs.secrets is not None
    old, new = bmcs.secrets.password, "turned-once-16ch"

    async def turned(service: PowerService, link: FakeLink) -> list[dict[str, Any]]:
        there = await service.set_password("n0", new)
        again = await service.set_password(
            "n0", new
        )  # the head was stopped before it knew: the BMC has it already
        await service.node_changed("n0", record(bmcs, 0, password=new))
        return [
            there,
            again,
            await service.set_password("n0", old),
            await service.set_password("n1", new),
        ]

    *ipmi, redfish = with_service(bmcs, {"n0": record(bmcs, 0), "n1": record(bmcs, 1)}, turned)
    assert [said["left"] for said in ipmi] == ["", "", ""]
    assert "no accounts" in redfish["left"], (
        "this emulator has none; tests/power/test_redfish_web.py has"
    )
    assert with_driver(bmcs, spec(bmcs, 0), lambda driver: driver.state()) in PowerState
