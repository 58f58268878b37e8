"""Machines as they are sold: their cards, controllers and BMCs, with the general kernel and the
drivers of the profile `server`.

One rack: each machine boots by another card and by another path, SeaBIOS and OVMF in turn: n0 from
a USB stick, n1 and n2 out of the card's own ROM, n3 by the medium that its BMC fetches into its
virtual drive, n4 with Secure Boot and Microsoft's keys, n5 by HTTP Boot, n6 by HTTP Boot of a URI
that its BMC was told, with Secure Boot, n7 by IPv6, n8 is an arm64 machine, by HTTP Boot, n9 and
n10 by a boot program that their firmware fetches by TFTP. n0 has a controller of each kind, IPMI
over KCS, and disks, exports and units that an image mounts; n1 a second card that nothing boots by.
n1 and n4 have devices whose drivers the profile does not have, and n2 gets one while it runs. n8,
n9 and n10 are switched on when the others have joined.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
import yaml

from tests.support.servers import connected

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "vm-testbed"))

from headrun import CACHE, ROOT, HeadRun
from vrack.rack import Rack
from vrack.spec import BmcKind, Firmware, NicRom, VmSpec

from layercake.setup import build_boot
from tests.metal import storage

pytestmark = [pytest.mark.vm, pytest.mark.root]
BOOT_S = 600.0
ARM = "arm64"
"""The boot profile of n8."""

LATER = ("n8", "n9", "n10")
"""What is switched on when the others have joined."""
SETTINGS = {
    "sync": {"hello_s": 2.0, "dead_s": 10.0, "probe_s": 4.0},
    "boot": {"attempts": 3},
    "images": {"privileges": {"storage": ["mounts"]}},
}
HTTP_BOOT_S = 150.0
"""For each step of n8: UEFI gives up HTTP Boot for good when nothing comes for 5 s, as on a busy
machine, and sits in its shell. The boot is tried again soon then."""


def disk(number: int, *device: str) -> tuple[str, ...]:
    """A small disk of zeros on a controller."""
    return (
        "-drive",
        f"if=none,id=d{number},driver=null-co,size=64M,read-zeroes=on",
        *(word.format(disk=f"drive=d{number}") for word in device),
    )


CONTROLLERS = (
    *disk(2, "-device", "megasas,id=raid", "-device", "scsi-hd,bus=raid.0,{disk}"),
    *disk(3, "-device", "virtio-scsi-pci,id=vs", "-device", "scsi-hd,bus=vs.0,{disk}"),
)
SECOND = (
    "-netdev",
    "user,id=net1,restrict=on",
    "-device",
    "e1000,netdev=net1,mac=52:54:00:99:01:01,romfile=",
)
CARD_READER, WATCHDOG = ("-device", "sdhci-pci"), ("-device", "i6300esb")
USB = (
    "-netdev",
    "user,id=net2,restrict=on",
    "-device",
    "qemu-xhci,id=usb",
    "-device",
    "usb-net,bus=usb.0,netdev=net2",
)


def without_pxe(*versions: int) -> tuple[str, ...]:
    """OVMF that does no PXE by these versions of IP: by neither, it is as one that is set to HTTP
    Boot."""
    return tuple(
        word
        for version in versions
        for word in ("-fw_cfg", f"name=opt/org.tianocore/IPv{version}PXESupport,string=n")
    )


def stick(image: Path) -> tuple[str, ...]:
    """A USB stick that the machine boots by before its card, which has no ROM."""
    return (
        "-device",
        "qemu-xhci,id=stick",
        "-drive",
        f"if=none,id=stick0,format=raw,readonly=on,file={image}",
        "-device",
        "usb-storage,bus=stick.0,drive=stick0,bootindex=0",
    )


def monitor(image: Path) -> Path:
    """The socket at which n2 is told to plug something in."""
    return image.with_name("n2.monitor")


def machines(image: Path) -> tuple[VmSpec, ...]:
    """The rack; `image` is that of the stick, and n0's disks lie beside it."""
    hot = (
        "-chardev",
        f"socket,id=hot,path={monitor(image)},server=on,wait=off",
        "-mon",
        "chardev=hot,mode=readline",
    )
    return (
        VmSpec(
            Firmware.BIOS,
            BmcKind.IPMI,
            nic="e1000,romfile=",
            inband=True,
            more=(*stick(image), *CONTROLLERS, *storage.disks(image.parent / "disks")),
        ),
        VmSpec(
            Firmware.UEFI, BmcKind.REDFISH, nic="e1000e,addr=0x10", more=(*SECOND, *CARD_READER)
        ),
        VmSpec(Firmware.BIOS, BmcKind.IPMI, nic="vmxnet3", more=(*USB, *hot)),
        VmSpec(Firmware.UEFI, BmcKind.REDFISH, nic="rtl8139,romfile=", boot="media"),
        VmSpec(
            Firmware.UEFI,
            BmcKind.REDFISH,
            nic_rom=NicRom.FIRMWARE,
            secure_boot=True,
            memory_mib=768,
            more=WATCHDOG,
        ),
        VmSpec(Firmware.UEFI, BmcKind.REDFISH, nic_rom=NicRom.FIRMWARE, more=without_pxe(4, 6)),
        VmSpec(
            Firmware.UEFI,
            BmcKind.REDFISH,
            nic_rom=NicRom.FIRMWARE,
            secure_boot=True,
            memory_mib=768,
            boot="uri",
        ),
        VmSpec(Firmware.UEFI, BmcKind.REDFISH, nic_rom=NicRom.FIRMWARE, more=without_pxe(4)),
        VmSpec(
            Firmware.UEFI,
            BmcKind.REDFISH,
            nic_rom=NicRom.FIRMWARE,
            more=without_pxe(4, 6),
            memory_mib=768,
            arch="aarch64",
            profile=ARM,
        ),
        VmSpec(Firmware.BIOS, BmcKind.IPMI, card_ipxe=False),
        VmSpec(Firmware.UEFI, BmcKind.REDFISH, nic_rom=NicRom.FIRMWARE, more=without_pxe(6)),
    )


