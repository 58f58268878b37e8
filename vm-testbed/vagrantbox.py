"""The box of the Vagrantfile's head where none can be downloaded: a Debian 12 as Vagrant wants one,
made by mmdebstrap and kept.

What Layercake's package needs of Debian is on it already, and the nodes' kernel package: the head
needs no network.

    python vm-testbed/vagrantbox.py      # makes it, and says where it is
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
from pathlib import Path

from cleanroot import KERNELS
from headrun import CACHE

from imageapi.build.tools import run
from layercake.debian.control import depends
from layercake.debian.environment import FROM_DEBIAN
from layercake.kraken.errors import LayercakeError
from minos.build import profiles

ROOT = Path(__file__).resolve().parents[1]
SUITE = "bookworm"
SIZE_GIB = 10
SYSTEM = (
    "linux-image-cloud-amd64",
    "initramfs-tools",
    "systemd-sysv",
    "udev",
    "dbus",
    "openssh-server",
    "sudo",
    "rsync",
    "ifupdown",
    "isc-dhcp-client",
    "ca-certificates",
)
KEY = Path("/usr/share/rubygems-integration/all/gems")
"""Below it is the key that everybody knows, by which Vagrant comes in the first time; it puts
another in its place."""
_EXTLINUX = """default linux
label linux
 linux /vmlinuz
 initrd /initrd.img
 append root=/dev/vda rw net.ifnames=0 console=ttyS0 quiet mitigations=off no_timer_check
"""
_INTERFACES = "auto lo\\niface lo inet loopback\\nauto eth0\\niface eth0 inet dhcp\\n"
_SET_UP = f"""set -e
chroot "$1" useradd -m -s /bin/bash vagrant
echo 'vagrant ALL=(ALL) NOPASSWD:ALL' > "$1/etc/sudoers.d/vagrant"
install -d -m 700 "$1/home/vagrant/.ssh"
cp "$KEY" "$1/home/vagrant/.ssh/authorized_keys"
chroot "$1" chown -R vagrant: /home/vagrant/.ssh
printf '{_INTERFACES}' > "$1/etc/network/interfaces"
echo '/dev/vda / ext4 rw 0 1' > "$1/etc/fstab"
echo box > "$1/etc/hostname"
echo 'UseDNS no' >> "$1/etc/ssh/sshd_config"
echo force-unsafe-io > "$1/etc/dpkg/dpkg.cfg.d/fast"
mkdir -p "$1/boot/extlinux" "$1{KERNELS}"
printf '%s' "$EXTLINUX" > "$1/boot/extlinux/extlinux.conf"
cp "$KERNEL" "$1{KERNELS}"
"""
_SMALL_INITRD = """mkdir -p "$1/etc/initramfs-tools/conf.d"
echo MODULES=list > "$1/etc/initramfs-tools/conf.d/box"
printf 'virtio_pci\\nvirtio_blk\\next4\\n' > "$1/etc/initramfs-tools/modules"
"""
_DISK = """set -e
truncate -s "$2" disk.img
mke2fs -q -F -t ext4 -O ^64bit,^metadata_csum -E lazy_itable_init=1 -d root disk.img   # syslinux 6 reads no other ext4
mkdir mounted
mount -o loop disk.img mounted
trap 'umount mounted' EXIT
extlinux --install mounted/boot/extlinux
umount mounted
trap - EXIT
qemu-img convert -c -O qcow2 disk.img box.img
tar -czf "$1" metadata.json Vagrantfile box.img
"""


def box(cache: Path = CACHE) -> Path:
    """The box, as a file that `vagrant box add` takes. Must run as root; needs Debian's archive
    when there is none yet, or when what is on it has changed. Raises OperationFailed."""
    always, _ = depends((ROOT / "packages.txt").read_text())
    wanted = sorted({*SYSTEM, *always, *FROM_DEBIAN.values()})
    key = next(KEY.glob("vagrant-[0-9]*/keys/vagrant.pub"))
    profile = profiles.KNOWN[profiles.VIRTUAL]
    profiles.fetch(profile, cache)
    kernel = max(
        cache.glob(f"{profile.kernel.replace('image-', 'image-[0-9]*-')}_*.deb"),
        key=lambda path: path.stat().st_mtime,
    )
    content = [
        SUITE,
        *wanted,
        kernel.name,
        _EXTLINUX,
        _SET_UP,
        _SMALL_INITRD,
        _DISK,
        str(SIZE_GIB),
        key.read_text(),
    ]
    made = (
        cache
        / "images"
        / f"vagrant-{SUITE}-{hashlib.sha256(repr(content).encode()).hexdigest()[:12]}.box"
    )
    if made.exists():
        return made
    made.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="layercake-box-") as name:
        scratch = Path(name)
        environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "LC_ALL": "C.UTF-8",
            "KEY": str(key),
            "KERNEL": str(kernel),
            "EXTLINUX": _EXTLINUX,
        }
        run(
            [
                "mmdebstrap",
                "--quiet",
                "--variant=minbase",
                f"--include={','.join(wanted)}",
                f"--essential-hook={_SMALL_INITRD}",
                f"--customize-hook={_SET_UP}",
                SUITE,
                str(scratch / "root"),
            ],
            "make a box for Vagrant",
            "mmdebstrap",
            env=environment,
        )
        (scratch / "metadata.json").write_text(
            json.dumps({"provider": "libvirt", "format": "qcow2", "virtual_size": SIZE_GIB})
        )
        (scratch / "Vagrantfile").write_text('Vagrant.configure("2") { |config| }\n')
        partial = made.with_name(f"partial-{made.name}")
        run(
            ["env", "-C", name, "sh", "-c", _DISK, "-", str(partial), f"{SIZE_GIB}G"],
            "make the box's disk",
            "extlinux",
            env=environment,
        )
        for old in made.parent.glob(f"vagrant-{SUITE}-*.box"):
            old.unlink()
        shutil.move(partial, made)
    return made


def main() -> int:
    """0 if the box is there."""
    try:
        print(box())
    except LayercakeError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
