"""Machines as they are sold: their cards, controllers and BMCs, with the general kernel and the drivers of the profile `server`.

One rack: each machine boots by another card and by another path, SeaBIOS and OVMF in turn: n0 and n3 from a USB stick, n1 and n2
out of the card's own ROM, n4 with Secure Boot and Microsoft's keys, n5 by HTTP Boot. n0 has a controller of each kind and IPMI over
KCS besides, n1 a second card that nothing boots by. n1 and n4 have devices whose drivers the profile does not have, and n2 gets one
while it runs.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "vm-testbed"))

from headrun import ROOT, HeadRun
from vrack.rack import Rack
from vrack.spec import BmcKind, Firmware, NicRom, VmSpec

pytestmark = [pytest.mark.vm, pytest.mark.root]
BOOT_S = 900.0
SETTINGS = {"sync": {"hello_s": 2.0, "dead_s": 10.0, "probe_s": 4.0}, "boot": {"attempts": 2}}


def disk(number: int, *device: str) -> tuple[str, ...]:
    """A small disk of zeros on a controller."""
    return ("-drive", f"if=none,id=d{number},driver=null-co,size=64M,read-zeroes=on",
            *(word.format(disk=f"drive=d{number}") for word in device))


STORAGE = (
    *disk(0, "-device", "ide-hd,bus=ide.0,{disk}"), *disk(1, "-device", "nvme,serial=layercake,{disk}"),
    *disk(2, "-device", "megasas,id=raid", "-device", "scsi-hd,bus=raid.0,{disk}"),
    *disk(3, "-device", "virtio-scsi-pci,id=vs", "-device", "scsi-hd,bus=vs.0,{disk}"),
    *disk(4, "-device", "qemu-xhci,id=usb", "-device", "usb-storage,bus=usb.0,{disk}"),
    "-device", "ipmi-bmc-sim,id=bmc", "-device", "isa-ipmi-kcs,bmc=bmc",
)
SECOND = ("-netdev", "user,id=net1,restrict=on", "-device", "e1000,netdev=net1,mac=52:54:00:99:01:01,romfile=")
CARD_READER, WATCHDOG = ("-device", "sdhci-pci"), ("-device", "i6300esb")
USB = ("-netdev", "user,id=net2,restrict=on", "-device", "qemu-xhci,id=usb", "-device", "usb-net,bus=usb.0,netdev=net2")


NO_PXE = tuple(word for version in (4, 6) for word in ("-fw_cfg", f"name=opt/org.tianocore/IPv{version}PXESupport,string=n"))
"""OVMF without PXE, as a firmware that is set to HTTP Boot."""


def stick(image: Path) -> tuple[str, ...]:
    """A USB stick that the machine boots by before its card, which has no ROM."""
    return ("-device", "qemu-xhci,id=stick", "-drive", f"if=none,id=stick0,format=raw,readonly=on,file={image}",
            "-device", "usb-storage,bus=stick.0,drive=stick0,bootindex=0")


def monitor(image: Path) -> Path:
    """The socket at which n2 is told to plug something in."""
    return image.with_name("n2.monitor")


def machines(image: Path) -> tuple[VmSpec, ...]:
    """The rack; `image` is that of the stick."""
    hot = ("-chardev", f"socket,id=hot,path={monitor(image)},server=on,wait=off", "-mon", "chardev=hot,mode=readline")
    return (
        VmSpec(Firmware.BIOS, BmcKind.IPMI, nic="e1000,romfile=", more=(*stick(image), *STORAGE)),
        VmSpec(Firmware.UEFI, BmcKind.REDFISH, nic="e1000e", more=(*SECOND, *CARD_READER)),
        VmSpec(Firmware.BIOS, BmcKind.IPMI, nic="vmxnet3", more=(*USB, *hot)),
        VmSpec(Firmware.UEFI, BmcKind.REDFISH, nic="rtl8139,romfile=", more=stick(image)),
        VmSpec(Firmware.UEFI, BmcKind.REDFISH, nic_rom=NicRom.FIRMWARE, secure_boot=True, memory_mib=768, more=WATCHDOG),
        VmSpec(Firmware.UEFI, BmcKind.REDFISH, nic_rom=NicRom.FIRMWARE, more=NO_PXE),
    )


DRIVERS = {"n0": "e1000", "n1": "e1000e", "n2": "vmxnet3", "n3": "8139cp", "n4": "virtio_net", "n5": "virtio_net"}
PATHS = {"n0": "BIOS, USB stick", "n1": "UEFI, iPXE in the card", "n2": "BIOS, iPXE in the card", "n3": "UEFI, USB stick",
         "n4": "UEFI, Secure Boot", "n5": "UEFI, HTTP Boot"}
PROGRAMS = {"n4": ["shimx64.efi", "grubx64.efi"], "n5": ["snponly.efi"]}
"""What is sent before the script; an iPXE gets the script at once."""


class Site:
    """The rack with a head over it."""

    def __init__(self, directory: Path) -> None:
        self.image = image = directory / "stick.img"
        made = subprocess.run([sys.executable, "-m", "layercake.cli.main", "boot-media", str(image)], cwd=ROOT, check=False)
        assert made.returncode == 0 and image.is_file()
        self.rack = Rack(directory / "rack", machines(image))
        self.head = HeadRun(self.rack, directory / "head", "server")

    def fetched(self, node: str) -> dict[str, list[str]]:
        """{driver that the node has fetched from the head: the devices that it has bound}."""
        told = [event["data"]["drivers"] for event in self.head.history(node, "node.drivers-fetched")]
        return {name: devices for drivers in told for name, devices in drivers.items()}

    def says(self, node: str, *command: str) -> str:
        """The output of a command on a node."""
        return self.head.cli("node", "exec", node, "--", *command).stdout


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="layercake-metal-") as directory:
        found = Site(Path(directory))
        try:
            found.rack.up()
            found.head.init(SETTINGS)
            found.head.start()
            inventory = yaml.safe_load(found.rack.inventory())
            inventory["defaults"]["boot_timeout"] = BOOT_S  # TFTP at the pace of an emulated machine, and of a busy one
            found.head.apply(yaml.safe_dump(inventory))
            found.head.wait_converged(BOOT_S)
            yield found
        finally:
            found.head.close()
            found.rack.down()


def cards(site: Site, node: str) -> dict[str, str]:
    """{MAC: driver} of a node's cards, once it has told of them all."""
    site.head.wait(f"{node} tells of its cards", lambda: site.head.nodes()[node]["cards"], 120)
    return {card["mac"]: card["driver"] for card in site.head.nodes()[node]["cards"]}


