"""The OCI runtime configuration of an image's container: pure, from facts to a dictionary.

A container belongs to a tenant, the node does not. Its own are the namespaces that its description
names: by default mount, pid, ipc, uts and cgroup; the network is the node's. It has the
capabilities of privileges.LEAST and those that it declares. What of /proc and /sys speaks of the
node or steers it is hidden or read-only, unless it declares SYS_ADMIN
without a user namespace. Limits are set only where the description asks for them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from imageapi.node import idmap
from imageapi.spec.container import ContainerSpec, Resources
from imageapi.spec.privileges import (
    ALL,
    CAPABILITIES,
    HIDDEN,
    OWNS_NODE,
    READ_ONLY,
    granted,
    system_calls,
)
from layercake.kraken.errors import OperationFailed

SYSTEMD_COMMAND = ("/sbin/init", "systemd.show_status=0")
PLAIN_COMMAND = ("/init",)
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def capabilities(effective: int, declared: tuple[str, ...]) -> list[str]:
    """What a container that declares these gets from an agent with a mask (CapEff of proc(5)).
    Raises OperationFailed."""
    has = [name for number, name in enumerate(CAPABILITIES) if effective >> number & 1]
    for name in declared:
        if name != ALL and name not in has:
            raise OperationFailed(
                f"cannot give a container the capability {name}: the agent itself does not have it"
            )
    allowed = granted(declared)
    return [f"CAP_{name}" for name in has if name in allowed]


def _mount(destination: str, kind: str, *options: str, source: str = "") -> dict[str, Any]:
    return {
        "destination": destination,
        "type": kind,
        "source": source or kind,
        "options": list(options),
    }


def mounts(spec: ContainerSpec, console: str, owns: bool) -> list[dict[str, Any]]:
    """The container's mounts. systemd wants /run and /tmp as tmpfs and a console. A cgroup of its
    own is writable: the limits of that group itself are not, by `nsdelegate` of minOS (cgroups(7)).
    `owns` leaves /sys writable."""
    access = "rw" if owns else "ro"
    groups = "rw" if "cgroup" in spec.namespaces else access
    mounts = [
        _mount("/proc", "proc"),
        _mount("/dev", "tmpfs", "nosuid", "strictatime", "mode=755", "size=65536k"),
        _mount(
            "/dev/pts",
            "devpts",
            "nosuid",
            "noexec",
            "newinstance",
            "ptmxmode=0666",
            "mode=0620",
            "gid=5",
        ),
        # Inside the container.
        _mount("/dev/shm", "tmpfs", "nosuid", "nodev", "mode=1777", source="shm"),  # noqa: S108
        _mount("/dev/mqueue", "mqueue", "nosuid", "noexec", "nodev"),
        _mount("/sys", "sysfs", "nosuid", "noexec", "nodev", access),
        _mount("/sys/fs/cgroup", "cgroup", "nosuid", "noexec", "nodev", "relatime", groups),
    ]
    if spec.systemd:
        mounts += [
            _mount("/run", "tmpfs", "nosuid", "nodev", "mode=755"),
            _mount(
                "/run/lock", "tmpfs", "nosuid", "nodev", "noexec", "mode=1777", "size=5m"
            ),  # Debian's ends without it
            # Inside the container.
            _mount("/tmp", "tmpfs", "nosuid", "nodev", "mode=1777"),  # noqa: S108
        ]
    if console:
        mounts.append(_mount("/dev/console", "bind", "bind", "rw", source=console))
    return mounts


@dataclass(frozen=True, slots=True)
class Device:
    """A device node as it stands on the node. `kind` is "c" or "b"."""

    path: str
    kind: str
    major: int
    minor: int
    mode: int
    uid: int
    gid: int

    def to_oci(self) -> dict[str, Any]:
        """Its entry in config.json."""
        return {
            "path": self.path,
            "type": self.kind,
            "major": self.major,
            "minor": self.minor,
            "fileMode": self.mode,
            "uid": self.uid,
            "gid": self.gid,
        }


@dataclass(frozen=True, slots=True)
class Bind:
    """A mount of the node that the container sees. No device and no set-user-ID program in it is
    one, also below it: whoever can write there from elsewhere would have made it."""

    source: str
    target: str
    readonly: bool = False

    @property
    def options(self) -> tuple[str, ...]:
        """As OCI has them."""
        access = "ro" if self.readonly else "rw"
        below = ("rnosuid", "rnodev", *(["rro"] if self.readonly else ())) if _RECURSES else ()
        return ("rbind", "rslave", "nosuid", "nodev", access, *below)


_RECURSES = tuple(int(word) for word in re.findall(r"\d+", os.uname().release)[:2]) >= (5, 12)
"""Whether the kernel changes mounts with all that are below them (mount_setattr(2))."""
CPU_PERIOD = 100_000
"""Microseconds over which processor time is counted."""

HOOK_TIMEOUT = 30
"""Seconds."""


_DEVICES = (
    ("c", 1, 3, "rwm"),  # null
    ("c", 1, 5, "rwm"),  # zero
    ("c", 1, 7, "rwm"),  # full
    ("c", 1, 8, "rwm"),  # random
    ("c", 1, 9, "rwm"),  # urandom
    ("c", 5, 0, "rwm"),  # tty
    ("c", 5, 1, "rwm"),  # console
    ("c", 5, 2, "rwm"),  # ptmx
    ("c", 136, None, "rwm"),  # pts
    ("c", None, None, "m"),
    ("b", None, None, "m"),
)
"""What every container may open: (kind, major, minor, access). Any may be made ("m"), as packages
do that bring some; one that is made is not opened."""


def _device_rules(devices: Iterable[Device]) -> list[dict[str, Any]]:
    """The list of devices that a container may open, of which all others are refused, however their
    nodes came to be there (cgroup)."""
    own = [(one.kind, one.major, one.minor, "rwm") for one in devices]
    rules: list[dict[str, Any]] = [{"allow": False, "access": "rwm"}]
    for kind, major, minor, access in (*_DEVICES, *own):
        numbers = {"major": major, "minor": minor}
        known = {name: number for name, number in numbers.items() if number is not None}
        rules.append({"allow": True, "type": kind, **known, "access": access})
    return rules


_LISTING = ("SYS_ADMIN", "SYS_RESOURCE")
"""What an agent needs to bind a container to a list of devices (BPF_PROG_LOAD, RLIMIT_MEMLOCK).
That of minOS has it; one that itself runs in a container may not."""


def resources(limits: Resources, devices: Iterable[Device], *, lists: bool) -> dict[str, Any]:
    """The limits as OCI has them, and, if it `lists` them, which devices may be opened."""
    limited: dict[str, Any] = {"devices": _device_rules(devices)} if lists else {}
    if limits.memory:
        limited["memory"] = {"limit": limits.memory}
    if limits.cpus:
        limited["cpu"] = {"quota": max(1000, int(limits.cpus * CPU_PERIOD)), "period": CPU_PERIOD}
    if limits.pids:
        limited["pids"] = {"limit": limits.pids}
    return limited


def environment(spec: ContainerSpec) -> list[str]:
    """The environment of the container's processes, as NAME=VALUE."""
    env = {"PATH": PATH, "container": "crun", "TERM": "dumb"} | dict(spec.env)
    return [f"{key}={value}" for key, value in sorted(env.items())]


