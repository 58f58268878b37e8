"""The OCI runtime configuration of an image's container: pure, from facts to a dictionary.

Privileged: a system image owns its machine. Its own are the namespaces that its description names: by default mount,
pid, ipc, uts and cgroup; the network is the node's. Limits are set only where the description asks for them, and the
capabilities are those that the agent itself has: so it runs the same in minOS and inside an outer container that keeps
some for itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from imageapi.spec.container import ContainerSpec, Resources

CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP", "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT",
    "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD",
    "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND",
    "AUDIT_READ", "PERFMON", "BPF", "CHECKPOINT_RESTORE",
)
"""By number, from 0 (<linux/capability.h>)."""

SYSTEMD_COMMAND = ("/sbin/init", "systemd.show_status=0")
PLAIN_COMMAND = ("/init",)
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def capabilities(effective: int) -> list[str]:
    """The names of the capabilities in a mask (CapEff of proc(5))."""
    return [f"CAP_{name}" for number, name in enumerate(CAPABILITIES) if effective >> number & 1]


def _mount(destination: str, kind: str, *options: str, source: str = "") -> dict[str, Any]:
    return {"destination": destination, "type": kind, "source": source or kind, "options": list(options)}


def mounts(systemd: bool, console: str) -> list[dict[str, Any]]:
    """The container's mounts. systemd wants /run and /tmp as tmpfs and a console, and finds its own cgroup writable."""
    found = [
        _mount("/proc", "proc"),
        _mount("/dev", "tmpfs", "nosuid", "strictatime", "mode=755", "size=65536k"),
        _mount("/dev/pts", "devpts", "nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"),
        _mount("/dev/shm", "tmpfs", "nosuid", "nodev", "mode=1777", source="shm"),  # noqa: S108 (inside the container)
        _mount("/dev/mqueue", "mqueue", "nosuid", "noexec", "nodev"),
        _mount("/sys", "sysfs", "nosuid", "noexec", "nodev"),
        _mount("/sys/fs/cgroup", "cgroup", "nosuid", "noexec", "nodev", "relatime", "rw"),
    ]
    if systemd:
        found += [_mount("/run", "tmpfs", "nosuid", "nodev", "mode=755"),
                  _mount("/tmp", "tmpfs", "nosuid", "nodev", "mode=1777")]  # noqa: S108 (inside the container)
    if console:
        found.append(_mount("/dev/console", "bind", "bind", "rw", source=console))
    return found


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
        return {"path": self.path, "type": self.kind, "major": self.major, "minor": self.minor, "fileMode": self.mode,
                "uid": self.uid, "gid": self.gid}


@dataclass(frozen=True, slots=True)
class Bind:
    """A mount of the node that the container sees."""

    source: str
    target: str
    readonly: bool = False


CPU_PERIOD = 100_000
"""Microseconds over which processor time is counted."""

HOOK_TIMEOUT = 30
"""Seconds."""


def resources(limits: Resources) -> dict[str, Any]:
    """The limits as OCI has them."""
    found: dict[str, Any] = {}
    if limits.memory:
        found["memory"] = {"limit": limits.memory}
    if limits.cpus:
        found["cpu"] = {"quota": max(1000, int(limits.cpus * CPU_PERIOD)), "period": CPU_PERIOD}
    if limits.pids:
        found["pids"] = {"limit": limits.pids}
    return found


def environment(spec: ContainerSpec) -> list[str]:
    """The environment of the container's processes, as NAME=VALUE."""
    env = {"PATH": PATH, "container": "crun", "TERM": "dumb"} | dict(spec.env)
    return [f"{key}={value}" for key, value in sorted(env.items())]


_HOOK = ("sh", "-c", 'state=$(cat); printf %s "$state" | "$@"', "hook")
"""Runs a hook with the container's state on its standard input. crun writes that to the hook itself, and fails with a broken pipe
if one that does not care ends too soon."""


def _hooks(spec: ContainerSpec) -> dict[str, Any]:
    return {name: [{"path": "/bin/sh", "args": [*_HOOK, *command], "timeout": HOOK_TIMEOUT} for command in commands]
            for name, commands in spec.hooks}


def config(spec: ContainerSpec, *, root: str, cgroup: str, hostname: str, effective: int, console: str = "/dev/console",
           devices: Iterable[Device] = (), binds: Iterable[Bind] = ()) -> dict[str, Any]:
    """config.json for one container. `console` "" leaves /dev/console out."""
    names = capabilities(effective)
    inside = mounts(spec.systemd, console)
    inside += [_mount(b.target, "bind", "rbind", "rslave", "ro" if b.readonly else "rw", source=b.source) for b in binds]
    found: dict[str, Any] = {
        "ociVersion": "1.0.0",
        "process": {
            "terminal": False, "user": {"uid": 0, "gid": 0}, "cwd": spec.workdir, "noNewPrivileges": False,
            "args": list(spec.command or (SYSTEMD_COMMAND if spec.systemd else PLAIN_COMMAND)),
            "env": environment(spec),
            "capabilities": {"bounding": names, "effective": names, "permitted": names},
        },
        "root": {"path": root, "readonly": False},
        "mounts": inside,
        "linux": {
            "cgroupsPath": cgroup,
            "namespaces": [{"type": kind} for kind in spec.namespaces],
            "maskedPaths": [], "readonlyPaths": [],
        },
    }
    if "uts" in spec.namespaces:
        found["hostname"] = spec.hostname or hostname
    if limits := resources(spec.resources):
        found["linux"]["resources"] = limits
    if nodes := [d.to_oci() for d in devices]:
        found["linux"]["devices"] = nodes
    if hooks := _hooks(spec):
        found["hooks"] = hooks
    return found
