"""Boot profiles: which kernel a kind of machine boots, and which of its modules and firmware it
gets.

A profile is a recipe; what is built by it is a boot set (minos.build.sets), which keeps the recipe,
so that it can be built again.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from layercake.base.text import nearest
from layercake.kraken.errors import InputError
from minos.build import kernel
from minos.build.debian import debs
from minos.build.kernel import Kernel

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}", re.ASCII)
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9.+-]+", re.ASCII)

HOSTS = ("xhci_pci", "ehci_pci", "ohci_pci", "uhci_hcd")
SETS: Mapping[str, tuple[str, ...]] = {
    "server-nics": (
        "e1000",
        "e1000e",
        "igb",
        "igbvf",
        "igc",
        "ixgbe",
        "ixgbevf",
        "i40e",
        "iavf",
        "ice",
        "bnxt_en",
        "bnx2",
        "bnx2x",
        "tg3",
        "mlx4_en",
        "mlx5_core",
        "qede",
        "qlcnic",
        "netxen_nic",
        "sfc",
        "be2net",
        "enic",
        "cxgb4",
        "atlantic",
        "liquidio",
        "nfp",
        "myri10ge",
        "r8169",
        "8139cp",
        "8139too",
        "tulip",
        "e100",
        "pcnet32",
        "ne2k_pci",
        "vmxnet3",
        "virtio_net",
        "virtio_pci",
        "hv_netvsc",
        "ena",
        "gve",
        "hinic",
        "ionic",
        "realtek",
        "broadcom",
        "marvell",
        "af_packet",
        *HOSTS,
        "cdc_ether",
        "cdc_ncm",
        "cdc_subset",
        "rndis_host",
        "asix",
        "ax88179_178a",
        "r8152",
        "smsc75xx",
        "smsc95xx",
    ),
    "storage": (
        "ahci",
        "ata_piix",
        "nvme",
        "megaraid_sas",
        "mpt3sas",
        "mptsas",
        "mptspi",
        "hpsa",
        "smartpqi",
        "aacraid",
        "sym53c8xx",
        "virtio_blk",
        "virtio_scsi",
        "vmw_pvscsi",
        "am53c974",
        "sd_mod",
        "sr_mod",
        "ext4",
        "xfs",
        "btrfs",
        "vfat",
        "isofs",
        "nls_cp437",
        "nls_ascii",
        "nls_utf8",
        "dm_mod",
        "dm_crypt",
        "raid0",
        "raid1",
        "raid10",
        "raid456",
        "iscsi_tcp",
        "qla2xxx",
        "lpfc",
        "nfsv4",
        "nfsv3",
        "zram",
        "crc32c_generic",
        "crc32c_intel",
    ),
    "infiniband": (
        "mlx4_ib",
        "mlx5_ib",
        "ib_ipoib",
        "ib_uverbs",
        "ib_umad",
        "rdma_ucm",
        "ib_srp",
        "ib_iser",
        "irdma",
        "qedr",
        "hfi1",
        "ocrdma",
        "rdma_rxe",
    ),
    "ipmi": (
        "ipmi_si",
        "ipmi_devintf",
        "ipmi_ssif",
        "ipmi_watchdog",
        "ipmi_poweroff",
        "i2c_i801",
        "i2c_piix4",
    ),
    "sensors": ("coretemp", "k10temp", "x86_pkg_temp_thermal", "acpi_cpufreq", "cpufreq_powersave"),
    "usb": (*HOSTS, "usb_storage", "uas", "usbhid", "hid_generic"),
    "misc": (
        "bonding",
        "8021q",
        "macvlan",
        "vxlan",
        "wireguard",
        "iTCO_wdt",
        "i6300esb",
        "softdog",
        "fuse",
    ),
}
"""The module sets, by the names that a profile names them by. What a kernel does not have of a set
is left out."""

NETWORK = "server-nics"
"""The set that is looked through first, and until the card is there that the node booted by."""

BASE = ("virtio_pci", "virtio_net", "overlay", "squashfs", "loop")
"""What every node has in minOS itself: the virtual network card, and the three that images are made
of."""

LATER: Mapping[str, tuple[str, ...]] = {
    "rbd": ("rbd",),
    "verity": ("dm_verity",),
    "nbd": ("nbd",),
    "survey": ("af_packet",),
}
"""What only some images need, by the group that imageapi.node.modules loads when the first such
image comes; and what the survey of the hardware needs to hear switches
(minos.survey.neighbours)."""


def _package(architecture: str, flavour: str = "") -> str:
    """Debian's kernel for an architecture."""
    return f"linux-image-{flavour}{debs.NAMES.get(architecture, architecture)}"


