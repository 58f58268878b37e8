"""What can be prepared, and for which command: which packages, libraries and steps each needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from installers import (
    KERNEL,
    ROOT,
    debian,
    fetched,
    images_base,
    inotify_instances,
    libraries,
    libvirt_libraries,
    node_modules,
    xterm,
)
from steps import Step

MIB = 1 << 20


@dataclass(frozen=True)
class Target:
    """What a command needs. `title` is what it is called; `lists` are files with names of Debian
    packages, `lock` the file of Python libraries, `more` functions that give further steps.
    `racks`: it starts virtual machines, which need so much `memory` and `disk` in bytes.
    `recommended`: with the packages that a head can do without."""

    title: str
    lists: tuple[str, ...]
    lock: str
    more: tuple[Callable[[], Step], ...] = ()
    racks: bool = False
    root: bool = True
    memory: int = 2600 * MIB
    disk: int = 4000 * MIB
    recommended: bool = True

    @property
    def packages(self) -> list[str]:
        """The Debian packages that it needs."""
        return [
            name
            for file in self.lists
            for name in listed(ROOT / file, recommended=self.recommended)
        ]

    def steps(self) -> list[Step]:
        """All its steps; those whose work is done say so."""
        return [debian(self.packages), libraries(self.lock), *(make() for make in self.more)]


@dataclass(frozen=True)
class Addition:
    """What a target needs besides, for one of its variants; see Target."""

    lists: tuple[str, ...]
    more: tuple[Callable[[], Step], ...] = ()
    memory: int = 0


def listed(file: Path, *, recommended: bool = True) -> list[str]:
    """The names in a list of packages, with those after the line that begins with "# Recommended"
    or without."""
    text = file.read_text()
    if not recommended:
        text = text.partition("# Recommended")[0]
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def for_tests() -> list[Callable[[], Step]]:
    """All that tests and benchmarks fetch, in groups that use different files, and so can be
    fetched side by side; and what they need of the kernel."""
    return [
        lambda: fetched("kernels", KERNEL, "the kernel of servers", weight=25.0),
        lambda: fetched(
            "Debian's programs",
            "the programs for disks",
            "what arm64 machines have",
            "Prometheus' checker",
            "Prometheus' Alertmanager",
            weight=60.0,
        ),
        lambda: fetched(
            "bases of images",
            "the base of the web image",
            "a Debian with cloud-init",
            "the base of the SSH image",
            "the base of the Slurm image",
            weight=120.0,
        ),
        lambda: fetched("clean Debians", "a clean Debian 12", "a clean Debian 13", weight=60.0),
        lambda: fetched("the package's libraries", "the libraries in Layercake's package"),
        inotify_instances,
    ]


_HEAD, _RACK, _CEPH = "packages.txt", "vm-testbed/packages-rack.txt", "vm-testbed/packages-ceph.txt"
_TESTS, _LIBVIRT = "vm-testbed/packages.txt", "vm-testbed/packages-libvirt.txt"
_ALL = (_HEAD, _RACK, _CEPH, _TESTS)
_VAGRANT = "vm-testbed/packages-vagrant.txt"
_DEMO_LOCK, _DEV_LOCK = "requirements-demo.lock", "requirements-dev.lock"

_TESTS_DISK = 9000 * MIB
"""Packages 2 GB, what is kept 5 GB, and racks."""

TARGETS: dict[str, Target] = {
    "sim": Target(
        "a simulation", ("vm-testbed/packages-sim.txt",), "requirements.lock", root=False
    ),
    "demo": Target(
        "the demo",
        (_HEAD, _RACK),
        _DEMO_LOCK,
        (images_base, lambda: fetched(KERNEL, KERNEL)),
        racks=True,
        recommended=False,
    ),
    "vagrant": Target(
        "the Vagrant rack",
        (_HEAD, _RACK, _LIBVIRT, _VAGRANT),
        _DEV_LOCK,
        (libvirt_libraries,),
        racks=True,
        recommended=False,
    ),
    "install": Target("the development environment", _ALL, _DEV_LOCK, (xterm,)),
    "deb": Target("the package", (*_ALL, "vm-testbed/packages-deb.txt"), _DEV_LOCK, (xterm,)),
    "fetch": Target(
        "the benchmarks",
        _ALL,
        _DEV_LOCK,
        (xterm, images_base, *for_tests()),
        racks=True,
        disk=_TESTS_DISK,
    ),
    "test-fast": Target(
        "the tests",
        _ALL,
        _DEV_LOCK,
        (xterm, node_modules, images_base, *for_tests()),
        racks=True,
        disk=_TESTS_DISK,
    ),
    "test": Target(
        "the tests",
        (*_ALL, _LIBVIRT),
        _DEV_LOCK,
        (xterm, node_modules, libvirt_libraries, images_base, *for_tests()),
        racks=True,
        disk=_TESTS_DISK,
    ),
}
"""What can be prepared, by the name that the Makefile has for it."""

ADDITIONS: dict[str, Addition] = {
    "rbd": Addition((_CEPH,), memory=600 * MIB),
    "libvirt": Addition((_LIBVIRT,), (libvirt_libraries,)),
    "discovery": Addition(
        (_TESTS,),
        (
            lambda: fetched(
                "the machines' own",
                "the base of the SSH image",
                "the programs for disks",
                weight=40.0,
            ),
        ),
        memory=1000 * MIB,
    ),
    "check": Addition(("vm-testbed/packages-check.txt",)),
    "pcap": Addition(("vm-testbed/packages-pcap.txt",)),
    "heads": Addition(("vm-testbed/packages-heads.txt",), memory=300 * MIB),
}
"""What the variables of `make demo` and `make deb` add."""


def target(words: str) -> Target:
    """One of TARGETS, with additions after it: demo+rbd+pcap. Raises KeyError for a word that is
    none."""
    name, *more = words.split("+")
    found = TARGETS[name]
    for addition in (ADDITIONS[word] for word in more):
        found = replace(
            found,
            lists=(*found.lists, *addition.lists),
            more=(*found.more, *addition.more),
            memory=found.memory + addition.memory,
        )
    return found