DRIVERS = {
    "n0": "e1000",
    "n1": "e1000e",
    "n2": "vmxnet3",
    "n3": "8139cp",
    "n4": "virtio_net",
    "n5": "virtio_net",
    "n6": "virtio_net",
    "n7": "virtio_net",
    "n8": "virtio_net",
    "n9": "virtio_net",
    "n10": "virtio_net",
}
PATHS = {
    "n0": "BIOS, USB stick",
    "n1": "UEFI, iPXE in the card",
    "n2": "BIOS, iPXE in the card",
    "n3": "UEFI, virtual media",
    "n4": "UEFI, Secure Boot",
    "n5": "UEFI, HTTP Boot",
    "n6": "UEFI, Secure Boot, HTTP Boot of a URI",
    "n7": "UEFI, PXE by IPv6",
    "n8": "arm64 UEFI, HTTP Boot (after the others)",
    "n9": "BIOS, PXE (so, too)",
    "n10": "UEFI, PXE (so, too)",
}
PROGRAMS = {
    "n4": ["shimx64.efi", "grubx64.efi"],
    "n5": ["snponly.efi"],
    "n6": ["BOOTX64.EFI", "grubx64.efi"],
    "n7": ["snponly.efi"],
    "n8": ["BOOTAA64.EFI", "grubaa64.efi"],
    "n9": ["undionly.kpxe"],
    "n10": ["snponly.efi"],
}
"""What is sent before the script; an iPXE gets the script at once."""