@dataclass(frozen=True, slots=True)
class Profile:
    """A recipe, for machines of one `architecture`, as `uname -m` calls it. `kernel` is a Debian
    package, or the path of an image whose modules are in the directory `kernel_modules`. `modules`
    are names of SETS and of modules. `firmware` are Debian packages, and directories laid out as
    /lib/firmware: what the modules may ask for is taken out of them. Without `disktools` the nodes
    have no programs for disks, so nothing can be done with theirs (`disks` in the inventory)."""

    name: str
    kernel: str = _package(platform.machine())
    kernel_modules: str = ""
    modules: tuple[str, ...] = ()
    firmware: tuple[str, ...] = ()
    architecture: str = platform.machine()
    disktools: bool = True

    def check(self) -> Profile:
        """Itself. Raises InputError for what cannot be a profile."""
        if not NAME.fullmatch(self.name):
            raise InputError(
                f"cannot use profile name {self.name[:64]!r}: a to z, 0 to 9 and - are allowed, 32 "
                "at most"
            )
        debs.name(self.architecture)
        if bool(self.kernel_modules) != self.kernel.startswith("/"):
            raise InputError(
                f"cannot use kernel {self.kernel}: the path of a kernel and the directory of its "
                "modules go together",
                hint="say --kernel /boot/vmlinuz-RELEASE --kernel-modules /lib/modules/RELEASE, or "
                "name a package",
            )
        for item in (self.kernel, *self.firmware):
            if not item.startswith("/") and not _PACKAGE.fullmatch(item):
                raise InputError(
                    f"cannot use {item[:80]!r}: it is neither a path from / on nor the name of a "
                    "Debian package"
                )
        return self

    def to_json(self) -> dict[str, Any]:
        """As it is kept in the boot sets that were built by it."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: object) -> Profile | None:
        """What `to_json` wrote; None for anything else, as in the sets of an older Layercake."""
        try:
            return msgspec.convert(data, cls)
        except msgspec.ValidationError:
            return None


GENERAL = "server"
VIRTUAL = "virtual"
KNOWN: Mapping[str, Profile] = {
    p.name: p
    for p in (
        Profile(GENERAL, modules=(NETWORK, "storage", "ipmi", "sensors", "usb")),
        Profile(VIRTUAL, _package(platform.machine(), "cloud-")),
    )
}
"""The profiles that need no telling: machines as they are sold, and virtual machines of KVM."""


def of(name: str, known: Profile | None, **changes: Any) -> Profile:
    """The recipe to build a profile by: what it was built by before, or one of KNOWN, with what is
    changed now (None changes nothing). A profile that was built stays one for its architecture:
    what boots a node by it must be of one kind. Raises InputError."""
    profile = known or KNOWN.get(name) or Profile(name, modules=KNOWN[GENERAL].modules)
    architecture = changes.get("architecture") or profile.architecture
    if known is not None and architecture != known.architecture:
        raise InputError(
            f"cannot build profile {name} for {architecture}: its boot sets are for "
            f"{known.architecture}",
            hint="give the profile for other machines another name",
        )
    if architecture != profile.architecture:
        profile = replace(
            profile, kernel=_package(architecture, "cloud-" if name == VIRTUAL else "")
        )
    return replace(profile, **{k: v for k, v in changes.items() if v is not None}).check()


def fetch(profile: Profile, cache: Path, apt: Sequence[str] | None = None) -> Kernel:
    """The kernel of a profile. `apt` are options that are known already (debs.options). Raises
    InputError, OperationFailed."""
    architecture = profile.architecture
    if profile.kernel_modules:
        return kernel.of_files(Path(profile.kernel), Path(profile.kernel_modules), architecture)
    apt = debs.options(architecture, cache) if apt is None else apt
    return kernel.unpack(
        kernel.fetch(profile.kernel, debs.place(architecture, cache), apt), architecture
    )


def modules(found: Kernel, words: Iterable[str]) -> tuple[str, ...]:
    """The names that sets and names stand for, in the order to load them in, without those of minOS
    itself. Raises InputError for a name that the kernel does not have."""
    names: list[str] = []
    for module in words:
        if module in SETS:
            names += (name for name in SETS[module] if kernel.plain(name) in found.index)
        elif kernel.plain(module) in found.index or kernel.plain(module) in found.builtin:
            names.append(module)
        else:
            raise InputError(
                f"cannot add module {module}: kernel {found.release} does not have it, and no set "
                "is "
                "named so",
                hint=nearest(module, {*SETS, *found.index}),
            )
    mine = set(kernel.order(found, BASE))
    return tuple(name for name in kernel.order(found, names) if name not in mine)


def firmware(profile: Profile, cache: Path) -> tuple[Path, ...]:
    """The directories that firmware is looked for in: those of the profile, packages unpacked, then
    this machine's own. Raises InputError, OperationFailed."""
    places = []
    for item in profile.firmware:
        root = Path(item)
        if not item.startswith("/"):
            tree = kernel.opened(kernel.download(item, cache))
            root = next(
                (
                    tree / place
                    for place in ("lib/firmware", "usr/lib/firmware")
                    if (tree / place).is_dir()
                ),
                tree,
            )
        if not root.is_dir():
            raise InputError(f"cannot use firmware {item}: there is no such directory")
        places.append(root)
    return (*places, Path("/lib/firmware"))