_HOOK = ("sh", "-c", 'state=$(cat); printf %s "$state" | "$@"', "hook")
"""Runs a hook with the container's state on its standard input. crun writes that to the hook
itself, and fails with a broken pipe if one that does not care ends too soon."""


def _hooks(spec: ContainerSpec) -> dict[str, Any]:
    return {
        name: [
            {"path": "/bin/sh", "args": [*_HOOK, *command], "timeout": HOOK_TIMEOUT}
            for command in commands
        ]
        for name, commands in spec.hooks
    }


def config(
    spec: ContainerSpec,
    *,
    root: str,
    cgroup: str,
    hostname: str,
    effective: int,
    console: str = "/dev/console",
    devices: Iterable[Device] = (),
    binds: Iterable[Bind] = (),
    first: int = 0,
) -> dict[str, Any]:
    """config.json for one container. `console` "" leaves /dev/console out; `first` 0 is no user
    namespace.

    Raises OperationFailed.
    """
    names = capabilities(effective, spec.capabilities)
    owns = _owns_node(names, first)
    inside = mounts(spec, console, owns)
    inside += [_mount(b.target, "bind", *b.options, source=b.source) for b in binds]
    document: dict[str, Any] = {
        "ociVersion": "1.0.0",
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "cwd": spec.workdir,
            "noNewPrivileges": spec.locked,
            "args": list(spec.command or (SYSTEMD_COMMAND if spec.systemd else PLAIN_COMMAND)),
            "env": environment(spec),
            "capabilities": {"bounding": names, "effective": names, "permitted": names},
        },
        "root": {"path": root, "readonly": False},
        "mounts": inside,
        "linux": {"cgroupsPath": cgroup, **_confinement(spec, names, owns, first)},
    }
    devices = tuple(devices)
    lists = not owns and all(effective >> CAPABILITIES.index(name) & 1 for name in _LISTING)
    if limits := resources(spec.resources, devices, lists=lists):
        document["linux"]["resources"] = limits
    if nodes := [d.to_oci() for d in devices]:
        document["linux"]["devices"] = nodes
    if "uts" in spec.namespaces:
        document["hostname"] = spec.hostname or hostname
    if hooks := _hooks(spec):
        document["hooks"] = hooks
    return document


def _owns_node(names: Collection[str], first: int) -> bool:
    """Whether nothing could keep the node's own things from a container with these capabilities. In
    a user namespace they are worth nothing on the node, and it is confined like any other."""
    return f"CAP_{OWNS_NODE}" in names and not first


def _confinement(
    spec: ContainerSpec, names: Collection[str], owns: bool, first: int
) -> dict[str, Any]:
    """Namespaces, users, what of /proc and /sys is hidden, and the system calls, by the
    capabilities that it has."""
    confinement: dict[str, Any] = {
        "namespaces": [{"type": kind} for kind in spec.namespaces],
        "maskedPaths": [] if owns else list(HIDDEN),
        "readonlyPaths": [] if owns else list(READ_ONLY),
    }
    if first:
        mapping = [{"containerID": 0, "hostID": first, "size": idmap.SIZE}]
        confinement["namespaces"].append({"type": "user"})
        confinement |= {"uidMappings": mapping, "gidMappings": mapping}
    if not owns:
        confinement["seccomp"] = system_calls(modules="CAP_SYS_MODULE" in names)
    return confinement