class Site:
    """The rack with a head over it."""

    def __init__(self, directory: Path) -> None:
        self.image = directory / "stick.img"
        made = subprocess.run(
            [sys.executable, "-m", "layercake.cli.main", "boot-media", str(self.image)],
            cwd=ROOT,
            check=False,
        )
        assert made.returncode == 0 and self.image.is_file()
        self.rack = Rack(directory / "rack", machines(self.image))
        self.head = HeadRun(self.rack, directory / "head", "server")
        self.storage = storage.Storage(directory, self.rack.namespace)
        self.later = "off"

    def inventory(self, images: Sequence[str] = ()) -> str:
        """The rack's, with n0's images."""
        found = yaml.safe_load(self.rack.inventory())
        found["defaults"]["boot_timeout"] = (
            BOOT_S  # TFTP at the pace of an emulated machine, and of a busy one
        )
        found["nodes"]["n0"]["images"] = list(images)
        found["nodes"]["n8"]["boot_timeout"] = HTTP_BOOT_S
        for name in LATER:
            found["nodes"][name]["state"] = self.later
        return str(yaml.safe_dump(found))

    def wants(self, *images: str) -> None:
        """Gives n0 other images at once."""
        body = {
            "yaml": self.inventory(images),
            "file": "rack.yaml",
            "at_once": True,
            "take_back": True,
        }
        self.head.api("POST", "/v1/inventory/apply", body)

    def inside(self, command: str, *, check: bool = True) -> str:
        """What a shell says in the container of n0's image "storage"."""
        return self.head.cli(
            "node", "exec", "n0", "--container", "storage", "--", "sh", "-c", command, check=check
        ).stdout

    def fetched(self, node: str) -> dict[str, list[str]]:
        """{driver that the node has fetched from the head: the devices that it has bound}."""
        told = [
            event["data"]["drivers"] for event in self.head.history(node, "node.drivers-fetched")
        ]
        return {name: devices for drivers in told for name, devices in drivers.items()}

    def serves(self, node: str) -> bool:
        """Whether commands can be run on a node."""
        return self.head.cli("node", "exec", node, "--", "uname", check=False).returncode == 0

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
            build_boot(
                found.head.data,
                CACHE,
                profile=ARM,
                architecture="aarch64",
                kernel="linux-image-cloud-arm64",
                modules=(),
            )
            shutil.copyfile(found.image, found.head.data / "boot-media.img")
            found.head.start()
            found.head.apply(found.inventory())
            found.head.wait_converged(3 * BOOT_S)  # a boot may fail: it is begun anew then
            found.later = "up"
            found.head.apply(found.inventory())  # they boot while the others are looked at
            yield found
        finally:
            found.storage.stop()
            found.head.close()
            found.rack.down()


def cards(site: Site, node: str) -> dict[str, str]:
    """{MAC: driver} of a node's cards, once it has told of them all."""
    site.head.wait(f"{node} tells of its cards", lambda: site.head.nodes()[node]["cards"], 120)
    return {card["mac"]: card["driver"] for card in site.head.nodes()[node]["cards"]}


def test_each_card_boots_by_its_own_driver(site: Site) -> None:
    for spec in site.rack.nodes:
        if spec.name not in LATER:
            booted_by(site, spec)


def booted_by(site: Site, spec: VmSpec) -> None:
    """By its own driver, and by the programs of its path."""
    assert cards(site, spec.name)[spec.mac] == DRIVERS[spec.name]
    wanted = PROGRAMS.get(spec.name, [])

    def programs() -> list[str]:
        return list(
            dict.fromkeys(e["data"]["file"] for e in site.head.history(spec.name, "boot.nbp-sent"))
        )

    site.head.wait(
        f"{spec.name} was sent all of its programs", lambda: len(programs()) >= len(wanted), 120
    )
    assert programs() == wanted, "firmware that is slow may ask again for one"


def test_the_bmcs_were_told_what_to_boot_by(site: Site) -> None:
    """The medium was in for one boot; a URI is the firmware's for one boot."""
    assert [site.rack.machine(n)["last_boot"] for n in (1, 3, 6)] == ["Pxe", "Cd", "UefiHttp"]

    def texts() -> list[str]:
        return [event["text"] for event in site.head.history("n3", "power.medium")]

    # A BMC that does not answer at once is asked again.
    site.head.wait(
        "the medium is out", lambda: "is out of the virtual drive" in " ".join(texts()), 180
    )
    assert sum("fetches the boot medium" in text for text in texts()) == 1


