"""Makes a layout on its disks, and brings up one that was made: partitions, RAID, LUKS, volume
group, file systems.

One disk has a partition for each volume. Several disks have one partition each; over them comes the
RAID, if there is one, over that LUKS, and a volume group where there are several volumes, or
several devices for one.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from layercake.base.text import lines_of_proc, of_mountinfo
from layercake.kraken.errors import OperationFailed
from minos.agent.disks import scan
from minos.agent.disks.layout import NEW, Layout, Volume
from minos.agent.disks.scan import Disk
from minos.agent.disks.tools import Tools

MIB = 1 << 20
SETTLE_S = 20.0
FIRST_MD = 100
_MODULES = {"0": "raid0", "1": "raid1", "10": "raid10"}
_CRYPT = ("dm_crypt", "xts", "aes_generic", "aesni_intel", "algif_skcipher")
"""dm_crypt, and what its kernel asks for by names that no depmod table on the node has; some have
it built in."""


@dataclass(frozen=True, slots=True)
class Means:
    """With what it is done: `tools`, `need` loads a kernel module, `key` gives a layout's key,
    `mount` mounts (device, directory, type, options), `unmount` takes a mount down. `node` is the
    node's id."""

    tools: Tools
    need: Callable[[str], None]
    key: Callable[[Layout], bytes]
    mount: Callable[[str, Path, str, str], None]
    unmount: Callable[[Path], bool]
    node: str
    sys: Path = Path("/sys")


