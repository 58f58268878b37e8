"""What a container may do to the node: capabilities (capabilities(7)), and the set that it has
without a word.

Source of LEAST: what podman gives a container. A Debian's systemd comes up with it. It cannot send
raw packets, change addresses, mount, load modules, trace, make device nodes or reach the hardware.
"""

from __future__ import annotations

from typing import Any

from imageapi.spec.fields import fail

CAPABILITIES = (
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
)
"""By number, from 0 (<linux/capability.h>)."""

LEAST = (
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "NET_BIND_SERVICE",
    "SYS_CHROOT",
    "AUDIT_WRITE",
    "SETFCAP",
)
"""What every container has."""

ALL = "ALL"
"""Stands for every capability that the agent itself has."""

WITHIN = (*LEAST, "IPC_LOCK", "LEASE", "LINUX_IMMUTABLE", "SYS_NICE", "SYS_RESOURCE")
"""What reaches no more than the container's own files and processes, memory and time. Any other
capability, also one that a later kernel adds, is a privilege on the node."""

PRIVILEGES = {
    "hooks": "programs that run as root of the node",
    "devices": "devices of the node",
    "mounts": "files, disks or mounts of the node",
    "capabilities": "capabilities that reach beyond the container",
    "namespaces": "the node's processes",
    "head_api": "the head's API, in the node's name",
}
"""What a description may ask for that reaches the node itself: by the names of its fields, and in
words. config.yaml has to allow it (imageapi.settings)."""

OWNS_NODE = "SYS_ADMIN"
"""Who has this can mount, and so undo whatever else would keep the node's own things from it."""

HIDDEN = (
    "/proc/acpi",
    "/proc/asound",
    "/proc/cmdline",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/kernel/debug",
    "/sys/kernel/tracing",
)
READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
"""Root writes to these without any capability: /proc/sys/kernel/core_pattern alone would run
programs on the node. Source of both lists: the defaults of the OCI engines (containers/common), the
kernel's tracing, and its command line, which has the token of this boot."""

FORBIDDEN = (
    "add_key",
    "bpf",
    "delete_module",
    "finit_module",
    "init_module",
    "kexec_file_load",
    "kexec_load",
    "keyctl",
    "open_by_handle_at",
    "request_key",
    "userfaultfd",
)
"""System calls that reach the whole kernel: its key rings know no containers."""

MODULE_CALLS = ("delete_module", "finit_module", "init_module")
"""Those among them that are what SYS_MODULE is for: who has it may use them."""

_MACHINES = ("X86_64", "X86", "X32", "AARCH64", "ARM")
"""A machine that the filter does not name would have its programs killed."""

_EPERM = 1


def parse_capabilities(value: object) -> tuple[str, ...]:
    """Capabilities beside LEAST, by their names with or without CAP_, or ALL. Raises InputError."""
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise fail("capabilities", value, "a list of names such as NET_RAW, or [ALL]")
    names = {name.upper().removeprefix("CAP_") for name in value}
    for name in sorted(names - {ALL}):
        if name not in CAPABILITIES:
            raise fail("capabilities", name, f"ALL, or some of {', '.join(CAPABILITIES)}")
    return (
        (ALL,)
        if ALL in names
        else tuple(name for name in CAPABILITIES if name in names and name not in LEAST)
    )


def granted(declared: tuple[str, ...]) -> tuple[str, ...]:
    """All that a container with this declaration has, at most."""
    return (
        CAPABILITIES
        if ALL in declared
        else tuple(n for n in CAPABILITIES if n in LEAST or n in declared)
    )


def system_calls(*, modules: bool = False) -> dict[str, Any]:
    """What OCI calls "seccomp": all system calls but the FORBIDDEN ones. `modules` allows
    MODULE_CALLS."""
    refused = [name for name in FORBIDDEN if not (modules and name in MODULE_CALLS)]
    rule = {"names": refused, "action": "SCMP_ACT_ERRNO", "errnoRet": _EPERM}
    return {
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [rule],
        "architectures": [f"SCMP_ARCH_{name}" for name in _MACHINES],
    }