def test_a_second_card_is_driven_and_not_booted_by(site: Site) -> None:
    """n1's first card on the bus is not the one that it boots by."""
    assert cards(site, "n1")["52:54:00:99:01:01"] == "e1000"
    slots = {card["mac"]: card["slot"] for card in site.head.nodes()["n1"]["cards"]}
    assert slots["52:54:00:99:01:01"] < slots[site.rack.nodes[1].mac]
    site.head.wait("the card on USB comes", lambda: "cdc" in str(cards(site, "n2").values()), 120)


def test_controllers_and_ipmi_are_there(site: Site) -> None:
    def blocks() -> set[str]:
        return set(
            site.head.cli(
                "node", "exec", "n0", "--", "ls", "/sys/block", "/dev", check=False
            ).stdout.split()
        )

    wanted = {"nvme0n1", "sda", "sdb", "sdc", "sdd", "sde", "ipmi0"}
    site.head.wait("all disks and /dev/ipmi0 are there", lambda: wanted <= blocks(), 180)


def test_a_bmc_is_set_up_from_inside(site: Site) -> None:
    """n0's BMC gets a user that it does not have, and another router; the head logs in with what it
    was given."""
    changed = yaml.safe_load(site.inventory())
    changed["nodes"]["n0"]["bmc"]["username"] = "operator"
    site.head.api(
        "POST",
        "/v1/inventory/apply",
        {"yaml": yaml.safe_dump(changed), "file": "rack.yaml", "confirm_secrets": True},
    )
    site.head.wait(
        "the BMC refuses it",
        lambda: site.head.cli("power", "status", "n0", check=False).returncode,
        60,
    )
    site.head.cli("power", "setup", "n0", "--prefix", "16", "--gateway", "10.98.0.1", "--yes")
    assert site.head.cli("power", "status", "n0", "--json").stdout.count('"ON"') == 1
    lan = site.rack.node_directory(0) / "bmc/lan"
    assert [(lan / name).read_text() for name in ("subnet_mask", "default_gw_ip_addr")] == [
        "255.255.0.0\n",
        "10.98.0.1\n",
    ]
    assert "gets the password" in site.head.history("n0", "power.set-up")[-1]["text"]


def test_the_kernel_finds_modules_by_itself(site: Site) -> None:
    """It starts modprobe in the initramfs that is below the node's own root."""
    said = site.says(
        "n3",
        "sh",
        "-c",
        "cat /proc/filesystems; echo; mount -t btrfs none /mnt; cat /proc/filesystems",
    ).split("\n\n")
    assert ["btrfs" in part for part in said] == [False, True]


@pytest.mark.parametrize(
    ("node", "module", "driver"),
    [("n1", "sdhci_pci", "sdhci-pci"), ("n4", "i6300esb", "i6300ESB timer")],
)
def test_a_device_gets_a_driver_that_the_profile_does_not_have(
    site: Site, node: str, module: str, driver: str
) -> None:
    """On n4 the kernel takes signed modules only."""
    site.head.wait(f"{node} has fetched {module}", lambda: site.fetched(node).get(module), 180)
    (device,) = site.fetched(node)[module]
    place = f"/sys/bus/{device.replace('/', '/devices/')}/driver"
    assert Path(site.says(node, "busybox", "readlink", place).strip()).name == driver
    assert not site.head.history(node, "node.driver-failed")


def test_a_device_that_is_plugged_in_later_gets_one_too(site: Site) -> None:
    with connected(monitor(site.image)) as line:
        line.sendall(
            b"chardev-add null,id=serial\ndevice_add "
            b"usb-serial,bus=usb.0,chardev=serial,always-plugged=on\n"
        )
        site.head.wait("n2 has a serial line", lambda: site.fetched("n2").get("ftdi_sio"), 180)
    assert "ttyUSB0" in site.says("n2", "ls", "/dev")