class Stack:
    """One layout over its disks; `number` tells layouts of a node apart. All of it raises
    LayercakeError."""

    def __init__(self, layout: Layout, disks: Sequence[Disk], number: int, means: Means) -> None:
        self._layout = layout
        self._disks = list(disks)
        self._number = number
        self._means = means
        self._tools = means.tools
        self._volumes = sorted(layout.volumes, key=lambda volume: volume.size == 0)
        self._single = len(disks) == 1 and not layout.raid and layout.count == 1
        self._group = f"lc_{layout.name}"

    # ---- new
    # -----

    def make(self) -> None:
        """Makes it anew. What was on the disks is gone then."""
        self._load()
        for disk in self._disks:
            clear(disk.name, self._means)
        mark = self._layout.mark(self._means.node, NEW)
        # It takes old signatures away, too: on the disk, and where partitions begin and end.
        self._of_each(
            lambda disk: self._tools.run(
                "sfdisk",
                "--quiet",
                "--wipe",
                "always",
                "--wipe-partitions",
                "always",
                f"/dev/{disk.name}",
                given=self._table(disk, mark).encode(),
            )
        )
        devices = self._settled(mark)
        for volume, device in zip(self._volumes, self._over(devices, new=True), strict=True):
            self._format(volume, device)
        self._of_each(self._name)

    def _name(self, disk: Disk) -> None:
        """Its partitions get the names of what is whole. The kernel is not told: before that sfdisk
        waits a quarter of a second, and names are read from the disk."""
        final = self._layout.mark(self._means.node)
        for number in range(1, (len(self._volumes) if self._single else 1) + 1):
            self._tools.run(
                "sfdisk",
                "--quiet",
                "--no-reread",
                "--no-tell-kernel",
                "--part-label",
                f"/dev/{disk.name}",
                str(number),
                final,
            )

    def _of_each(self, work: Callable[[Disk], object]) -> None:
        """Does it to all disks at once. Raises what one has failed with, when all have ended."""
        failed: list[Exception] = []

        def one(disk: Disk) -> None:
            try:
                work(disk)
            except Exception as error:  # noqa: BLE001 (raised below)
                failed.append(error)

        self._tools.root()
        threads = [threading.Thread(target=one, args=(disk,)) for disk in self._disks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]

    def _table(self, disk: Disk, mark: str) -> str:
        """sfdisk's script (sfdisk(8))."""
        if not self._single:
            kind = "raid" if self._layout.raid else "lvm"
            return f'label: gpt\ntype={kind}, name="{mark}"\n'
        need = sum(volume.size for volume in self._volumes)
        if need > disk.size - 3 * MIB:
            raise OperationFailed(
                f"cannot make layout {self._layout.name}: its volumes have {need >> 20} MiB, disk "
                f"{disk.shown} "
                f"has {disk.size >> 20}"
            )
        rows = [
            (f"size={volume.size // MIB}MiB, " if volume.size else "")
            + f'type={"swap" if volume.type == "swap" else "linux"}, name="{mark}"'
            for volume in self._volumes
        ]
        return "label: gpt\n" + "\n".join(rows) + "\n"

    def _seen_anew(self, disk: scan.Disk) -> scan.Disk:
        """A disk with the partitions that the kernel sees now."""
        return replace(disk, partitions=scan.partitions(self._means.sys / "block" / disk.name))

    def _settled(self, mark: str) -> list[str]:
        """The partitions, once the kernel has them all."""
        wanted = len(self._volumes) if self._single else 1
        deadline = time.monotonic() + SETTLE_S

        def are_there(parts: tuple[scan.Partition, ...]) -> bool:
            return len(parts) == wanted and all(
                part.label == mark and Path(f"/dev/{part.name}").exists() for part in parts
            )

        while True:
            seen = list(map(self._seen_anew, self._disks))
            if all(are_there(disk.partitions) for disk in seen):
                self._disks = seen
                return [f"/dev/{part.name}" for disk in seen for part in disk.partitions]
            if time.monotonic() > deadline:
                disks = ", ".join(disk.shown for disk in self._disks)
                raise OperationFailed(
                    f"cannot make layout {self._layout.name}: the kernel does not see its "
                    f"partitions on {disks}"
                )
            time.sleep(0.05)

    def _format(self, volume: Volume, device: str) -> None:
        label = volume.label or volume.name
        if volume.type == "swap":
            self._tools.run("mkswap", "-q", "-L", label, device)
        elif volume.type == "xfs":
            self._tools.run("mkfs.xfs", "-q", "-f", "-L", label, device)
        else:
            self._tools.run("mke2fs", "-q", "-F", "-t", "ext4", "-L", label, device)

    # ---- from the partitions to the volumes
    # --------------------------------------------------------------------------------

    def _over(self, devices: list[str], *, new: bool) -> list[str]:
        """The devices of the volumes, over partitions."""
        layout = self._layout
        base = [self._raid(devices, new=new)] if layout.raid else devices
        if layout.encrypt:
            key = self._means.key(layout)
            base = [self._crypt(device, at, key, new=new) for at, device in enumerate(base)]
        if self._single or (len(base) == 1 and len(self._volumes) == 1):
            return base
        return self._lvm(base, new=new)

    def _raid(self, devices: list[str], *, new: bool) -> str:
        md = f"/dev/md{FIRST_MD + self._number}"
        if new:
            self._tools.run(
                "mdadm",
                "--create",
                md,
                "--run",
                "--quiet",
                "--metadata=1.2",
                "--homehost=any",
                f"--name=lc-{self._layout.name}",
                f"--level={self._layout.raid}",
                f"--raid-devices={len(devices)}",
                *devices,
            )
        elif not (self._means.sys / "block" / Path(md).name / "md").exists():
            self._tools.run("mdadm", "--assemble", "--run", "--quiet", md, *devices)
        return md

    def _crypt(self, device: str, at: int, key: bytes, *, new: bool) -> str:
        name = f"lc-{self._layout.name}-{at}"
        if new:  # the key is as long as the cipher's: there is nothing to be made slow to guess
            self._tools.run(
                "cryptsetup",
                "luksFormat",
                "--batch-mode",
                "--type",
                "luks2",
                "--key-size",
                "512",
                "--pbkdf",
                "pbkdf2",
                "--pbkdf-force-iterations",
                "1000",
                "--key-file",
                "-",
                device,
                given=key,
            )
        if not Path(f"/dev/mapper/{name}").exists():
            self._tools.run(
                "cryptsetup",
                "open",
                "--type",
                "luks2",
                "--disable-keyring",
                "--key-file",
                "-",
                device,
                name,
                given=key,
            )
        return f"/dev/mapper/{name}"

    def _lvm(self, devices: list[str], *, new: bool) -> list[str]:
        if new:
            self._tools.lvm("pvcreate", "-q", "-ff", "-y", *devices)
            self._tools.lvm("vgcreate", "-q", self._group, *devices)
            for volume in self._volumes:
                extent = ("-L", f"{volume.size // MIB}m") if volume.size else ("-l", "100%FREE")
                self._tools.lvm(
                    "lvcreate", "-q", "-y", "-W", "y", "-n", volume.name, *extent, self._group
                )
        else:
            self._tools.lvm("vgchange", "-q", "-a", "y", self._group)
        return [f"/dev/mapper/{self._group}-{volume.name}" for volume in self._volumes]

    # ---- up
    # -----

    def up(self, spare: Sequence[Disk] = ()) -> None:
        """Brings up what was made: assembled, opened, looked over, mounted. Doing it again does
        nothing. `spare` disks take the places of members that are gone."""
        self._load()
        devices = [f"/dev/{part.name}" for disk in self._disks for part in disk.partitions]
        for volume, device in zip(self._volumes, self._over(devices, new=False), strict=True):
            self._show(volume, device)
        for disk in spare:
            self._join(disk)

    def down(self) -> None:
        """Takes down all that is made of its disks."""
        for disk in self._disks:
            clear(disk.name, self._means)

    def _join(self, disk: Disk) -> None:
        """A blank disk becomes a member of a RAID that lacks one."""
        mark = self._layout.mark(self._means.node)
        self._tools.run(
            "sfdisk",
            "--quiet",
            "--wipe",
            "always",
            f"/dev/{disk.name}",
            given=self._table(disk, mark).encode(),
        )
        others = self._disks
        self._disks = [disk]
        (part,) = self._settled(mark)
        self._disks = [*others, *self._disks]
        self._tools.run("mdadm", "--manage", f"/dev/md{FIRST_MD + self._number}", "--add", part)

    def _show(self, volume: Volume, device: str) -> None:
        """Mounts a volume, or swaps to it."""
        if volume.type == "swap":
            if Path(device).stat().st_rdev not in swaps():
                self._tools.run("swapon", device)
            return
        where = Path(volume.mount or f"/kept/{self._layout.name}")
        if not os.path.ismount(where):
            if volume.type == "ext4" and self._layout.kept:
                self._tools.run("e2fsck", "-p", device, well=(0, 1))
            try:
                where.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise OperationFailed(f"cannot make {where}: {error.strerror}") from None
            self._means.mount(device, where, volume.type, volume.options)
            if volume.mode:
                where.chmod(int(volume.mode, 8))

    def _load(self) -> None:
        """The kernel's modules for it."""
        layout = self._layout
        for kind in {v.type for v in layout.volumes} - {"swap"}:
            self._means.need(kind)
        if layout.raid:
            self._means.need(_MODULES[layout.raid])
        if layout.encrypt or not self._single:
            self._means.need("dm_mod")
        for name in _CRYPT if layout.encrypt else ():
            with (
                contextlib.suppress(OperationFailed)
                if name != "dm_crypt"
                else contextlib.nullcontext()
            ):
                self._means.need(name)


