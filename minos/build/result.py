"""What a build makes: the names of its files, their sizes, and the table of these for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from layercake.base.text import count_of
from minos.build import tree
from minos.build.debian import disktools
from minos.build.profiles import Profile

LIMIT = 10 * 1000 * 1000
"""The aim for minos.img, in bytes."""
VMLINUZ = "vmlinuz"
IMAGE = "minos.img"
HARDWARE = "hardware.img"
CARDS = "cards.json"
MODULES = tree.MODULES
DISKTOOLS = disktools.DISKTOOLS
BESIDE = (HARDWARE, MODULES, DISKTOOLS)
"""The parts that are files of their own, beside minos.img."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part's size in bytes: as files, and as it ships."""

    raw: int
    packed: int


@dataclass(frozen=True, slots=True)
class BuildResult:
    """What was built. `initramfs_bytes` is minos.img, `hardware_bytes` hardware.img (0: the profile
    needs none); `authorities` marks whom it trusts; `missing` are firmware files that nobody had,
    with the modules that may ask for them."""

    vmlinuz: Path
    image: Path
    kernel_release: str
    initramfs_bytes: int
    kernel_bytes: int
    parts: Mapping[str, Part]
    compression: str
    profile: Profile
    authorities: str = ""
    hardware_bytes: int = 0
    modules: tuple[str, ...] = field(default=())
    missing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    python: str = ""

    def to_json(self) -> dict[str, object]:
        """The content of minos.json."""
        return {
            "initramfs_bytes": self.initramfs_bytes,
            "kernel_bytes": self.kernel_bytes,
            "kernel_release": self.kernel_release,
            "compression": self.compression,
            "authorities": self.authorities,
            "profile": self.profile.to_json(),
            "hardware_bytes": self.hardware_bytes,
            "modules": list(self.modules),
            "firmware_missing": {name: list(users) for name, users in self.missing.items()},
            "python": self.python,
            "parts": {
                name: {"bytes": part.packed, "unpacked": part.raw}
                for name, part in self.parts.items()
            },
        }


def table(result: BuildResult) -> str:
    """What takes the space, for people."""
    lines = [f"{'part':<14}{'unpacked':>12}{'packed':>12}"]
    lines += [
        f"{name:<14}{part.raw:>12,}{part.packed:>12,}"
        for name, part in sorted(result.parts.items(), key=lambda item: -item[1].packed)
    ]
    raw = sum(part.raw for name, part in result.parts.items() if name not in BESIDE)
    lines += [
        f"{'minos.img':<14}{raw:>12,}{result.initramfs_bytes:>12,}",
        f"{'vmlinuz':<14}{'':>12}{result.kernel_bytes:>12,}",
    ]
    if result.initramfs_bytes > LIMIT:
        lines.append(f"minos.img is over the aim of {LIMIT:,} bytes")
    lacking = Counter(user for users in result.missing.values() for user in users)
    lines += [
        f"{user} may ask for {count_of(count, 'firmware file')} not found here"
        for user, count in sorted(lacking.items())
    ]
    return "\n".join(lines)