def test_under_secure_boot_all_that_runs_is_signed(site: Site) -> None:
    """The kernel says so: it is locked down, and takes modules with a signature that it trusts
    only."""
    locked = (
        "mount -t securityfs none /sys/kernel/security; cat /sys/kernel/security/lockdown; "
        "cat /proc/modules"
    )
    for node in ("n4", "n6"):
        site.head.wait(f"{node} serves its API", partial(site.serves, node), 180)
        said = site.says(node, "sh", "-c", locked)
        assert "[integrity]" in said and "squashfs" in said


@pytest.fixture(scope="module")
def mounted(site: Site) -> Site:
    """n0 runs the image "storage", with all that it mounts."""
    secrets = site.rack.secrets
    assert secrets is not None
    place = secrets.password_file.parent / "images"
    place.mkdir(mode=0o700)
    (place / "array-1").write_text(storage.SECRET)
    (place / "array-1").chmod(0o600)
    site.storage.start()
    site.head.api("POST", "/v1/images", storage.image("storage", storage.mounts()))
    wrong = {"target": "/data", "kind": "nfs", "source": f"{storage.HEAD}:/none"}
    site.head.api("POST", "/v1/images", storage.image("wrong", [wrong]))
    site.wants("storage")
    site.head.wait_converged(300, {"n0"})
    return site


def test_an_image_has_exports_units_and_disks(mounted: Site) -> None:
    site = mounted
    assert site.inside(
        "cat /nfs4/who /nfs3/who /iscsi/who /ahci/who /nvme/who /usb/who"
    ).split() == ["nfs", "nfs", "iscsi", "ahci", "nvme", "usb"]
    site.inside("echo written > /nfs4/new; echo written > /iscsi/new; cat /iscsi/new")
    assert (site.storage.nfs.export / "new").read_text() == "written\n"
    for place in ("nfs3", "ahci", "nvme", "usb"):
        assert "no" in site.inside(f"echo x > /{place}/new && echo yes || echo no", check=False), (
            "read-only"
        )
    node = site.says("n0", "cat", "/proc/mounts", "/run/layercake/objects.json")
    assert (
        "vers=4.2" in node
        and "vers=3" in node
        and "norecovery" in node
        and storage.SECRET not in node
    )
    assert "iqn.2026-11.local.layercake:n0" in site.storage.target.sessions()


def test_a_target_that_comes_back_is_logged_in_to_again(mounted: Site) -> None:
    site = mounted
    site.storage.target.stop()
    site.head.wait("the loss is told", lambda: site.head.history("n0", "image.device-lost"), 120)
    site.storage.target.start()
    site.head.wait("its return is told", lambda: site.head.history("n0", "image.device-back"), 120)
    site.inside("echo again > /iscsi/again; cat /iscsi/again")


def test_an_agent_that_is_killed_loses_none_of_it(mounted: Site) -> None:
    site = mounted
    adopted = len(site.head.history("n0", "image.adopted"))
    site.head.cli(
        "node",
        "exec",
        "n0",
        "--",
        "sh",
        "-c",
        "kill -9 $(cat /run/layercake/agent.pid)",
        check=False,
    )
    site.head.wait(
        "the next agent takes over",
        lambda: len(site.head.history("n0", "image.adopted")) > adopted,
        120,
    )
    site.head.wait("it serves", lambda: "iscsi" in site.inside("cat /iscsi/who", check=False), 120)