def test_each_card_boots_by_its_own_driver(site: Site) -> None:
    for spec in site.rack.nodes:
        assert cards(site, spec.name)[spec.mac] == DRIVERS[spec.name]
        programs = [e["data"]["file"] for e in site.head.history(spec.name, "boot.nbp-sent")]
        assert programs == PROGRAMS.get(spec.name, [])


def seconds(site: Site, node: str) -> dict[str, float]:
    """When a node's steps were done, from its power-on."""
    events = site.head.history(node)
    start = next(float(e["at"]) for e in events if e["kind"] == "mutation.done" and e["data"]["mutation"] == "power-on")
    kinds = ("boot.discover-seen", "boot.script-sent", "boot.initrd-sent", "node.joined")
    return {kind: max(float(e["at"]) for e in events if e["kind"] == kind) - start for kind in kinds}


def test_the_paths_are_a_table(site: Site) -> None:
    """build/boot-paths.md, which docs/explanation/boot.md shows as it was measured."""
    lines = ["| Path | Card | DHCPDISCOVER | Script | All sent | Joined |", "|---|---|---|---|---|---|"]
    for spec in site.rack.nodes:
        took = [round(s, 1) for s in seconds(site, spec.name).values()]
        assert took == sorted(took) and took[0] > 0
        lines.append(f"| {PATHS[spec.name]} | {DRIVERS[spec.name]} | {' | '.join(map(str, took))} |")
    (ROOT / "build").mkdir(exist_ok=True)
    (ROOT / "build/boot-paths.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def test_a_second_card_is_driven_and_not_booted_by(site: Site) -> None:
    assert cards(site, "n1")["52:54:00:99:01:01"] == "e1000"
    site.head.wait("the card on USB comes", lambda: "cdc" in str(cards(site, "n2").values()), 120)


def test_controllers_and_ipmi_are_there(site: Site) -> None:
    def blocks() -> set[str]:
        return set(site.head.cli("node", "exec", "n0", "--", "ls", "/sys/block", "/dev", check=False).stdout.split())

    wanted = {"nvme0n1", "sda", "sdb", "sdc", "sdd", "sde", "ipmi0"}
    site.head.wait("all disks and /dev/ipmi0 are there", lambda: wanted <= blocks(), 180)


@pytest.mark.parametrize(("node", "module", "driver"), [("n1", "sdhci_pci", "sdhci-pci"), ("n4", "i6300esb", "i6300ESB timer")])
def test_a_device_gets_a_driver_that_the_profile_does_not_have(site: Site, node: str, module: str, driver: str) -> None:
    """On n4 the kernel takes signed modules only."""
    site.head.wait(f"{node} has fetched {module}", lambda: site.fetched(node).get(module), 180)
    (device,) = site.fetched(node)[module]
    place = f"/sys/bus/{device.replace('/', '/devices/')}/driver"
    assert Path(site.says(node, "busybox", "readlink", place).strip()).name == driver
    assert not site.head.history(node, "node.driver-failed")


def test_a_device_that_is_plugged_in_later_gets_one_too(site: Site) -> None:
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(monitor(site.image)))
        line.sendall(b"chardev-add null,id=serial\ndevice_add usb-serial,bus=usb.0,chardev=serial,always-plugged=on\n")
        site.head.wait("n2 has a serial line", lambda: site.fetched("n2").get("ftdi_sio"), 180)
    assert "ttyUSB0" in site.says("n2", "ls", "/dev")


def test_under_secure_boot_all_that_runs_is_signed(site: Site) -> None:
    """The kernel says so: it is locked down, and takes modules with a signature that it trusts only."""
    site.head.wait("n4 serves its API", lambda: site.head.cli("node", "exec", "n4", "--", "uname", check=False).returncode == 0,
                   180)
    locked = "mount -t securityfs none /sys/kernel/security; cat /sys/kernel/security/lockdown; cat /proc/modules"
    said = site.says("n4", "sh", "-c", locked)
    assert "[integrity]" in said and "squashfs" in said
