"""The rack as libvirt domains: its BMCs switch them, and each boots from the network in its own
firmware. And the Vagrantfile."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from vrack.libvirt_room import LibvirtRoom, uri
from vrack.rack import Rack

from layercake.kraken.errors import OperationFailed, Unreachable
from layercake.moduleapi.service import FakeLink
from powerman.driver import PowerState, Unsupported
from powerman.drivers.command import CommandDriver, Programs
from powerman.service import PowerService
from powerman.settings import BmcSpec, PowerSettings, Program
from tests.power.test_real_bmcs import record
from tests.support.in_netns import in_netns
from tests.support.inventory import bmc_of, load
from tests.support.site import site

pytestmark = [pytest.mark.vm, pytest.mark.root]
ROOT = Path(__file__).resolve().parents[2]


def test_bmcs_of_libvirt_switch_machines_that_boot_from_the_network(tmp_path: Path) -> None:
    with Rack(tmp_path / "rack", 2, libvirt=True) as rack:

        async def body() -> list[Any]:
            service = PowerService(polls=False)
            await service.start(FakeLink(), site(), PowerSettings())
            try:
                for index, node in enumerate(rack.nodes):
                    await service.node_changed(node.name, record(rack, index))
                found: list[Any] = []
                for node in rack.nodes:
                    async with service.asking(node.name) as bmc:
                        found.append([await bmc.driver.state()])
                        await bmc.driver.boot_network()
                        await bmc.driver.on()
                        found[-1].append(await bmc.driver.state())
                return found
            finally:
                await service.stop()

        found = in_netns(rack.namespace, body)
        assert [[state.value for state in states] for states in found] == [
            ["OFF", "ON"],
            ["OFF", "ON"],
        ]
        rack.wait_console(0, "iPXE", 120)
        rack.wait_console(1, "PXE", 240)
        assert "could not load PC BIOS" not in (rack.directory / "libvirt/libvirtd.log").read_text(
            errors="replace"
        )


@pytest.mark.parametrize("driver", ["kvm", "qemu"])
def test_the_vagrantfile_is_valid_in_a_fresh_checkout(tmp_path: Path, driver: str) -> None:
    shutil.copy(ROOT / "Vagrantfile", tmp_path)
    environment = {
        **os.environ,
        "VAGRANT_HOME": str(tmp_path / "home"),
        "DRIVER": driver,
        "NODES": "3",
    }
    done = subprocess.run(
        ["vagrant", "validate"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (tmp_path / ".vagrant/rack").exists(), "looking makes nothing"


def _vagrantfile(directory: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Runs Ruby with what the Vagrantfile defines, in a checkout that has nothing else; Vagrant
    itself is left out."""
    shutil.copy(ROOT / "Vagrantfile", directory)
    nothing = "module Vagrant; def self.configure(version) end; end"
    return subprocess.run(
        ["ruby", "-e", f"{nothing}; load '{directory / 'Vagrantfile'}'; {code}"],
        cwd=directory,
        check=False,
        env={**os.environ, "NODES": "3"},
        capture_output=True,
        text=True,
    )


def test_the_inventory_of_the_vagrantfile_can_be_applied(tmp_path: Path) -> None:
    done = _vagrantfile(tmp_path, "password; write_inventory")
    assert done.returncode == 0, done.stderr
    found = load(tmp_path / ".vagrant/rack/rack.yaml")
    bmcs = {name: bmc.driver for name in found.nodes if (bmc := bmc_of(found, name)) is not None}
    assert bmcs == {"n0": "ipmi", "n1": "redfish", "n2": "ipmi"}
    assert len((tmp_path / ".vagrant/rack/bmc-password").read_text()) <= 16, (
        "IPMI 1.5 allows no more"
    )


def test_the_vagrantfile_says_how_to_get_the_package_that_it_needs(tmp_path: Path) -> None:
    done = _vagrantfile(tmp_path, "keep_package")
    assert (done.returncode, "`make deb` builds it" in done.stderr) == (1, True)


def test_the_program_for_virtual_machines_switches_one_of_libvirt(tmp_path: Path) -> None:
    machine = """<domain type='qemu'><name>vm1</name><memory unit='MiB'>64</memory>
        <os><type arch='x86_64' machine='q35'>hvm</type></os><on_poweroff>destroy</on_poweroff>
        <devices><emulator>/usr/bin/qemu-system-x86_64</emulator><memballoon model='none'/></devices></domain>"""
    path = shutil.copy(ROOT / "examples/power/virsh-domain.sh", tmp_path)
    Path(f"{path}.uris").write_text(
        f"here {uri(tmp_path / 'libvirt')}\ndead qemu+unix:///system?socket=/nowhere/libvirt-sock\n"
    )
    programs = Programs({"virsh": Program(path=str(path), timeout_s=60.0)})

    def driver(address: str) -> CommandDriver:
        facts = {"driver": "command", "program": "virsh", "address": address}
        return CommandDriver(BmcSpec.from_record("n1", {"name": "n1", "bmc": facts}), programs)

    async def switched() -> list[PowerState]:
        one, found = driver("here/vm1"), list[PowerState]()
        for step in (one.on, one.on, lambda: one.off(soft=True), one.off, one.off):
            found.append(await one.state())
            await step()
        with pytest.raises(OperationFailed, match="failed to get domain 'vm2'"):
            await driver("here/vm2").on()
        with pytest.raises(Unreachable, match="failed to connect"):
            await driver("dead/vm1").state()
        with pytest.raises(OperationFailed, match="is no HOST/DOMAIN"):
            await driver("here/-x").state()
        with pytest.raises(Unsupported):
            await one.reset()
        return [*found, await one.state()]

    room = LibvirtRoom(tmp_path / "libvirt", "tcg", [machine])
    try:
        room.start()
        on, off = PowerState.ON, PowerState.OFF  # no system inside that would shut down
        assert asyncio.run(switched()) == [off, on, on, on, off, off]
    finally:
        room.stop()