def test_a_server_that_hangs_holds_up_nobody_and_nothing_stays(mounted: Site) -> None:
    site = mounted
    site.storage.nfs.hang()
    try:
        late = (
            "node",
            "exec",
            "n0",
            "--container",
            "storage",
            "--timeout",
            "3",
            "--",
            "sh",
            "-c",
            "echo late > /nfs4/late",
        )
        assert site.head.cli(*late, check=False).returncode != 0, "who writes there waits"
        site.wants()
        site.head.wait_converged(300, {"n0"})
        mounts = site.says("n0", "cat", "/proc/mounts")
        assert "/nfs" not in mounts and "/objects/" not in mounts
        assert site.storage.target.sessions() == "", "it is logged out"
        assert '"objects": []' in site.says("n0", "cat", "/run/layercake/objects.json")
    finally:
        site.storage.nfs.go_on()


def test_what_cannot_be_mounted_is_explained(mounted: Site) -> None:
    site = mounted
    site.wants("wrong")

    def explained() -> bool:
        text = site.head.cli("node", "explain", "n0").stdout
        return f"cannot mount nfs {storage.HEAD}:/none: its server has no such export" in " ".join(
            text.split()
        )

    site.head.wait("node explain says why", explained, 120)
    site.wants()
    site.head.wait_converged(300, {"n0"})


def test_an_arm64_machine_joins_with_a_minos_of_its_own(site: Site) -> None:
    """Its set is the newest, and the others have booted theirs."""
    site.head.wait_converged(2 * BOOT_S, {"n8"})
    booted_by(site, site.rack.nodes[8])
    site.head.wait("n8 serves its API", partial(site.serves, "n8"), 180)
    assert (
        site.says("n8", "uname", "-m").strip() == "aarch64"
        and site.says("n0", "uname", "-m").strip() == "x86_64"
    )
    newest, older = site.head.api("GET", "/v1/boot")["sets"]
    assert (newest["architecture"], newest["boot"], newest["run"], newest["default"]) == (
        "aarch64",
        ["n8"],
        ["n8"],
        False,
    )
    assert older["architecture"] == "x86_64" and older["default"] and "n8" not in older["boot"]


@pytest.mark.parametrize("number", [9, 10])
def test_firmware_fetches_its_boot_program_by_tftp(site: Site, number: int) -> None:
    """n9 by SeaBIOS and the PXE of its card, n10 by OVMF's own."""
    site.head.wait_converged(2 * BOOT_S, {f"n{number}"})
    booted_by(site, site.rack.nodes[number])


def test_a_roll_to_a_set_for_other_machines_is_refused(site: Site) -> None:
    arm = next(
        s["name"]
        for s in site.head.api("GET", "/v1/boot")["sets"]
        if s["architecture"] == "aarch64"
    )
    for command in (["boot", "roll", "n0", arm, "--yes"], ["boot", "default", arm, "--yes"]):
        done = site.head.cli(*command, check=False)
        assert done.returncode != 0 and "the boot set is for aarch64" in done.stdout + done.stderr


def seconds(site: Site, node: str) -> dict[str, float]:
    """When a node's steps were done, from its power-on."""
    events = site.head.history(node)
    start = next(
        float(e["at"])
        for e in events
        if e["kind"] == "mutation.done" and e["data"]["mutation"] == "power-on"
    )
    kinds = ("boot.discover-seen", "boot.script-sent", "boot.initrd-sent", "node.joined")
    return {
        kind: max(float(e["at"]) for e in events if e["kind"] == kind) - start for kind in kinds
    }


def test_the_paths_are_a_table(site: Site) -> None:
    """build/boot-paths.md, which docs/explanation/boot.md shows as it was measured."""
    lines = [
        "| Path | Card | DHCPDISCOVER | Script | All sent | Joined |",
        "|---|---|---|---|---|---|",
    ]
    for spec in site.rack.nodes:
        took = [round(s, 1) for s in seconds(site, spec.name).values()]
        assert took == sorted(took) and took[-1] > 0, "firmware may ask before the BMC has said so"
        lines.append(
            f"| {PATHS[spec.name]} | {DRIVERS[spec.name]} | {' | '.join(map(str, took))} |"
        )
    (ROOT / "build").mkdir(exist_ok=True)
    (ROOT / "build/boot-paths.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