def swaps(table: Path = Path("/proc/swaps")) -> set[int]:
    """The numbers of the devices that are swapped to: one device may have several names."""
    devices = set()
    for line in lines_of_proc(table)[1:]:
        with contextlib.suppress(OSError):  # a file on something that is not seen from here
            devices.add(Path(line.split()[0]).stat().st_rdev)
    return devices


def clear(name: str, means: Means) -> None:
    """Takes down all that is made of a disk: mounts, swaps, and devices over it. Raises
    LayercakeError."""
    above = scan.holders(name, means.sys)
    owned = scan.numbers((name, *above), means.sys)
    for line in reversed(lines_of_proc("/proc/self/mountinfo")):
        fields = line.split(" ")
        if fields[2] in owned:
            means.unmount(Path(of_mountinfo(fields[4])))
    for number in swaps():
        if (
            device := f"{os.major(number)}:{os.minor(number)}"
        ) in owned:  # by the kernel's name: it is another one in its /proc
            means.tools.run("swapoff", f"/dev/{(means.sys / 'dev/block' / device).resolve().name}")
    for one in above:
        if one.startswith("md"):
            means.tools.run("mdadm", "--stop", "--quiet", f"/dev/{one}")
        elif one.startswith("dm-"):
            dm = (means.sys / "class/block" / one / "dm/name").read_text().strip()
            means.tools.run("dmsetup", "remove", "--retry", dm)
