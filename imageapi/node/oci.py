"""The OCI runtime configuration of an image's container: pure, from facts to a dictionary.

Privileged: a system image owns its machine. Mount, pid, ipc and uts namespaces are its own, the network is the node's.
No resource limits and no rlimits are set, and the capabilities are those that the agent itself has: so it runs the same
in minOS and inside an outer container that keeps some for itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from imageapi.node.spec import ContainerSpec

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


def config(spec: ContainerSpec, *, root: str, cgroup: str, hostname: str, effective: int,
           environment: Iterable[tuple[str, str]] = (), console: str = "/dev/console") -> dict[str, Any]:
    """config.json for one container. `console` "" leaves /dev/console out."""
    names = capabilities(effective)
    env = {"PATH": PATH, "container": "crun", "TERM": "dumb"} | dict(environment) | dict(spec.env)
    return {
        "ociVersion": "1.0.0",
        "process": {
            "terminal": False, "user": {"uid": 0, "gid": 0}, "cwd": "/", "noNewPrivileges": False,
            "args": list(spec.command or (SYSTEMD_COMMAND if spec.systemd else PLAIN_COMMAND)),
            "env": [f"{key}={value}" for key, value in sorted(env.items())],
            "capabilities": {"bounding": names, "effective": names, "permitted": names},
        },
        "root": {"path": root, "readonly": False},
        "hostname": hostname,
        "mounts": mounts(spec.systemd, console),
        "linux": {
            "cgroupsPath": cgroup,
            "namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount", "cgroup")],
            "maskedPaths": [], "readonlyPaths": [],
        },
    }
