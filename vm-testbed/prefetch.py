"""Fetches what tests, demo and benchmarks need from Debian's archive, before they run; it is kept
in the cache.

    python vm-testbed/prefetch.py [ITEM...]

prepare.py runs it once for each item, several at once, and tries again what fails."""

from __future__ import annotations

import functools
import platform
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cleanroot import SUITES, base
from headrun import CACHE
from promtool import alertmanager, promtool
from serviceimages import CLOUD_PACKAGES, SLURM_PACKAGES, SSH_PACKAGES, WEB_PACKAGES
from smallimages import PACKAGES, debian_base

from layercake.debian.build import libraries
from layercake.kraken.errors import LayercakeError
from minos.build import profiles, python
from minos.build.debian import debs, disktools, programs, userland

SUITE = "bookworm"
IMAGES = CACHE / "images"
WANTED: dict[str, Callable[[], object]] = {
    "the nodes' kernel": lambda: profiles.fetch(profiles.KNOWN[profiles.VIRTUAL], CACHE),
    "the kernel of servers": lambda: profiles.fetch(profiles.KNOWN[profiles.GENERAL], CACHE),
    "the programs for disks": lambda: disktools.pack(platform.machine(), CACHE, lambda text: None),
    "what arm64 machines have": lambda: arm64(CACHE),
    "the base of the systemd image": lambda: debian_base(IMAGES, "systemd", PACKAGES, SUITE),
    "the base of the web image": lambda: debian_base(IMAGES, "web", WEB_PACKAGES, SUITE),
    "a Debian with cloud-init": lambda: debian_base(IMAGES, "cloud", CLOUD_PACKAGES, SUITE),
    "the base of the SSH image": lambda: debian_base(IMAGES, "ssh", SSH_PACKAGES, SUITE),
    "the base of the Slurm image": lambda: debian_base(IMAGES, "slurm", SLURM_PACKAGES, SUITE),
    "the libraries in Layercake's package": libraries,
    "Prometheus' checker": promtool,
    "Prometheus' Alertmanager": alertmanager,
    **{
        f"a clean Debian {number}": functools.partial(base, IMAGES, suite)
        for number, suite in SUITES.items()
    },
}


def arm64(cache: Path) -> None:
    """Kernel, programs and boot programs of a boot set for arm64."""
    profile = profiles.of("arm64", None, architecture="aarch64", kernel="linux-image-cloud-arm64")
    apt = debs.options(profile.architecture, cache)
    profiles.fetch(profile, cache, apt)
    userland.of(profile.architecture, python.own(), cache, apt)
    programs.fetch(profile.architecture, cache, apt)
    disktools.pack(profile.architecture, cache, lambda text: None)


def main(items: Sequence[str]) -> int:
    """Fetches these items, or all; exit status 0 when they are there."""
    if unknown := [item for item in items if item not in WANTED]:
        print(f"cannot fetch {unknown[0]}: the items are {', '.join(WANTED)}", file=sys.stderr)
        return 2
    for item in items or WANTED:
        print(item, flush=True)
        try:
            WANTED[item]()
        except LayercakeError as error:
            print(f"cannot fetch {item}: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
