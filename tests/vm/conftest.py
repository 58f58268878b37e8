"""One virtual rack for all tests of this folder: n0 SeaBIOS and IPMI, n1 OVMF's own PXE and
Redfish; n2 is not in the inventory, and those after it are of another network (relay.py).

Each test leaves both nodes converged on the image that it found them on. A test that fails does
not: the next one gets another rack.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "vm-testbed"))

from headrun import HeadRun
from sampleimages import crashing_image, plain_image, systemd_image
from vrack.rack import Rack
from vrack.spec import SIDE_ADDRESS, SIDE_BRIDGE, SIX_ADDRESS, BmcKind, Firmware, NicRom, VmSpec

from tests.vm import disks, relay
from tests.vm.tpms import Tpms

BOOT_S = 150.0
RACKS = 3
"""Racks that are made at most, where tests fail: after that something else is broken."""
_FAILED = pytest.StashKey[bool]()
SETTINGS = {
    "sync": {"hello_s": 2.0, "dead_s": 8.0, "probe_s": 3.0},
    "power": {"poll_s": 4.0},
    "images": {"privileges": {"keeper": ["mounts"]}},
    "boot": {"attempts": 2, "dns": {"serve": True, "domain": "rack.test"}},
    "more_networks": {
        "side": {"interface": SIDE_BRIDGE, "address": SIDE_ADDRESS, "prefix": 24},
        "six": {"interface": SIDE_BRIDGE, "address": SIX_ADDRESS, "prefix": 64},
    },
}


class Site:
    """A rack with a head over it. `inventory()` names the nodes n0 and n1 only."""

    def __init__(self, parent: Path) -> None:
        self._parent = parent
        self._count = 1
        self.broken = ""
        """Why another one is to be made, "" if it is whole."""
        self._make()

    def _make(self) -> None:
        self.directory = directory = self._parent / str(self._count)
        directory.mkdir()
        bios = VmSpec(Firmware.BIOS, BmcKind.IPMI, more=disks.machine(directory))
        self.tpms = Tpms(directory / "tpm")
        uefi = VmSpec(
            Firmware.UEFI,
            BmcKind.REDFISH,
            nic_rom=NicRom.FIRMWARE,  # its own PXE, so TFTP is on the way
            more=self.tpms.machine,
        )
        unknown = VmSpec(
            Firmware.UEFI,
            BmcKind.IPMI,
            nic_rom=NicRom.FIRMWARE,
            secure_boot=True,
            more=("-smbios", "type=1,manufacturer=ACME,product=X1,serial=SN-TWO"),
        )
        self.rack = Rack(directory / "rack", [bios, uefi, unknown, *relay.machines()])
        self.head = HeadRun(self.rack, directory / "head")
        self.disks: dict[str, object] = {}
        """The layouts of n0's disks: with some, each start of a machine takes six seconds more."""
        self.files = directory / "files"
        self.files.mkdir()

    def up(self) -> None:
        """From nothing to both nodes running the plain image."""
        images = {
            "plain-1": plain_image("plain-1"),
            "plain-2": plain_image("plain-2"),
            "crash": crashing_image("crash"),
        }
        self.rack.up()
        self.head.init({**SETTINGS, "files": {"directory": str(self.files)}})
        self.head.start()
        for name, path in images.items():
            body = {"path": str(path), "name": name, "systemd": False, "command": ["/init"]}
            self.head.api("POST", "/v1/images", body)
        self.head.api(
            "POST",
            "/v1/images",
            {"path": str(systemd_image("debian-1")), "name": "debian-1", "systemd": True},
        )
        self.head.apply(self.inventory())
        self.head.wait_converged(BOOT_S)

    def renew(self) -> None:
        """Another rack in the place of one that is broken."""
        if self._count >= RACKS:
            pytest.fail(f"the rack is not whole: {self.broken}")
        self._count += 1
        self.down()
        shutil.rmtree(self.directory, ignore_errors=True)
        self._make()
        self.up()
        self.broken = ""

    def inventory(self, **changes: object) -> str:
        """The rack's inventory without n2; `changes` are set on n1."""
        import yaml

        data = yaml.safe_load(self.rack.inventory(images=["plain-1"]))
        data["nodes"] = {name: data["nodes"][name] for name in ("n0", "n1")}
        data["nodes"]["n0"]["disks"] = self.disks
        data["nodes"]["n1"].update({"tpm": "recorded", "tpm_registers": [4, 7, 9], **changes})
        return str(yaml.safe_dump(data))

    def down(self) -> None:
        """Everything away."""
        with contextlib.ExitStack() as ends:
            ends.callback(self.tpms.close)
            ends.callback(self.rack.down)
            ends.callback(self.head.close)

    def told(self, *names: str) -> None:
        """Returns when the head has all that running nodes have to tell: an answer of theirs comes
        after their events."""
        for name in names:
            self.head.api("GET", f"/v1/nodes/{name}/logs?lines=1")

    def facts(self) -> dict[str, tuple[str, int, int]]:
        """Of each node: boot id, the process of its image's init, and how often its machine was
        started."""
        self.told("n0", "n1")
        found = {}
        for index, name in enumerate(("n0", "n1")):
            pids = [
                e["data"]["pid"] for e in self.head.history(name) if e["kind"] == "image.started"
            ]
            found[name] = (
                self.head.nodes()[name]["boot_id"],
                pids[-1],
                self.rack.machine(index)["starts"],
            )
        return found


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="layercake-vm-") as directory:
        found = Site(Path(directory))
        try:
            found.up()
            yield found
        finally:
            found.down()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Notes whether a test has failed."""
    report = yield
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed
    return report


@pytest.fixture(autouse=True)
def _converged(request: pytest.FixtureRequest, site: Site) -> Iterator[None]:
    """Each test finds a rack that is whole: else each after one that broke it would wait for
    minutes, and CI's time would be over before anybody had read why."""
    if site.broken:
        site.renew()
    yield
    site.broken = f"{request.node.nodeid} has left it so"
    if request.node.stash.get(_FAILED, False):
        return
    if site.head.process is None:
        site.head.start()
    site.head.wait_converged(BOOT_S)
    site.broken = ""
